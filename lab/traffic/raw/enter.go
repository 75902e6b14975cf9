package raw

import (
	"fmt"
	"runtime"
)

// Inside runs f on a thread that enter has moved to another namespace; without
// enter it stays in ours. The thread is never unlocked: Go ends it with its
// goroutine, so that no other goroutine gets a thread in a foreign namespace.
func Inside(enter, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if enter != nil {
			if err := enter(); err != nil {
				done <- fmt.Errorf("enter the client's namespace: %w", err)
				return
			}
		}
		done <- f()
	}()
	return <-done
}
