package farmrun

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

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
