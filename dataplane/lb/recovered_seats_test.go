package lb_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// asked are the servers that a question visits, round by round, as long as the list comes back to the LB.
func asked(t *testing.T, r *rig.LB, p rig.Packet) (rounds [][]int) {
	t.Helper()
	out := r.Send(t, p.Frame())
	for out.Is(t, "a question", rig.XDPTX, nil, out.Reasons...); ; out = r.Send(t, out.Frame) {
		var servers []int
		last := netip.Addr{}
		for _, sid := range segmentsOf(out.Frame, false) {
			if last = sid; !rig.LbLocator.Contains(sid) {
				b := sid.As16()
				servers = append(servers, int(binary.BigEndian.Uint16(b[6:]))-0x1000)
			}
		}
		rounds = append(rounds, servers)
		if !rig.LbLocator.Contains(last) || len(rounds) > topo.MaxMembers {
			return rounds
		}
		out.Frame = arrivedAt(out.Frame, last, false)
	}
}

// claim is a server's signal that it has the flow of p.
func claim(server int, p rig.Packet, generation uint16) (frame []byte, answer rig.Packet) {
	answer = rig.Outward(81, wire.ACK)
	answer.Dst = p.Src
	from := func(r *rig.Route) { r.From = locatorOf(server) }
	return rig.SignalFrom(0, answer, wire.CreateStickiness, generation, from), answer
}

// TestRecoversSeats: in every mode that chooses among all servers, an LB that does not know a flow asks
// all of them by way of their agents; the owner's signal makes the entry, and the next packet, in
// `as`, counts the flow at its server, exactly once, also if the signal comes again.
func TestRecoversSeats(t *testing.T) {
	for _, d := range choosers() {
		for _, n := range []int{2, topo.MaxMembers} {
			t.Run(fmt.Sprintf("%v of %d", d, n), func(t *testing.T) { recoversSeat(t, rig.Hits{}, d, n) })
		}
	}
}

func testRecoversSeat(t *testing.T, seen rig.Hits) { recoversSeat(t, seen, topo.Lsq, 5) }

func recoversSeat(t *testing.T, seen rig.Hits, d topo.Dispatch, n int) {
	t.Helper()
	r := learner(t, seen, learned(n, mode(d), func(s *topo.Service) { s.Recovery = topo.AgentsRecovery }))
	p, owner := client(0, wire.ACK), n-1
	r.Send(t, p.Frame()).Is(t, "data", rig.XDPTX, nil, "recover")
	for range 2 {
		frame, answer := claim(owner, p, 77)
		r.Send(t, frame).Is(t, "signal", rig.XDPTX, rig.Unwrapped(answer), "stickiness_recovered")
		wantSeat(t, r, "signal", owner, 0, 0)
		sendTo(t, r, "the next packet", p, owner, "steer", "flow_seated")
		wantSeat(t, r, "the next packet", owner, 1, 0)
	}
	sendTo(t, r, "payload", payload(p), owner, "steer")
	wantRecount(t, r, 0)
	if d.Row().Choice == topo.LeastOfAll {
		wantTree(t, r)
	}
	if wrong, err := r.Recount(); err != nil || wrong != 0 {
		t.Errorf("%v: %d counts were wrong, %v", d, wrong, err)
	}
	sendTo(t, r, "FIN", client(0, wire.FIN|wire.ACK), owner, "steer")
	if took := wantSeat(t, r, "FIN", owner, 0, 0); len(took) != 0 {
		t.Errorf("%v: durations %v of a flow of unknown begin", d, took)
	}
	sendTo(t, r, "a new flow", client(1, wire.SYN), -1, "deliver", "flow_begun")
}

// TestRecoveredAsked: by rounds, a question visits every server once, whichever bucket the flow has,
// and different servers first.
func TestRecoveredAsked(t *testing.T) {
	const n = 30
	r := learner(t, rig.Hits{}, learned(n, func(s *topo.Service) { s.Recovery = topo.AgentsRecovery }))
	first := map[int]bool{}
	for i := range 40 {
		p := client(i, wire.ACK)
		p.Hop = 200
		all := slices.Concat(asked(t, r, p)...)
		first[all[0]] = true
		slices.Sort(all)
		if len(all) != n || len(slices.Compact(all)) != n {
			t.Errorf("flow %d asks %v, want %d servers, each once", i, all, n)
		}
	}
	if len(first) < 10 {
		t.Errorf("40 flows begin with the servers %v", first)
	}
}
