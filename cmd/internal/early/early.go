// Package early has a daemon ignore SIGHUP before the other packages are initialised, which takes
// milliseconds: the signal would end it. It has read no configuration by then, so there is none to
// read again; daemon/ listens before it reads. Go initialises a package as soon as its imports are,
// so this one imports little.
package early

import (
	"os"
	"os/signal"
	"syscall"
)

func init() {
	if len(os.Args) < 2 {
		return
	}
	switch os.Args[1] {
	case "lb", "agent", "edge", "nf", "node":
		signal.Ignore(syscall.SIGHUP)
	}
}
