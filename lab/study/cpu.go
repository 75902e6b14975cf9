package study

import (
	"time"

	"golang.org/x/sys/unix"
)

// threadTime is the CPU time of the calling thread, which the caller must be
// locked to.
func threadTime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
