package lb

import (
	"fmt"
	"slices"
	"sync/atomic"

	"proffer/dataplane/objects"
	"proffer/plan"
	"proffer/policy"
	"proffer/topo"
)

// seating has the seat of each server of a service, by the server's number.
type seating map[uint32]int

// bits are those of a bucket with this last member (SEAT_SHIFT of bpf/lb/service.h).
func (s seating) bits(member uint16) uint64 {
	seat, known := s[uint32(member)]
	if !known {
		return 0
	}
	return uint64(1+seat) << objects.SeatShift
}

// at lists the seats of servers, in their order; -1: the server has none.
func (s seating) at(servers []topo.Server, n *numbers) []int {
	at := make([]int, len(servers))
	for i := range servers {
		number, known := n.known[objects.ServerBits(&servers[i])]
		seat, seated := s[number]
		if at[i] = seat; !known || !seated {
			at[i] = -1
		}
	}
	return at
}

// seat gives servers seats: those that they have, or the first without a flow that counts. If there are
// too few, as flows of servers that left have not ended, the last servers wait (seatWaiting): they
// get no new flows yet.
func seat(own *objects.LBTally, servers []topo.Server, n *numbers) seating {
	seats, wanted := seating{}, map[uint32]bool{}
	for _, s := range servers {
		wanted[n.of(s)] = true
	}
	for i := range own.Seat {
		s := &own.Seat[i]
		if uint32(i) < own.Seats && wanted[s.Server] {
			seats[s.Server] = i
			continue
		}
		atomic.StoreUint32(&s.Inverse, policy.NoInverse)
		s.Server = noServerNumber
	}
	next, top := 0, uint32(0)
	for _, s := range servers {
		number := n.of(s)
		at, seated := seats[number]
		for ; !seated && next < len(own.Seat); next++ {
			if free := &own.Seat[next]; isFree(free) {
				*free = objects.LBSeat{Server: number}
				at, seated = next, true
				seats[number] = at
			}
		}
		if seated {
			top = max(top, uint32(at)+1)
		}
	}
	atomic.StoreUint32(&own.Seats, top)
	return seats
}

// snapshot returns a function that makes the tally of a service as it is now, but for the counts of flows:
// the servers of now have their seats and weights again.
func (t *tallies) snapshot(svc *plan.Service) (restore func() error) {
	number, known := t.number[svc.VIP]
	if !known && svc.Dispatch.Seats() {
		number, _ = t.numberFor(svc.VIP) // that it is about to take
	}
	if number == 0 {
		return func() error { return nil }
	}
	own := &t.all[number]
	was := *own
	return func() error {
		if delete(t.number, svc.VIP); known {
			t.number[svc.VIP] = number
		}
		own.Key, own.Seats, own.Ages, own.Ranked = was.Key, was.Seats, was.Ages, was.Ranked
		for i := range own.Seat {
			s, before := &own.Seat[i], &was.Seat[i]
			if s.Server != before.Server {
				s.Begun, s.Lived, s.Ended, s.Sample = before.Begun, before.Lived, before.Ended, before.Sample
				s.Server = before.Server
			}
			atomic.StoreUint64(&s.Reported, before.Reported)
			atomic.StoreUint32(&s.Inverse, before.Inverse)
		}
		for i := range own.Row {
			atomic.StoreUint64(&own.Row[i], was.Row[i])
		}
		atomic.StoreUint32(&own.Rows, was.Rows)
		atomic.StoreUint32(&own.Counting, was.Counting)
		return t.renewAll(number)
	}
}

// isFree reports whether a server may take a seat: none has it, and no flow counts there.
func isFree(s *objects.LBSeat) bool {
	return s.Server == noServerNumber && atomic.LoadUint64(&s.Count[0])+atomic.LoadUint64(&s.Count[1]) == 0
}

// seatWaiting gives seats to the servers of a service that wait for a seat, as far as there are by now.
// The service's table is made again, as it names seats.
func (l *LB) seatWaiting(vip topo.VIP) error {
	svc := l.state.Service(vip)
	if svc == nil {
		return nil
	}
	own, at := l.seatsOf(&svc.Service)
	if own == nil || !slices.Contains(at, -1) || !slices.ContainsFunc(own.Seat[:], func(s objects.LBSeat) bool { return isFree(&s) }) {
		return nil
	}
	if err := l.writeServices([]plan.Step{{Verb: plan.ReplaceTable, Service: svc.Name, VIP: vip}}, l.state); err != nil {
		return fmt.Errorf("seat servers that wait: %w", err)
	}
	return nil
}

// seatsOf finds the tally of a service, and the seat of each of its servers, or -1.
func (l *LB) seatsOf(svc *topo.Service) (own *objects.LBTally, at []int) {
	number, known := l.tallies.number[svc.VIP]
	if !known {
		return nil, nil
	}
	own = &l.tallies.all[number]
	seats := seating{}
	for i := range own.Seat[:own.Seats] {
		seats[own.Seat[i].Server] = i
	}
	return own, seats.at(svc.Servers, l.numbers)
}
