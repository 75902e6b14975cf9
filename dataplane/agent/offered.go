package agent

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"proffer/dataplane/objects"
	"proffer/topo"
)

// offered are the services as packets find them (bpf/agent/offerings.h): records by index, and
// the bits of ports and addresses that have a service. Both are in memory shared with the
// programs.
type offered struct{ records, bits []uint64 }

const offeringWords = int(unsafe.Sizeof(objects.AgentOffering{})) / 8

func newOffered(records, bits *ebpf.Map) (o offered, err error) {
	if o.records, err = wordsOf(records); err == nil {
		o.bits, err = wordsOf(bits)
	}
	if err != nil {
		return o, fmt.Errorf("map the services into memory: %w", err)
	}
	return o, nil
}

func wordsOf(m *ebpf.Map) ([]uint64, error) {
	n := int(m.MaxEntries()*m.ValueSize()) / 8
	memory, err := unix.Mmap(m.FD(), 0, 8*n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return unsafe.Slice((*uint64)(unsafe.Pointer(&memory[0])), n), nil
}

func (o *offered) close() (err error) {
	for _, words := range []*[]uint64{&o.records, &o.bits} {
		if *words != nil {
			err = unix.MunmapPtr(unsafe.Pointer(&(*words)[0]), uintptr(8*len(*words)))
			*words = nil
		}
	}
	return err
}

// set writes a record, each word at once.
func (o *offered) set(record *objects.AgentOffering) error {
	b, err := binary.Append(nil, binary.NativeEndian, record)
	if err != nil {
		return err
	}
	at := o.records[int(record.Index)*offeringWords:]
	for i := range offeringWords {
		atomic.StoreUint64(&at[i], binary.NativeEndian.Uint64(b[8*i:]))
	}
	return nil
}

// bitsOf are the numbers of a service's bits: its port, and the end of its address.
func bitsOf(v topo.VIP) [2]int {
	a := v.Addr.As16()
	return [2]int{int(v.Port), 1<<16 + int(binary.BigEndian.Uint16(a[14:]))}
}

// add lets packets of a service out be looked at.
func (o *offered) add(v topo.VIP) {
	for _, i := range bitsOf(v) {
		atomic.OrUint64(&o.bits[i/64], 1<<(i%64))
	}
}

// keep leaves the bits of these services alone.
func (o *offered) keep(services []topo.Offering) {
	kept := make([]uint64, len(o.bits))
	for _, s := range services {
		for _, i := range bitsOf(s.VIP) {
			kept[i/64] |= 1 << (i % 64)
		}
	}
	for i, word := range kept {
		atomic.StoreUint64(&o.bits[i], word)
	}
}
