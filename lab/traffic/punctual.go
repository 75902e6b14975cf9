package traffic

import (
	"context"
	"fmt"
	"iter"
	"time"

	"golang.org/x/sys/unix"

	"proffer/lab/traffic/raw"
)

// Punctual sends raw frames past the kernel's stack, each at its instant.
type Punctual struct {
	Interface string
	Frames    iter.Seq2[time.Duration, []byte] // instants of CLOCK_MONOTONIC in order; the next frame may overwrite it
	Enter     func() error                     // as Client's
}

// punctualRest is the shortest sleep: frames that are due meanwhile leave together.
const punctualRest = 300 * time.Microsecond

// Run returns when all has been sent, or when ctx ends or the interface fails, with the number of frames
// that the interface took, and how late they were.
func (p Punctual) Run(ctx context.Context) (sent int, late Lateness, err error) {
	err = raw.Inside(p.Enter, func() error {
		out, err := raw.OpenInjector(p.Interface)
		if err != nil {
			return err
		}
		defer out.Close()
		sent, err = p.send(ctx, out, &late)
		return err
	})
	if err != nil {
		err = fmt.Errorf("send frames on %s: %w", p.Interface, err)
	}
	return sent, late, err
}

func (p Punctual) send(ctx context.Context, out *raw.Injector, late *Lateness) (sent int, err error) {
	now, waiting := Monotonic(), 0
	flush := func() error {
		for first := 0; first < waiting; {
			n, err := out.Flush(first, waiting)
			if err != nil {
				return err
			}
			first += n
			sent += n
			if first < waiting { // the queue is full
				if ctx.Err() != nil {
					return ctx.Err()
				}
				raw.SleepUntil(time.Now().Add(20 * time.Microsecond))
			}
		}
		waiting = 0
		return ctx.Err()
	}
	for at, frame := range p.Frames {
		if at > now || waiting == raw.Batch {
			if err := flush(); err != nil {
				return sent, err
			}
			for now = Monotonic(); at > now; now = Monotonic() { // a signal ends a sleep early
				raw.SleepUntil(time.Now().Add(max(at-now, punctualRest)))
			}
		}
		late.add(now - at)
		out.Put(waiting, frame)
		waiting++
	}
	return sent, flush()
}

// Monotonic reads CLOCK_MONOTONIC.
func Monotonic() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // the kernel always has this clock
	}
	return time.Duration(ts.Nano())
}

// Lateness is how late frames left.
type Lateness struct {
	bins [2001]uint32 // of latenessBin; the last has all later ones
	n    uint64
	sum  time.Duration
	most time.Duration
}

const latenessBin = 100 * time.Microsecond

func (l *Lateness) add(late time.Duration) {
	l.bins[min(int(late/latenessBin), len(l.bins)-1)]++
	l.n++
	l.sum += late
	l.most = max(l.most, late)
}

// Schedule judges the frames, by the latest with which a result may be claimed.
func (l *Lateness) Schedule(mean, p99 time.Duration) Schedule {
	s := Schedule{Max: l.most, P50: l.quantile(0.5), P99: l.quantile(0.99), MeanLimit: mean, P99Limit: p99}
	if l.n > 0 {
		s.Mean = l.sum / time.Duration(l.n)
	}
	return s
}

// quantile is the upper end of its bin.
func (l *Lateness) quantile(q float64) time.Duration {
	left := uint64(q * float64(l.n))
	for i, n := range l.bins {
		if uint64(n) > left {
			return min(time.Duration(i+1)*latenessBin, l.most)
		}
		left -= uint64(n)
	}
	return l.most
}
