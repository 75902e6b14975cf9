package lb_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// silence is the time after which a server that was asked about a SYN and answered nothing has
// lost its flow.
const silence = 1342 * time.Millisecond // five units of the table's clock

// held marks the first segment of an offer: its server has an established flow.
func held(segments []netip.Addr) []netip.Addr {
	segments = slices.Clone(segments)
	segments[0] = rig.WithFlags(segments[0], wire.Held)
	return segments
}

// fromHeld is the nm of server i, about a SYN for its live flow.
func fromHeld(i int, p rig.Packet) []byte {
	return rig.SignalTo(i, p, rig.WithFlags(rig.SID(rig.LbLocator, wire.NotMine, wire.Generation(p.Seq)), wire.Held))
}

// testCandidatesOnly: a server that may not have a flow signals nothing about it, in any state
// of the flow: neither a server of another service nor one of this service that is not among
// the flow's candidates. A candidate of an earlier pool may, and so may the flow's own server.
func testCandidatesOnly(t *testing.T, seen rig.Hits) {
	other := rig.Hunting(2, 12, rig.At81)
	other.Servers = other.Servers[8:]
	r := rig.NewLB(t, seen, rig.Hunting(2, 8), other)
	p := rig.Inward(rig.HuntPort, wire.SYN)
	generation := wire.Generation(p.Seq)
	list := r.List(t, 0, p.Flow())
	outsider := 0
	for slices.Contains(list, outsider) {
		outsider++
	}
	stages := []struct {
		label string
		next  func()
	}{
		{"nothing", func() { r.Accepted(t, list[0], p) }},
		{"embryonic", func() { r.Confirm(t, p) }},
		{"flow", nil},
	}
	for _, stage := range stages {
		before := state(r, t, p.Flow())
		for _, server := range []int{outsider, 8, 11} {
			for label, frame := range map[string][]byte{
				"cs of a SYN-ACK": rig.SignalFrom(server, rig.SynAck(rig.HuntPort), wire.CreateStickiness, generation),
				"cs of data":      rig.SignalFrom(server, rig.Outward(rig.HuntPort, wire.ACK), wire.CreateStickiness, generation+1),
				"rms":             rig.SignalFrom(server, rig.Outward(rig.HuntPort, wire.RST), wire.RemoveStickiness, generation),
				"nm":              rig.SignalFrom(server, rig.Inward(rig.HuntPort, wire.ACK), wire.NotMine, generation),
				"nm of a SYN":     rig.SignalFrom(server, p, wire.NotMine, generation),
				"nm, held":        fromHeld(server, p),
			} {
				r.Send(t, frame).Is(t, stage.label+": "+label, rig.XDPDrop, nil, "drop_not_candidate")
			}
			if after := state(r, t, p.Flow()); after != before {
				t.Errorf("%s: server %d made %+v of %+v", stage.label, server, after, before)
			}
		}
		if stage.next != nil {
			stage.next()
		}
	}
	drained := rig.Hunting(2, 8)
	drained.Servers[list[0]].Weight = 0
	r.Reconfigure(t, drained, other)
	answer := rig.Outward(rig.HuntPort, wire.ACK)
	r.Send(t, rig.SignalFrom(list[0], answer, wire.CreateStickiness, generation)).
		Is(t, "its server drains", rig.XDPTX, rig.Unwrapped(answer), "stickiness_repeated")
	answer.Flags |= wire.FIN
	r.Send(t, rig.SignalFrom(list[0], answer, wire.RemoveStickiness, generation)).
		Is(t, "its server drains: FIN", rig.XDPTX, rig.Unwrapped(answer), "stickiness_removed")
	out := r.Send(t, rig.SignalFrom(list[0], rig.Inward(rig.HuntPort, wire.ACK), wire.NotMine, generation))
	out.Is(t, "its server drains: nm", rig.XDPTX, nil, "recover_returned", "stale_removed")
	answer.Flags = wire.ACK
	r.Send(t, rig.SignalFrom(list[0], answer, wire.CreateStickiness, generation)).
		Is(t, "no flow is left there", rig.XDPDrop, nil, "drop_not_candidate")
	drained.History = []topo.Version{{Version: 1, Servers: rig.Farm(8)}}
	r.Reconfigure(t, drained, other)
	r.Send(t, rig.SignalFrom(list[0], answer, wire.CreateStickiness, generation)).
		Is(t, "a candidate of an earlier pool", rig.XDPTX, rig.Unwrapped(answer), "stickiness_recovered")
}

// testCandidatesOfMany: the same in a bucket with more members than its record has room for.
func testCandidatesOfMany(t *testing.T, seen rig.Hits) {
	const servers, once = 30, 20
	r := rig.NewLB(t, seen, rig.Hunting(1, servers, func(s *topo.Service) {
		for i := range once {
			s.History = append(s.History, topo.Version{Version: once - i, Servers: rig.Farm(servers)[i : i+1]})
		}
	}))
	p := rig.Inward(rig.HuntPort, wire.SYN)
	list := r.List(t, 0, p.Flow())
	for i := range servers {
		want := "drop_not_candidate"
		if i < once || slices.Contains(list, i) {
			want = "stickiness_created"
		}
		out := r.Send(t, rig.SignalFrom(i, rig.SynAck(rig.HuntPort), wire.CreateStickiness, wire.Generation(p.Seq)))
		if !slices.Equal(out.Reasons, []string{want}) {
			t.Errorf("server %d: %v, want %s", i, out.Reasons, want)
		}
		r.Table.Put(t, p.Flow(), rig.Entry{})
	}
}

