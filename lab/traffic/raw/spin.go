package raw

import (
	"context"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// slice is the time in which Spin is busy once and idle once.
const slice = time.Millisecond

// Spin keeps one CPU busy for a share of every millisecond, 0 to 1, until ctx
// ends, and returns the CPU time that it got: less than it asked for where
// others wanted the CPU too. A slice's missing time is not made up for.
func Spin(ctx context.Context, share float64) (burnt time.Duration) {
	runtime.LockOSThread() // the clock is the thread's
	defer runtime.UnlockOSThread()
	first := threadTime()
	busy := time.Duration(min(max(share, 0), 1) * float64(slice))
	for end := time.Now().Add(slice); ctx.Err() == nil; end = end.Add(slice) {
		burn(busy, end)
		if late := time.Since(end); late > slice {
			end = end.Add(late)
		}
		SleepUntil(end)
	}
	return threadTime() - first
}

// burn returns after so much CPU time, or at the end of the slice. Reading the
// thread's clock is a system call, hence not all the time.
func burn(busy time.Duration, end time.Time) {
	const step = 10 * time.Microsecond
	for first := threadTime(); threadTime()-first < busy && time.Now().Before(end); {
		for next := time.Now().Add(step); time.Now().Before(next); {
		}
	}
}

func threadTime() time.Duration {
	var t unix.Timespec
	// It fails only for a clock that does not exist.
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return time.Duration(t.Nano())
}

// SleepUntil blocks the thread: Go's own timers are 1 to 3 ms late.
func SleepUntil(at time.Time) {
	if delay := time.Until(at); delay > 0 {
		t := unix.NsecToTimespec(int64(delay))
		_ = unix.Nanosleep(&t, nil) // a signal may end it early: no harm
	}
}
