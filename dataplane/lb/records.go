package lb

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"proffer/dataplane/objects"
	"proffer/topo"
)

const serviceSlots = 1 << objects.ServiceSlotBits

// records are the services as packets find them. A slot's number is one store, and a
// record is written before its number is: a packet meets the old or the new service. So
// a record that a packet may still read is kept until the packets in progress have
// ended; then it is free for another service.
type records struct {
	m      *ebpf.Map
	memory []byte
	slots  []uint64 // in memory
	have   map[objects.LBServiceKey]objects.LBService
	at     map[objects.LBServiceKey]uint32 // its slot
	free   []uint32                        // numbers
	left   []uint32                        // numbers that a packet may still read
	wait   func() error
}

func newRecords(m, slots *ebpf.Map, wait func() error) (*records, error) {
	memory, err := unix.Mmap(slots.FD(), 0, 8*serviceSlots, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the table of services into memory: %w", err)
	}
	r := &records{
		m:      m,
		memory: memory,
		slots:  unsafe.Slice((*uint64)(unsafe.Pointer(&memory[0])), serviceSlots),
		have:   map[objects.LBServiceKey]objects.LBService{},
		at:     map[objects.LBServiceKey]uint32{},
		wait:   wait,
	}
	for n := m.MaxEntries() - 1; n > objects.ServiceGone; n-- {
		r.free = append(r.free, n)
	}
	return r, nil
}

func (r *records) close() error {
	if r == nil {
		return nil
	}
	return unix.Munmap(r.memory)
}

// serviceSlot is service_slot of bpf/lb/service.h.
func serviceSlot(key *objects.LBServiceKey) uint32 {
	return uint32(serviceHash(key) >> (64 - objects.ServiceSlotBits))
}

// serviceHash is service_hash of bpf/lb/service.h.
func serviceHash(key *objects.LBServiceKey) uint64 {
	words := (*[5]uint32)(unsafe.Pointer(key))
	h := (uint64(words[0]) | uint64(words[1])<<32) * 0x9e3779b97f4a7c15
	h ^= uint64(words[2]) | uint64(words[3])<<32
	h += uint64(words[4])
	return (h ^ h>>32) * 0xbf58476d1ce4e5b9
}

// plainOf is how plain a service is: whether packets of its known flows, or all of its packets, need
// an outer header alone. The packets of a service that does not serve all clients are all looked at.
func plainOf(s *objects.LBService) uint64 {
	if s.Key.PortBe == 0 || s.Allow > 0 || s.Wire != uint8(topo.Encap) || s.Vias > 0 || int(s.Dispatch) >= len(topo.Dispatches()) {
		return objects.PlainNo
	}
	switch row := topo.Dispatch(s.Dispatch).Row(); {
	case s.Affinity > 0 && (row.Choice != topo.ByTable || !row.Keeps): // each packet shows that the client is there
		return objects.PlainNo
	case row.Keeps:
		return objects.PlainClient
	case row.Signals:
		return objects.PlainFlows
	case s.Fragments == uint8(topo.HashFragments):
		return objects.PlainNo
	}
	return objects.PlainHash
}

// slotValue is the slot of a service's record (enum service_slot of bpf/lb/service.h).
func slotValue(s *objects.LBService, number uint32) uint64 {
	plain := plainOf(s)
	if plain == objects.PlainNo {
		return uint64(number)
	}
	return serviceHash(&s.Key)<<objects.SlotHashShift | plain<<objects.RecordNumberBits | uint64(number)
}

// slotFor is the slot for a new service: the first free slot of its chain.
func (r *records) slotFor(key *objects.LBServiceKey) (uint32, error) {
	first := serviceSlot(key)
	for i := range uint32(objects.MaxProbes) {
		if at := (first + i) % serviceSlots; r.slots[at] <= objects.ServiceGone {
			return at, nil
		}
	}
	return 0, fmt.Errorf("no slot for another service: too many hash to one slot")
}

// set writes a slot.
func (r *records) set(slot uint32, value uint64) {
	atomic.StoreUint64(&r.slots[slot], value)
}

// numberIn returns the number of the record in a slot.
func (r *records) numberIn(slot uint32) uint32 {
	return uint32(r.slots[slot] % (1 << objects.RecordNumberBits))
}

// put adds or replaces a service's record.
func (r *records) put(record objects.LBService) error {
	key := record.Key
	old, known := r.have[key]
	if known && old == record {
		return nil
	}
	number, err := r.write(&record)
	if err != nil {
		return err
	}
	at := r.at[key]
	if known {
		r.left = append(r.left, r.numberIn(at))
	} else if at, err = r.slotFor(&key); err != nil {
		r.free = append(r.free, number)
		return err
	}
	r.set(at, slotValue(&record, number))
	r.have[key], r.at[key] = record, at
	return nil
}

// write writes a record under a number that no packet reads, and returns the number.
func (r *records) write(record *objects.LBService) (uint32, error) {
	if len(r.free) == 0 {
		if err := r.settle(); err != nil {
			return 0, err
		}
	}
	last := len(r.free) - 1
	if last < 0 {
		return 0, fmt.Errorf("no room for another service's record: there are %d", r.m.MaxEntries())
	}
	number := r.free[last]
	if err := r.m.Put(number, record); err != nil {
		return 0, fmt.Errorf("write a service's record: %w", err)
	}
	r.free = r.free[:last]
	return number, nil
}

// delete removes a service. Its slot stays part of the chains that go over it,
// unless they end there.
func (r *records) delete(key objects.LBServiceKey) {
	at := r.at[key]
	r.left = append(r.left, r.numberIn(at))
	r.set(at, objects.ServiceGone)
	delete(r.have, key)
	delete(r.at, key)
	if r.slots[(at+1)%serviceSlots] != objects.NoRecord {
		return
	}
	for ; r.slots[at] == objects.ServiceGone; at = (at + serviceSlots - 1) % serviceSlots {
		r.set(at, objects.NoRecord)
	}
}

// settle returns when no packet reads a replaced or deleted record any more.
func (r *records) settle() error {
	if len(r.left) == 0 {
		return nil
	}
	if err := r.wait(); err != nil {
		return err
	}
	r.free = append(r.free, r.left...)
	r.left = nil
	return nil
}
