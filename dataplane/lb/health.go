package lb

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"proffer/dataplane"
	"proffer/dataplane/objects"
	"proffer/topo"
)

// health is the LB's observation of servers, and the servers that are down (bpf/lb/health.h).
type health struct {
	counts *ebpf.Map
	cpus   int
	marks  map[uint64]uint16 // servers that are down, or doubted, by identity (enum delivery)
	probes []uint64          // by slot
	mapped [][]byte
}

func newHealth(counts, probes *ebpf.Map) (*health, error) {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, fmt.Errorf("count the CPUs: %w", err)
	}
	h := &health{counts: counts, cpus: cpus}
	if h.probes, err = h.words(probes); err != nil {
		return nil, errors.Join(err, h.close())
	}
	return h, nil
}

// words maps an array of 64-bit words into memory.
func (h *health) words(m *ebpf.Map) ([]uint64, error) {
	size := int(m.MaxEntries() * m.ValueSize())
	memory, err := unix.Mmap(m.FD(), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s into memory: %w", m, err)
	}
	h.mapped = append(h.mapped, memory)
	return unsafe.Slice((*uint64)(unsafe.Pointer(&memory[0])), size/8), nil
}

func (h *health) close() (err error) {
	if h == nil {
		return nil
	}
	for _, memory := range h.mapped {
		err = errors.Join(err, unix.Munmap(memory))
	}
	return err
}

// read sums the counts of all CPUs for the servers with the first n numbers.
func (h *health) read(n int) ([]dataplane.Health, error) {
	numbers, values := make([]uint32, n), make([]objects.LBHealth, n*h.cpus)
	var cursor ebpf.MapBatchCursor
	read, err := h.counts.BatchLookup(&cursor, numbers, values, nil)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil, fmt.Errorf("read how servers answer: %w", err)
	}
	all := make([]dataplane.Health, n)
	for i, number := range numbers[:read] {
		for _, c := range values[i*h.cpus : (i+1)*h.cpus] {
			sum := &all[number]
			sum.Offered += c.Offered
			sum.Repeated += c.Repeated
			sum.Answered += c.Answered
			sum.Unreachable += c.Unreachable
			sum.Alive += c.Alive
		}
	}
	return all, nil
}

// Health reads how servers answer. A server that has no number yet has no counts.
func (l *LB) Health(servers []topo.Server) ([]dataplane.Health, error) {
	l.mu.Lock()
	numbers, reached := l.numbers.ofPool(servers), make([]bool, len(servers))
	for i := range servers {
		reached[i] = l.reaches(servers[i])
	}
	l.mu.Unlock()
	n := 0
	for _, number := range numbers {
		if number != noServer {
			n = max(n, int(number)+1)
		}
	}
	all := make([]dataplane.Health, len(servers))
	if n == 0 {
		return all, nil
	}
	counted, err := l.health.read(n)
	if err != nil {
		return nil, err
	}
	for i, number := range numbers {
		if number != noServer {
			all[i] = counted[number]
			all[i].Reached = reached[i]
		}
	}
	return all, nil
}

// SetDown names the servers that are down: repeated SYNs and datagrams leave them; and those that have left a
// check without an answer: no datagram asks them about its flow.
func (l *LB) SetDown(servers, doubted []topo.Server) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	marks := map[uint64]uint16{}
	for i := range doubted {
		marks[objects.ServerBits(&doubted[i])] = objects.DeliveryDoubted
	}
	for i := range servers {
		marks[objects.ServerBits(&servers[i])] = objects.DeliveryDown
	}
	if maps.Equal(marks, l.health.marks) {
		return nil
	}
	l.health.marks = marks
	return l.writeServers(l.servers)
}

// Probe has the next suitable new connection of a service offered to a server that is down; without
// an address to none.
func (l *LB) Probe(vip topo.VIP, server netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, known := l.services[vip]
	if !known {
		return
	}
	word := uint64(0)
	if i := slices.IndexFunc(at.svc.Servers, func(s topo.Server) bool { return s.At() == server }); i >= 0 {
		word = l.probeOf(&at.svc.Service, at.svc.Servers[i])
	}
	atomic.StoreUint64(&l.health.probes[at.record.Table], word)
}

// probeOf is a bucket of one server, with its seat if it has any.
func (l *LB) probeOf(svc *topo.Service, server topo.Server) uint64 {
	number := l.numbers.ofPool([]topo.Server{server})[0]
	if number == noServer {
		return 0
	}
	word := uint64(number) | 1<<objects.ChoicesShift | 1<<objects.MembersShift
	only := topo.Service{VIP: svc.VIP, Servers: []topo.Server{server}}
	if _, seats := l.seatsOf(&only); len(seats) > 0 && seats[0] >= 0 {
		word |= uint64(1+seats[0]) << objects.SeatShift
	}
	return word
}

// forget removes the probe beside a table.
func (h *health) forget(slot uint32) { atomic.StoreUint64(&h.probes[slot], 0) }
