package agent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"proffer/dataplane/internal/plane"
	"proffer/dataplane/objects"
)

// restoredWithin is how long packets of flows without an entry may wait for the second walk.
const restoredWithin = 5 * time.Second

// restore adds the flows of an earlier table to this agent's, and returns how many found no room
// (bpf/agent/restore.h).
func (a *Agent) restore() (lost uint64, err error) {
	err = a.earlier.Lines(func(line *objects.AgentConnLine) error {
		data, err := binary.Append(nil, binary.NativeEndian, line)
		if err != nil {
			return err
		}
		none, err := a.objs.RestoreConns.Run(&ebpf.RunOptions{Data: data})
		if err != nil || int32(none) < 0 {
			return fmt.Errorf("restore flows: %d, %w", int32(none), err)
		}
		lost += uint64(none)
		return nil
	})
	return lost, err
}

// beginRestore restores the flows just before these programs are attached.
func (a *Agent) beginRestore() error {
	if a.earlier == nil {
		return nil
	}
	_, err := a.restore()
	return errors.Join(err, a.objs.RestoringUntilNs.Set(uint64(plane.Monotonic()+restoredWithin)))
}

// endRestore restores the flows that the earlier programs had packets of since. These programs are
// attached.
func (a *Agent) endRestore() error {
	if a.earlier == nil {
		return nil
	}
	if err := a.grace.Wait(); err != nil {
		return err
	}
	lost, err := a.restore()
	if lost > 0 {
		a.Pins.Forgotten = fmt.Sprintf("%d flows: the table has %d lines now, too few for them", lost, a.Lines)
	}
	err = errors.Join(err, a.objs.RestoringUntilNs.Set(uint64(0)), a.earlier.Close())
	a.earlier = nil
	return err
}
