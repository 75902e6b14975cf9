package foreign

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// ErrNotEntered is that of Within, where do did not run.
var ErrNotEntered = errors.New("no way into a network namespace")

// Within runs do in a network namespace; an empty path is this namespace. A service manager may
// withhold the right to enter, and a container that restarts has no namespace.
func Within(path string, do func() error) error {
	if path == "" {
		return do()
	}
	here, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return fmt.Errorf("find the network namespace: %w", err)
	}
	defer here.Close()
	there, err := OpenNamespace(path)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotEntered, err)
	}
	defer there.Close()
	runtime.LockOSThread()
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("%w: enter %s: %w", ErrNotEntered, path, err)
	}
	err = do()
	if back := unix.Setns(int(here.Fd()), unix.CLONE_NEWNET); back != nil {
		return errors.Join(err, back) // the thread ends with its goroutine
	}
	runtime.UnlockOSThread()
	return err
}
