package farmrun

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// CPUTime is the time of all CPUs since the machine started, in ticks. Busy has
// softirq in it.
type CPUTime struct{ Busy, all, Softirq uint64 }

// Share is how busy the machine was since before, 0 to 1.
func (c CPUTime) Share(before CPUTime) float64 {
	if c.all == before.all {
		return 0
	}
	return float64(c.Busy-before.Busy) / float64(c.all-before.all)
}

// ReadCPU reads the first line of /proc/stat (proc(5)):
//
//	cpu  user nice system idle iowait irq softirq steal guest guest_nice
//
// guest is in user already.
func ReadCPU(path string) (c CPUTime, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return c, fmt.Errorf("read CPU time: %w", err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(line)
	const idle, iowait, softirq, steal = 4, 5, 7, 8
	if len(fields) <= steal || fields[0] != "cpu" {
		return c, fmt.Errorf("read CPU time from %s: the first line is %q", path, line)
	}
	for i, field := range fields[:steal+1] {
		if i == 0 {
			continue
		}
		ticks, err := strconv.ParseUint(field, 10, 64)
		if err != nil {
			return c, fmt.Errorf("read CPU time from %s: %w", path, err)
		}
		c.all += ticks
		if i != idle && i != iowait {
			c.Busy += ticks
		}
		if i == softirq {
			c.Softirq = ticks
		}
	}
	return c, nil
}

// preferred is far enough from 0 that a generator keeps its schedule beside two
// busy loops on two cores (one request in a hundred is then under 5 ms late
// instead of 30), and no real-time class: that starves the kernel's own threads.
const preferred = -10

// Prefer asks the scheduler to run this process, and its later
// children, before others. A missing permission is no error: the schedule is
// checked anyway.
//
// Sending a packet here walks it through the whole farm inside one system call;
// with a processor of Go's for each real one, a due client waits for that.
func Prefer() {
	runtime.GOMAXPROCS(2 * runtime.NumCPU())
	for tid := range threads(os.Getpid()) {
		_ = unix.Setpriority(unix.PRIO_PROCESS, tid, preferred)
	}
}
