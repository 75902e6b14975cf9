// Package raw sends frames past the kernel's stack, and runs work in the client's
// namespace.
package raw

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Forge sends raw frames past the kernel's stack, whatever they claim to be. It
// ends after Frames or after For, whichever comes first; one of them is given.
type Forge struct {
	Interface string
	Frame     func(i int) []byte // frame i from the Ethernet header on; the next may overwrite it
	Frames    int                // 0: no end
	Rate      float64            // frames a second; 0: as many as go
	For       time.Duration      // 0: no end
	Enter     func() error       // as Client's
}

// Sent counts the frames that really left.
type Sent struct {
	Frames  int // that the interface took; frames that it drops at once, for want of room or of a far end, do not count
	Elapsed time.Duration
}

// Rate is in frames a second.
func (s Sent) Rate() float64 { return float64(s.Frames) / s.Elapsed.Seconds() }

// Run returns when all has been sent. When ctx ends or the interface fails, it
// returns the error and the frames sent so far. A frame that finds the interface's
// queue full is sent again.
func (f Forge) Run(ctx context.Context) (sent Sent, err error) {
	if f.Frames <= 0 && f.For <= 0 {
		return Sent{}, errors.New("forge frames: neither their number nor a duration is given, so it would never end")
	}
	err = Inside(f.Enter, func() (err error) {
		sent, err = f.run(ctx)
		return err
	})
	if err != nil {
		err = fmt.Errorf("forge frames on %s: %w", f.Interface, err)
	}
	return sent, err
}

func (f Forge) run(ctx context.Context) (Sent, error) {
	out, err := OpenInjector(f.Interface)
	if err != nil {
		return Sent{}, err
	}
	defer out.Close()
	began := time.Now()
	taken, err := f.send(ctx, out, began)
	return Sent{Frames: taken, Elapsed: time.Since(began)}, err
}

func (f Forge) send(ctx context.Context, out *Injector, began time.Time) (taken int, err error) {
	p := pacer{rate: f.Rate}
	for ctx.Err() == nil {
		now := time.Since(began)
		if f.For > 0 && now >= f.For || f.Frames > 0 && p.given >= f.Frames {
			return p.given, nil
		}
		due := p.due(now)
		if f.Frames > 0 {
			due = min(due, f.Frames-p.given)
		}
		left, err := out.send(p.given, due, f.Frame)
		p.given += left
		if err != nil {
			return p.given, err
		}
		SleepUntil(time.Now().Add(p.rest(due, left)))
	}
	return p.given, ctx.Err()
}
