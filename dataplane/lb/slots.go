package lb

import (
	"fmt"

	"github.com/cilium/ebpf"

	"proffer/dataplane/internal/plane"
)

// slots are the slots for tables in the outer map `tables`.
//
// An update of an outer map returns after the programs that ran before it have ended (a
// grace period of RCU): then no packet reads the slot's old table, nor any other
// element that was removed from a map before. The wait takes 10 ms and no CPU time, so
// many slots change at once.
type slots struct {
	m    *ebpf.Map
	none *ebpf.Map // held by slots without a table, where deleting is one wait a slot
	free []uint32  // the last is taken first
}

func newSlots(m *ebpf.Map) (*slots, error) {
	none, err := newTable(1)
	if err != nil {
		return nil, err
	}
	s := &slots{m: m, none: none}
	for slot := s.spare(); slot > 0; slot-- {
		s.free = append(s.free, slot-1)
	}
	return s, nil
}

// spare is the slot that no service has.
func (s *slots) spare() uint32 { return s.m.MaxEntries() - 1 }

func (s *slots) take() (uint32, error) {
	last := len(s.free) - 1
	if last < 0 {
		return 0, fmt.Errorf("no room for another table: there are %d", s.spare())
	}
	slot := s.free[last]
	s.free = s.free[:last]
	return slot, nil
}

// put fills slots and returns how many, from the first on.
func (s *slots) put(at []uint32, tables []*ebpf.Map) (int, error) {
	fds := make([]uint32, len(tables))
	for i, t := range tables {
		fds[i] = uint32(t.FD())
	}
	n, err := plane.PutAll(s.m, at, fds)
	if err != nil {
		return n, fmt.Errorf("put a table into slot %d: %w", at[n], err)
	}
	return n, nil
}

// giveBack empties slots with tables that no packet reads.
func (s *slots) giveBack(at []uint32) error {
	none := make([]*ebpf.Map, len(at))
	for i := range none {
		none[i] = s.none
	}
	_, err := s.put(at, none)
	s.free = append(s.free, at...)
	return err
}

// wait returns after the packets in progress have ended.
func (s *slots) wait() error {
	if err := s.m.Put(s.spare(), s.none); err != nil {
		return fmt.Errorf("wait for the packets on their way: %w", err)
	}
	return nil
}

func (s *slots) close() error {
	if s == nil {
		return nil
	}
	return s.none.Close()
}