// testNoTakeover: no server takes an established flow of another, whatever SYNs came by: its own
// server is asked first, and as long as it answers, it alone gives the flow away. An older
// generation is as any other.
func testNoTakeover(t *testing.T, seen rig.Hits) {
	r := rig.NewLB(t, seen, rig.Hunting(3, 8))
	p := rig.Inward(rig.HuntPort, wire.SYN)
	list := r.List(t, 0, p.Flow())
	owner, thief := list[1], list[0]
	r.Learn(t, owner, p.Seq)
	forged := p
	forged.Seq -= 1 << 20
	steal := func(label string) {
		t.Helper()
		answer := forged.Reply(wire.SYN | wire.ACK)
		answer.Ack = forged.Seq + 1
		generation := wire.Generation(forged.Seq)
		r.Send(t, rig.SignalFrom(thief, answer, wire.CreateStickiness, generation)).Is(t, label+": SYN-ACK", rig.XDPDrop, nil, "drop_not_released")
		answer.Flags = wire.ACK
		r.Send(t, rig.SignalFrom(thief, answer, wire.CreateStickiness, generation)).
			Is(t, label+": data", rig.XDPTX, rig.Unwrapped(answer), "create_old_generation")
		if e, known := r.Flow(t, p.Flow()); !known || int(e.Server) != owner || e.Generation != wire.Generation(p.Seq) {
			t.Errorf("%s: the flow is %+v, %v", label, e, known)
		}
	}
	steal("unasked")
	rest := without(list, owner)
	offered := rig.Sent(forged, rig.HopMAC(owner), held(rig.Offer(forged, 0, append([]int{owner}, rest...)...)))
	r.Send(t, forged.Frame()).Is(t, "forged SYN", rig.XDPTX, offered, "offer_again")
	steal("at once")
	r.At(t, r.Now+silence-2*rig.Unit)
	steal("before its server could answer")
	alive := rig.Sent(forged, rig.HopMAC(owner), rig.Ask(wire.ConnectForce, wire.Generation(forged.Seq), owner))
	r.Send(t, fromHeld(owner, forged)).Is(t, "its server is alive", rig.XDPTX, alive, "offer_challenge")
	for range 3 {
		r.At(t, r.Now+30*time.Second)
		steal("its server was alive")
	}
	back := rig.Sent(forged, rig.HopMAC(thief), rig.Ask(wire.ConnectForce, wire.Generation(forged.Seq), thief))
	r.Send(t, fromHeld(thief, forged)).Is(t, "alive, by another", rig.XDPTX, back, "offer_challenge")
	r.Remembers = true
	for times := range 6 { // from the third on its server is not asked
		r.Send(t, forged.Frame())
		if times < 2 {
			r.Send(t, fromHeld(owner, forged))
		}
		r.At(t, r.Now+silence)
		steal("many SYNs")
	}
}

// testReleased: a server that does not take a SYN of its flow's ports releases the flow, and the
// SYN is offered to the others as a new one; the flow of a server that is silent is open to others a
// second later.
func testReleased(t *testing.T, seen rig.Hits) {
	r := rig.NewLB(t, seen, rig.Hunting(3, 8))
	p := rig.Inward(rig.HuntPort, wire.SYN)
	list := r.List(t, 0, p.Flow())
	r.Learn(t, list[0], p.Seq)
	again := p
	again.Seq += 1 << 20
	generation := wire.Generation(again.Seq)
	r.Send(t, again.Frame())
	returned := again
	returned.Hop--
	rest := without(list, list[0])
	want := rig.Sent(returned, rig.HopMAC(rest[0]), rig.Offer(again, 0, rest...))
	r.Send(t, rig.SignalFrom(list[0], returned, wire.NotMine, generation)).Is(t, "released", rig.XDPTX, want, "offer_returned", "stale_removed")
	if e, known := r.Flow(t, p.Flow()); known {
		t.Fatalf("the flow is still %+v", e)
	}
	r.Accepted(t, rest[1], again)
	r.Confirm(t, again)
	r.Send(t, rig.SignalFrom(rest[1], returned, wire.NotMine, generation)).
		Is(t, "of this connection", rig.XDPTX, nil, "offer_returned") // a SYN that comes late removes nothing
	if e, _ := r.Flow(t, p.Flow()); int(e.Server) != rest[1] {
		t.Errorf("the flow is %+v, want server %d", e, rest[1])
	}

	r.Send(t, p.Frame()) // the ports a third time; rest[1] is down
	answer := rig.SynAck(rig.HuntPort)
	r.Send(t, rig.SignalFrom(list[0], answer, wire.CreateStickiness, wire.Generation(p.Seq))).
		Is(t, "at once", rig.XDPDrop, nil, "drop_not_released")
	r.At(t, r.Now+silence)
	r.Accepted(t, list[0], p)
	r.Confirm(t, p)
	if e, _ := r.Flow(t, p.Flow()); int(e.Server) != list[0] {
		t.Errorf("the flow is %+v, want server %d", e, list[0])
	}
}
