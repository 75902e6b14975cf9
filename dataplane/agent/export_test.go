package agent

import (
	"testing"

	"github.com/cilium/ebpf/link"

	"proffer/dataplane/internal/plane"
)

// The parts of an agent that its tests look at.

// AttachSockets is attachSockets.
func (a *Agent) AttachSockets() error { return a.attachSockets() }

// Unwatched does something while no change of a socket is seen, as in an interrupt of the
// program that sees them.
func (a *Agent) Unwatched(do func()) (err error) {
	if err := a.sockets.Close(); err != nil {
		return err
	}
	do()
	a.sockets, err = link.AttachTracing(link.TracingOptions{Program: a.objs.SocketChanged})
	return err
}

// CountsWork reports whether the programs are attached.
func (a *Agent) CountsWork() bool { return a.work != nil }

// RecountWork is recountWork.
func (a *Agent) RecountWork() error { return a.recountWork() }

// NetnsID is netnsID.
func NetnsID(path string) (int32, error) { return netnsID(path) }

// Die leaves a killed agent's remains: the pins, their objects, and the
// filter on the way out.
func (a *Agent) Die() {
	a.Pins.Unlock() // the kernel does it for a process that ends
	a.Pins, a.TC = plane.Pins{}, nil
}

// Offered counts the entries of services and of their addresses.
func (a *Agent) Offered(t *testing.T) int {
	t.Helper()
	have, err := offeredIn(a.objs.Offerings)
	if err != nil {
		t.Fatal(err)
	}
	return len(have.Loads) + len(have.Marked)
}

// Doubt is doubt.
func (a *Agent) Doubt() error { return a.doubt() }

// KeepComplete is keepComplete.
func (a *Agent) KeepComplete() error { return a.keepComplete() }

// AdoptConns is adoptConns.
func (a *Agent) AdoptConns() error { return a.adoptConns() }

// BeginRestore and EndRestore are the two walks over an earlier table.
func (a *Agent) BeginRestore() error { return a.beginRestore() }
func (a *Agent) EndRestore() error   { return a.endRestore() }
