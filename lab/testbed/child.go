package testbed

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// lasting is a thread that ends with the process.
var lasting = sync.OnceValue(func() chan<- func() {
	jobs := make(chan func())
	go func() {
		runtime.LockOSThread()
		for job := range jobs {
			job()
		}
	}()
	return jobs
})

// StartChild starts a command that gets a signal when this process ends, however it ends. The kernel sends it when
// the *thread* that forked ends, as threads do that were in another namespace: so a thread that lasts starts all.
func StartChild(cmd *exec.Cmd, atEnd unix.Signal) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Pdeathsig = atEnd
	result := make(chan error)
	lasting() <- func() { result <- cmd.Start() }
	return <-result
}
