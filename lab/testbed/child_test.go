package testbed

import (
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestChildOutlivesThreads: a child lives on while threads of this process end, and has the signal for its end.
func TestChildOutlivesThreads(t *testing.T) {
	over := make(chan struct{})
	defer close(over)
	start := func(start func(*exec.Cmd) error) *exec.Cmd {
		cmd := exec.Command("sleep", "60")
		started := make(chan error)
		var begin func()
		begin = func() {
			runtime.LockOSThread() // never unlocked: the thread ends with this function, unless it is the first
			if unix.Gettid() == unix.Getpid() {
				go begin()
				<-over
				return
			}
			started <- start(cmd)
		}
		go begin()
		if err := <-started; err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	plain := start(func(cmd *exec.Cmd) error {
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
		return cmd.Start()
	})
	child := start(func(cmd *exec.Cmd) error { return StartChild(cmd, unix.SIGKILL) })
	if err := plain.Wait(); err == nil { // the kernel ends it with the thread
		t.Error("a child of a thread that ended lived on: this test shows nothing")
	}
	if err := child.Process.Signal(unix.Signal(0)); err != nil {
		t.Errorf("the child has ended: %v", err)
	}
	child.Process.Kill()
	if err := child.Wait(); err == nil {
		t.Error("a child that was killed ended well")
	}
	if child.SysProcAttr.Pdeathsig != unix.SIGKILL {
		t.Error("the child outlives this process")
	}
}
