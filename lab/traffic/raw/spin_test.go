package raw

import (
	"context"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func cpuTime() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// How much Spin gets depends on other threads of the CPU; that it takes no more
// than its share, and its result, does not.
func TestSpinBurnsItsShare(t *testing.T) {
	for _, share := range []float64{-1, 0, 0.25, 0.5, 1, 7} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*ms)
		began, before := time.Now(), cpuTime()
		burnt := Spin(ctx, share)
		elapsed, used := time.Since(began), cpuTime()-before
		cancel()
		// Sleeping and looking at the clock cost a little too.
		most := time.Duration(min(1, max(0, share)+0.2) * float64(elapsed+slice))
		if burnt > most || share > 0 && burnt < ms/10 {
			t.Errorf("share %v: %v of %v burnt, want some and at most %v", share, burnt, elapsed, most)
		}
		if used < burnt-ms { // the kernel's books of the process are a tick behind
			t.Errorf("share %v: %v burnt, but the process used %v", share, burnt, used)
		}
		t.Logf("share %v: %.3f", share, burnt.Seconds()/elapsed.Seconds())
	}
}
