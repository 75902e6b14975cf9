package lb

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"proffer/dataplane"
	"proffer/dataplane/internal/plane"
	"proffer/dataplane/objects"
	"proffer/plan"
	"proffer/policy"
	"proffer/topo"
)

// tallies are the counts of flows at the servers of services that choose among all (bpf/lb/occupancy.h),
// which outlive the daemon with the flows. A server keeps its seat as long as a flow counts there.
type tallies struct {
	memory []byte
	all    []objects.LBTally // in memory
	renew  *ebpf.Program
	number map[topo.VIP]uint8
	read   map[*objects.LBSeat]uint32 // durations that were read, of each seat
}

// noServerNumber stands in a seat without a server.
const noServerNumber = math.MaxUint32

func newTallies(m *ebpf.Map, renew *ebpf.Program) (*tallies, error) {
	size := int(m.MaxEntries()) * int(unsafe.Sizeof(objects.LBTally{}))
	memory, err := unix.Mmap(m.FD(), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the tallies into memory: %w", err)
	}
	return &tallies{
		memory: memory,
		all:    unsafe.Slice((*objects.LBTally)(unsafe.Pointer(&memory[0])), m.MaxEntries()),
		renew:  renew,
		number: map[topo.VIP]uint8{},
		read:   map[*objects.LBSeat]uint32{},
	}, nil
}

func (t *tallies) close() error {
	if t == nil {
		return nil
	}
	return unix.Munmap(t.memory)
}

// take gives a service that chooses among all of its servers a tally, and each of them a seat. New
// flows go to all servers that have a weight, by the speeds that are known.
func (t *tallies) take(svc *plan.Service, n *numbers) (number uint8, seats seating, err error) {
	if !svc.Dispatch.Seats() {
		t.leave(svc.VIP)
		return 0, nil, nil
	}
	number, err = t.numberFor(svc.VIP)
	if err != nil {
		return 0, nil, err
	}
	own := &t.all[number]
	if key := objects.ServiceKey(svc.VIP); own.Key != key {
		own.Key, own.Counting = key, uint32(topo.AllCounting)
		own.Walk = rand.Uint32() >> 1 // LBs do not walk in step
		own.Turn = turnsAtMost + 1    // nor take turns in step
	}
	t.number[svc.VIP] = number
	seats = seat(own, svc.Servers, n)
	t.begin(own, svc, seats, n)
	return number, seats, t.renewAll(number)
}

// begin gives a service's servers the weights that are known: those learned by an earlier daemon,
// or those of the configuration.
func (t *tallies) begin(own *objects.LBTally, svc *plan.Service, seats seating, n *numbers) {
	row := svc.Dispatch.Row()
	w, at := svc.Weights(), seats.at(svc.Servers, n)
	inverses := policy.Inverses(w)
	for i := range svc.Servers {
		if at[i] < 0 {
			continue
		}
		follow(&own.Seat[at[i]], row.Choice)
		inverse := &own.Seat[at[i]].Inverse
		if row.Weights == topo.FromDurations && w[i] > 0 && atomic.LoadUint32(inverse) != policy.NoInverse {
			continue
		}
		atomic.StoreUint32(inverse, inverses[i])
	}
	deal(own, at, row.Choice.Shares(w))
	own.Ranked, own.Ages = flag(row.Choice == topo.LeastOfAll), flag(row.Ages)
	flood := topo.Counting(atomic.LoadUint32(&own.Counting)) == topo.FloodCounting
	atomic.StoreUint32(&own.Counting, uint32(row.CountingIn(flood)))
}

// follow has a seat without a report count only those flows that begin from now on, where the choice is by
// reports, and else forgets the report.
func follow(s *objects.LBSeat, choice topo.Choice) {
	switch {
	case !choice.Queues():
		atomic.StoreUint64(&s.Reported, 0)
	case atomic.LoadUint64(&s.Reported) == 0:
		atomic.StoreUint64(&s.Reported, uint64(atomic.LoadUint32(&s.Begun)))
	}
}

func flag(is bool) uint32 {
	if is {
		return 1
	}
	return 0
}

// deal deals new flows to the seats at, by shares, which a choice by scores has not; a server
// without a seat gets no flows.
func deal(own *objects.LBTally, at []int, shares []float64) {
	shares = slices.Clone(shares)
	for i := range shares {
		if at[i] < 0 {
			shares[i] = 0
		}
	}
	rows := policy.Alias(shares)
	for i, r := range rows {
		atomic.StoreUint64(&own.Row[i], objects.AliasRow(uint16(at[r.Own]), uint16(at[r.Other]), r.Part))
	}
	atomic.StoreUint32(&own.Rows, uint32(len(rows)))
}

// numberFor is the number of a service's tally: that which it has, or that an earlier daemon gave
// it, or a free tally, if possible a tally in which no flow counts.
func (t *tallies) numberFor(vip topo.VIP) (uint8, error) {
	if number, known := t.number[vip]; known {
		return number, nil
	}
	used := map[uint8]bool{}
	for _, number := range t.number {
		used[number] = true
	}
	best, most := 0, 0
	for i := 1; i < len(t.all); i++ {
		if fit := fitness(&t.all[i], vip); fit > most && !used[uint8(i)] {
			best, most = i, fit
		}
	}
	if best == 0 {
		return 0, fmt.Errorf("no room for another service that chooses among all of its servers: there are %d", topo.MaxLearned)
	}
	return uint8(best), nil
}

