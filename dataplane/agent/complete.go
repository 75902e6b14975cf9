package agent

import (
	"fmt"
	"io"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"proffer/dataplane/objects"
)

// seekAgain is how many sweeps of the whole table pass until the sockets are looked at again,
// though nothing was missed: of a minute.
const seekAgain = 12

// doubt makes the programs ask the kernel whether a new flow has a live connection.
func (a *Agent) doubt() error {
	if err := a.objs.ConnsCompleteness.Set(uint32(objects.ConnsIncomplete)); err != nil {
		return fmt.Errorf("doubt the table of flows: %w", err)
	}
	return nil
}

// Complete gives an entry to each live connection without an entry. From then on the programs trust
// the table, until something happens after which it may lack a connection (bpf/agent/complete.h).
func (a *Agent) Complete() error {
	a.seeking.Lock()
	defer a.seeking.Unlock()
	if err := a.announce(); err != nil {
		return err
	}
	if err := a.grace.Wait(); err != nil {
		return err
	}
	return a.adoptConns()
}

// announce makes the table a table whose sockets are about to be looked at.
func (a *Agent) announce() error {
	a.trusted = 0
	if err := a.objs.ConnsCompleteness.Set(uint32(objects.ConnsSought)); err != nil {
		return fmt.Errorf("complete the table of flows: %w", err)
	}
	return nil
}

// adoptConns is the look at the sockets.
func (a *Agent) adoptConns() error {
	if err := visitSockets(a.objs.AdoptConns); err != nil {
		return fmt.Errorf("complete the table of flows: %w", err)
	}
	return nil
}

// keepComplete follows each sweep of the whole table. The sockets are looked at one sweep after the
// table became incomplete: a packet that had just passed the programs has met the stack by then.
func (a *Agent) keepComplete() error {
	a.seeking.Lock()
	defer a.seeking.Unlock()
	var is uint32
	if err := a.objs.ConnsCompleteness.Get(&is); err != nil {
		return fmt.Errorf("read whether the table of flows is complete: %w", err)
	}
	if is == objects.ConnsIncomplete {
		return a.announce()
	}
	if a.trusted++; is == objects.ConnsComplete && a.trusted < seekAgain {
		return nil
	}
	a.trusted = 0
	return a.adoptConns()
}

// visitSockets runs a program for each TCP socket of this network namespace.
func visitSockets(visit *ebpf.Program) error {
	iter, err := link.AttachIter(link.IterOptions{Program: visit})
	if err != nil {
		return err
	}
	defer iter.Close()
	r, err := iter.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(io.Discard, r)
	return err
}
