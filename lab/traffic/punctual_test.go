package traffic

import (
	"context"
	"errors"
	"iter"
	"testing"
	"time"
)

// TestPunctual: every frame leaves, none before its instant, and the lateness is that of the frames.
func TestPunctual(t *testing.T) {
	client, server := linked(t)
	const frames = 1000
	begun := Monotonic() + 20*time.Millisecond
	before := server.received()
	var last time.Duration
	sent, late, err := Punctual{Interface: device, Enter: client.enter, Frames: func(yield func(time.Duration, []byte) bool) {
		for i := range frames {
			last = begun + time.Duration(i)*20*time.Microsecond
			if !yield(last, make([]byte, 60)) {
				return
			}
		}
	}}.Run(t.Context())
	ended := Monotonic()
	if err != nil || sent != frames {
		t.Fatalf("%d frames, %v", sent, err)
	}
	waitFor(t, func() bool { return server.received() >= before+frames })
	if got := server.received() - before; got < frames {
		t.Errorf("%d frames came, want %d", got, frames)
	}
	s := late.Schedule(0, 0)
	if ended < last || s.Mean < 0 || s.Max > ended-begun || s.P50 > s.P99 || s.P99 > s.Max {
		t.Errorf("ended %v after the last instant, lateness %+v", ended-last, s)
	}
}

// TestPunctualEnds: with its context, in the middle of its frames.
func TestPunctualEnds(t *testing.T) {
	client, _ := linked(t)
	ctx, stop := context.WithCancel(t.Context())
	endless := iter.Seq2[time.Duration, []byte](func(yield func(time.Duration, []byte) bool) {
		for i := 0; yield(Monotonic(), make([]byte, 60)); i++ {
			if i == 100 {
				stop()
			}
		}
	})
	if _, _, err := (Punctual{Interface: device, Enter: client.enter, Frames: endless}).Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
}

func TestLateness(t *testing.T) {
	var l Lateness
	for i := range 1000 {
		l.add(time.Duration(i) * time.Millisecond / 10)
	}
	s := l.Schedule(50*time.Millisecond, 100*time.Millisecond)
	if s.Mean != 49950*time.Microsecond || s.P50 != 50100*time.Microsecond || s.P99 != 99100*time.Microsecond || s.Max != 99900*time.Microsecond || s.Kept() != nil {
		t.Errorf("%+v", s)
	}
	if late := l.Schedule(40*time.Millisecond, 100*time.Millisecond); !errors.Is(late.Kept(), ErrLate) {
		t.Errorf("%+v is kept", late)
	}
}
