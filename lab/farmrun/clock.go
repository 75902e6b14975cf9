package farmrun

import (
	"context"
	"time"

	"proffer/lab/traffic"
)

// Monotonic is the clock of an agent.
type Monotonic struct{}

func (Monotonic) Tick(period time.Duration) (<-chan time.Time, func()) {
	t := time.NewTicker(period)
	return t.C, t.Stop
}

func (Monotonic) Now() time.Duration { return traffic.Monotonic() }

// Sleep waits, or returns the error of a context that ends before.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