// fitness ranks the tallies that no service has now: that of this service before, and empty tallies.
func fitness(own *objects.LBTally, vip topo.VIP) int {
	switch {
	case own.Key == objects.ServiceKey(vip):
		return 3
	case isEmpty(own):
		return 2
	}
	return 1
}

func isEmpty(own *objects.LBTally) bool {
	return !slices.ContainsFunc(own.Seat[:], func(s objects.LBSeat) bool { return s.Count[0]+s.Count[1] != 0 })
}

// leave ends new flows by the tally of a service, which has it again if it comes back, as long as no
// other service needs it.
func (t *tallies) leave(vip topo.VIP) {
	number, known := t.number[vip]
	if !known {
		return
	}
	delete(t.number, vip)
	own := &t.all[number]
	for i := range own.Seat {
		atomic.StoreUint32(&own.Seat[i].Inverse, policy.NoInverse)
	}
}

// renewAll carries the counts and weights of all seats into the tree, if the service has a tree. Until it
// has ended, packets meet some of them.
func (t *tallies) renewAll(number uint8) error {
	own := &t.all[number]
	if own.Ranked == 0 {
		return nil
	}
	all := objects.LBSweep{From: uint32(number), Count: uint32(len(own.Seat))}
	if atomic.LoadUint32(&own.Turn) > turnsAtMost {
		atomic.StoreUint32(&own.Turn, 0)
		all.Afresh, all.First = rand.Uint32N(all.Count)|1, rand.Uint32N(all.Count)
	}
	if err := plane.RunRecord(t.renew, &all); err != nil {
		return fmt.Errorf("renew the tree of a tally: %w", err)
	}
	return nil
}

// owe makes a seat the best until its count changes; without a tree, the better of every pair until
// its inverse is written again.
func (t *tallies) owe(number uint8, seat int) error {
	if own := &t.all[number]; own.Ranked == 0 {
		atomic.StoreUint32(&own.Seat[seat].Inverse, 1)
		return nil
	}
	one := objects.LBSweep{From: uint32(number), First: uint32(seat), Count: 1, Owed: 1}
	if err := plane.RunRecord(t.renew, &one); err != nil {
		return fmt.Errorf("owe a server a flow: %w", err)
	}
	return nil
}

// turnsAtMost is half of the turns that a leaf has bits for: as many are left until the next renewal.
const turnsAtMost = 1 << 15

// dateUnit is the unit of durations in a seat.
const dateUnit = time.Duration(1) << objects.DateShift

// durations are those that were sampled since the last call.
func (t *tallies) durations(s *objects.LBSeat) (all []time.Duration) {
	ended := atomic.LoadUint32(&s.Ended)
	fresh := min(ended-t.read[s], objects.SeatSamples, ended)
	t.read[s] = ended
	for i := ended - fresh; i != ended; i++ {
		all = append(all, time.Duration(s.Sample[i%objects.SeatSamples])*dateUnit)
	}
	return all
}

// counted are the established and the embryonic flows of a seat.
func counted(s *objects.LBSeat) (established, embryonic uint32) {
	sum := atomic.LoadUint64(&s.Count[0]) + atomic.LoadUint64(&s.Count[1])
	few := int64(int32(uint32(sum)))
	return uint32(max(0, (int64(sum)-few)>>32)), uint32(max(0, few))
}

// Seats reads the seats of the servers of a service that chooses among all of them.
func (l *LB) Seats(svc *topo.Service) ([]dataplane.Seat, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own, at := l.seatsOf(svc)
	if own == nil {
		return nil, fmt.Errorf("service %s has no tally", svc.Name)
	}
	all := make([]dataplane.Seat, len(svc.Servers))
	for i, server := range svc.Servers {
		if all[i].Waits = at[i] < 0; all[i].Waits {
			continue
		}
		s := &own.Seat[at[i]]
		all[i] = dataplane.Seat{
			Begun: atomic.LoadUint32(&s.Begun), Lived: atomic.LoadUint32(&s.Lived), Durations: l.tallies.durations(s),
			Inverse: atomic.LoadUint32(&s.Inverse), Ready: l.reaches(server),
		}
		all[i].Established, all[i].Embryonic = counted(s)
	}
	return all, nil
}

// Spread spreads the new flows of a service that chooses among all of its servers.
func (l *LB) Spread(svc *topo.Service, spread dataplane.Spread) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.seatWaiting(svc.VIP)
	own, at := l.seatsOf(svc)
	if own == nil {
		return fmt.Errorf("service %s has no tally", svc.Name)
	}
	for i, seat := range at {
		if seat >= 0 {
			atomic.StoreUint32(&own.Seat[seat].Inverse, spread.Inverses[i])
		}
	}
	deal(own, at, spread.Shares)
	atomic.StoreUint32(&own.Counting, uint32(spread.Counting))
	atomic.StoreUint32(&own.Silent, ticksOf(spread.Silent))
	number := l.tallies.number[svc.VIP]
	err = errors.Join(err, l.tallies.renewAll(number))
	for _, i := range spread.Owed {
		if at[i] >= 0 {
			err = errors.Join(err, l.tallies.owe(number, at[i]))
		}
	}
	return err
}

// ticksOf is a time in the unit of the dates of entries, one more as the first is no whole one.
func ticksOf(d time.Duration) uint32 {
	if d == 0 {
		return 0
	}
	return uint32(min(d>>seenShift, topo.MaxAge>>seenShift)) + 1
}

// seenShift is SEEN_SHIFT of bpf/lb/flow_table.h.
const seenShift = 28
