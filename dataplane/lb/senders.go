package lb

import (
	"fmt"

	"github.com/cilium/ebpf"

	"proffer/dataplane/objects"
)

// senders are the slots in which packets look for a sender's number first (bpf/lb/service.h).
// A slot is the first server's that hashes to it; a server without a slot costs its packets a
// look-up of server_by_locator, as does a slot that was freed for a server which was there before.
type senders struct {
	m     *ebpf.Map
	lines [1 << objects.SenderSlotBits / objects.SendersInLine]objects.LBSenderLine
	taken map[uint32]uint64 // locator, by slot
}

func newSenders(m *ebpf.Map) *senders { return &senders{m: m, taken: map[uint32]uint64{}} }

// senderSlot is the slot of number_of.
func senderSlot(locator uint64) uint32 {
	return uint32(locator * 0x9e3779b97f4a7c15 >> (64 - objects.SenderSlotBits))
}

// add gives free slots to servers.
func (s *senders) add(numbers map[uint64]uint32) error {
	for locator, number := range numbers {
		slot := senderSlot(locator)
		if _, taken := s.taken[slot]; taken {
			continue
		}
		if err := s.put(slot, uint16(number)); err != nil {
			return err
		}
		s.taken[slot] = locator
	}
	return nil
}

// drop frees the slots of servers.
func (s *senders) drop(numbers map[uint64]uint32) error {
	for locator := range numbers {
		slot := senderSlot(locator)
		if s.taken[slot] != locator {
			continue
		}
		if err := s.put(slot, 0); err != nil {
			return err
		}
		delete(s.taken, slot)
	}
	return nil
}

func (s *senders) put(slot uint32, number uint16) error {
	line := slot / objects.SendersInLine
	s.lines[line].Number[slot%objects.SendersInLine] = number
	if err := s.m.Put(line, s.lines[line]); err != nil {
		return fmt.Errorf("write a server's number: %w", err)
	}
	return nil
}
