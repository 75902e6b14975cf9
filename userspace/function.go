package userspace

import (
	"fmt"

	"proffer/dataplane"
	"proffer/topo"
)

// Function handles the packets of a service at a core, in turn, on the core's thread.
type Function interface {
	// Packet gets a packet from its IP header on, and whether it goes to the client network. It may
	// change bytes in place; length and link stay, and checksums have to be true afterwards.
	Packet(ip []byte, inward bool) Verdict
	// Counters may be called meanwhile, by another goroutine.
	Counters() []dataplane.Counter
}

// Verdict is a decision about a packet.
type Verdict uint8

// The verdicts.
const (
	Pass    Verdict = iota // on to the next function
	Changed                // the same, and in the end back through the LB
	Drop
)

// New is a function at its start.
func New(f topo.UserFunction) (Function, error) {
	if f == topo.ByteCounter {
		return new(counter), nil
	}
	return nil, fmt.Errorf("there is no function %v in user space", f)
}
