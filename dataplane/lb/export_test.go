package lb

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"proffer/dataplane"
	"proffer/dataplane/objects"
	"proffer/topo"
)

// The parts of an LB that its tests look at.

// ServiceSlot is serviceSlot.
func ServiceSlot(key *objects.LBServiceKey) uint32 { return serviceSlot(key) }

// CheckOf is checkOf.
func (l *LB) CheckOf(c dataplane.Check) []byte { return l.checkOf(&c) }

// LookupByLength looks an address up among hops.
func LookupByLength(hops topo.NextHops, a netip.Addr) (topo.MAC, bool) {
	return byLength(hops).lookup(a)
}

// RecordFor is the record of a service with the table of another.
func (l *LB) RecordFor(svc, of *topo.Service) objects.LBService {
	return serviceRecord(svc, l.SlotOf(of.VIP), 1, 1500)
}

// RecordOf is the record of a service.
func (l *LB) RecordOf(v topo.VIP) objects.LBService { return l.records.have[objects.ServiceKey(v)] }

// PutRecord writes a record.
func (l *LB) PutRecord(r objects.LBService) error { return l.records.put(r) }

// DeleteRecord removes a record.
func (l *LB) DeleteRecord(v topo.VIP) { l.records.delete(objects.ServiceKey(v)) }

// LeaveRecords leaves n free records.
func (l *LB) LeaveRecords(n int) { l.records.free = l.records.free[:n] }

// OnWait runs f where Apply waits for packets, before it does.
func (l *LB) OnWait(f func()) {
	wait := l.records.wait
	l.records.wait = func() error {
		f()
		return wait()
	}
}

// UsedRecordSlots counts the slots in use.
func (l *LB) UsedRecordSlots() (used int) {
	for _, number := range l.records.slots {
		if number != objects.NoRecord {
			used++
		}
	}
	return used
}

// TableOf is the table of a service.
func (l *LB) TableOf(v topo.VIP) *ebpf.Map { return l.services[v].table }

// SlotOf is the slot of the table of a service.
func (l *LB) SlotOf(v topo.VIP) uint32 { return l.services[v].record.Table }

// UsedSlots are those of all services.
func (l *LB) UsedSlots() (used []uint32) {
	for _, p := range l.services {
		used = append(used, p.record.Table)
	}
	return used
}

// Slots are all, the free ones, and the table that those hold.
func (l *LB) Slots() (all uint32, free []uint32, none *ebpf.Map) {
	return l.slots.spare(), l.slots.free, l.slots.none
}

// Retired is how many tables await their end.
func (l *LB) Retired() int { return len(l.retired) }

// NumberOf is the number of a server, by its locator.
func (l *LB) NumberOf(locator netip.Prefix) (uint32, bool) {
	number, ok := l.numbers.known[objects.LocatorBits(locator)]
	return number, ok
}

// Numbered is how many servers have a number.
func (l *LB) Numbered() int { return len(l.numbers.known) }

// Die is SIGKILL: the kernel closes the process's files.
func (l *LB) Die(t *testing.T) {
	t.Helper()
	if err := errors.Join(l.Lost.Close(), l.XDP.Close(), l.Pins.Unlock(), l.objs.Close()); err != nil {
		t.Fatal(err)
	}
}

// PinnedAt is where a map is pinned.
func (l *LB) PinnedAt(name string) string { return l.Pins.Path(name) }

// SenderSlot is senderSlot.
func SenderSlot(locator uint64) uint32 { return senderSlot(locator) }

// Unplain makes packets of all services take the general way, until records are put again.
func (l *LB) Unplain() {
	for slot := range l.records.slots {
		l.records.set(uint32(slot), uint64(l.records.numberIn(uint32(slot))))
	}
}

// Plain returns how plain a service is, by its slot.
func (l *LB) Plain(v topo.VIP) uint64 {
	slot := l.records.slots[l.records.at[objects.ServiceKey(v)]]
	return slot >> objects.RecordNumberBits % (1 << (objects.SlotHashShift - objects.RecordNumberBits))
}

// Put is put, and Load is load.
var (
	Put  = put
	Load = load
)
