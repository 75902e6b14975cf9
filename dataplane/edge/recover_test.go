package edge_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"proffer/dataplane/edge"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// asks parses a question that went to a node.
func (b *bench) asks(t *testing.T, label string, out rig.Outcome, packet []byte, server int, reasons ...string) wire.Tunnel {
	t.Helper()
	out.Is(t, label, redirect, nil, append(reasons, "recover")...)
	tunnel, inside, err := wire.ParseTunnel(out.Frame)
	if err != nil {
		t.Fatalf("%s: %v", label, err)
	}
	if want := (wire.Instance{Server: server}); tunnel.Instance != want || tunnel.Message != wire.MessageRecover || !slices.Equal(inside, packet) || tunnel.LinkTo != nodeMAC(server) {
		t.Fatalf("%s: asks in %+v", label, tunnel)
	}
	return tunnel
}

// owned is a node's answer that it has the flow at a core.
func owned(asked wire.Tunnel, core int) wire.Tunnel {
	asked = back(asked)
	asked.Message, asked.Instance = wire.MessageOwned, wire.Instance{Server: asked.Instance.Server, Core: core, Service: service}
	return asked
}

// notMine is a node's answer that it has not.
func notMine(asked wire.Tunnel) wire.Tunnel {
	asked = back(asked)
	asked.Message, asked.Instance.Update = wire.MessageNotMine, false
	return asked
}

// testRecover: a segment without an entry asks the nodes in the order of their numbers, each once. The
// flow gets the instance of its owner, for both directions; without an owner it begins.
func testRecover(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen)
	for _, f := range []flow{from4("tcp", 50), from6("tcp", 50)} {
		asked := b.asks(t, "first", b.fromClient(t, f.later()), f.later(), 1)
		second := b.asks(t, "second", b.fromNode(t, notMine(asked), f.later()), f.later(), 200)
		to := b.tunnelled(t, "owned", b.fromNode(t, owned(second, 0), f.later()), f.later(), "recovered", "steer")
		if to.Instance.Server != 200 {
			t.Errorf("the flow of node 200 went to %+v", to.Instance)
		}
		for _, p := range []struct {
			from func(*testing.T, []byte) rig.Outcome
			flow flow
		}{{b.fromClient, f}, {b.fromWorld, f.reversed()}} {
			if again := b.tunnelled(t, "known", p.from(t, p.flow.later()), p.flow.later(), "steer"); again.Instance != to.Instance {
				t.Errorf("the next packet went to %+v, not to %+v", again.Instance, to.Instance)
			}
		}
		other := f
		other.from = netip.AddrPortFrom(f.from.Addr(), 51)
		other = other.reversed() // from the world
		asked = b.asks(t, "first", b.fromWorld(t, other.later()), other.later(), 1)
		second = b.asks(t, "second", b.fromNode(t, notMine(asked), other.later()), other.later(), 200)
		begun := b.tunnelled(t, "unowned", b.fromNode(t, notMine(second), other.later()), other.later(), "unowned", "flow_tried", "steer")
		if out := b.fromNode(t, admitted(begun), other.later()); out.Action == rig.XDPDrop || !slices.Contains(out.Reasons, "flow_begun") {
			t.Fatalf("behind its chain: %v", out.Reasons)
		}
		late := b.tunnelled(t, "asked before, and settled meanwhile", b.fromNode(t, notMine(asked), other.later()), other.later(), "steer")
		if late.Instance != begun.Instance {
			t.Errorf("a packet that was asked about went to %+v, not to %+v", late.Instance, begun.Instance)
		}
	}
	marked := from4("tcp", 52)
	asked := notMine(b.asks(t, "marked", b.fromClient(t, marked.later()), marked.later(), 1))
	asked.Class = 3
	b.fromNode(t, asked, marked.later()).Is(t, "congested", rig.XDPDrop, nil, "drop_congested")
}

// testRecoverNAT: a packet of the world to a public address has an owner or is unsolicited. The owner's
// changed packet tells the tuple before, too.
func testRecoverNAT(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen)
	for _, kind := range []string{"tcp", "udp"} {
		f := from4(kind, 60)
		changed := natted(f, 40000)
		answer := changed.reversed().later()
		asked := b.asks(t, kind, b.fromWorld(t, answer), answer, 1)
		to := b.tunnelled(t, kind, b.fromNode(t, owned(asked, 1), answer), answer, "recovered", "steer")
		b.fromNode(t, back(to), f.reversed().packet()).Is(t, "changed back", redirect, nil, "update_learned")
		if again := b.tunnelled(t, kind, b.fromClient(t, f.later()), f.later(), "steer"); again.Instance != to.Instance {
			t.Errorf("%s: the client's packet went to %+v, not to %+v", kind, again.Instance, to.Instance)
		}
		stray := natted(f, 41000).reversed().later()
		asked = b.asks(t, "stray", b.fromWorld(t, stray), stray, 1)
		asked = b.asks(t, "stray", b.fromNode(t, notMine(asked), stray), stray, 200)
		b.fromNode(t, notMine(asked), stray).Is(t, "stray", rig.XDPDrop, nil, "drop_unsolicited", "unowned")
	}
	f := from4("udp", 61)
	tooBig := rig.TooBig(rig.Packet{Protocol: topo.UDP, Src: f.from, Dst: f.to, Hop: 9}, 1000)
	asked := b.asks(t, "packet too big", b.fromWorld(t, tooBig.Ip()), tooBig.Ip(), 1)
	asked = b.asks(t, "packet too big", b.fromNode(t, notMine(asked), tooBig.Ip()), tooBig.Ip(), 200)
	b.fromNode(t, notMine(asked), tooBig.Ip()).Is(t, "packet too big of no flow", rig.XDPDrop, nil, "drop_unsolicited", "unowned")
}

// testRecoverMoved: a flow of a node that is gone may have got another instance by another LB.
func testRecoverMoved(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen)
	must(t, b.SetWeights(service, []float64{1, 0, 0}))
	f := from4("udp", 70)
	b.tunnelled(t, "begun", b.fromClient(t, f.packet()), f.packet(), "flow_begun", "steer")
	must(t, b.SetNextHop(1, topo.MAC{}))
	asked := b.asks(t, "moved", b.fromClient(t, f.packet()), f.packet(), 200)
	to := b.tunnelled(t, "moved", b.fromNode(t, owned(asked, 0), f.packet()), f.packet(), "recovered", "steer")
	if again := b.tunnelled(t, "after", b.fromWorld(t, f.reversed().packet()), f.reversed().packet(), "steer"); again.Instance != to.Instance {
		t.Errorf("to %+v, then to %+v", to.Instance, again.Instance)
	}
	must(t, b.SetNextHop(200, topo.MAC{}))
	b.fromNode(t, owned(asked, 0), from4("udp", 71).packet()).Is(t, "another packet", rig.XDPDrop, nil, "drop_other_packet")
	b.fromNode(t, owned(asked, 0), f.packet()).Is(t, "gone, too", rig.XDPDrop, nil, "drop_no_instance")
}

// testRecoverAll: with recovery of all, packets that may begin a flow are questions, too; SYNs to public
// addresses are not.
func testRecoverAll(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen, func(cfg *topo.EdgeLB) { cfg.RecoverAll = true })
	for _, f := range []flow{from4("tcp", 80), from6("udp", 80), {"echo", netip.AddrPortFrom(client4, 9), netip.AddrPortFrom(remote4, 9)}} {
		asked := b.asks(t, f.kind, b.fromClient(t, f.packet()), f.packet(), 1)
		asked = b.asks(t, f.kind, b.fromNode(t, notMine(asked), f.packet()), f.packet(), 200)
		b.tunnelled(t, f.kind, b.fromNode(t, notMine(asked), f.packet()), f.packet(), "unowned", "flow_begun", "steer")
	}
	unsolicited := flow{"tcp", netip.AddrPortFrom(remote4, 80), netip.AddrPortFrom(public, 1234)}
	b.fromWorld(t, unsolicited.packet()).Is(t, "to a public address", rig.XDPDrop, nil, "drop_unsolicited")
}

// testRecoverLimits: questions above the limit of their kind are not asked: a datagram begins a flow, a
// segment is dropped.
func testRecoverLimits(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen, func(cfg *topo.EdgeLB) { cfg.RecoverAll = true })
	b.spend(t)
	b.tunnelled(t, "datagram", b.fromClient(t, from4("udp", 81).packet()), from4("udp", 81).packet(), "unasked", "flow_begun", "steer")
	b.fromClient(t, from4("tcp", 81).later()).Is(t, "segment", rig.XDPDrop, nil, "drop_limit_recover")
	b.fromWorld(t, natted(from4("udp", 82), 40000).reversed().packet()).Is(t, "to a public address", rig.XDPDrop, nil, "drop_limit_recover")
	b.at(t, b.now+time.Second)
	b.asks(t, "a second later", b.fromClient(t, from4("tcp", 81).later()), from4("tcp", 81).later(), 1)
}

// testBadAnswers: answers that no node gave, or not to this LB's question, change nothing.
func testBadAnswers(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen)
	f := from4("tcp", 90)
	asked := b.asks(t, "asked", b.fromClient(t, f.later()), f.later(), 1)
	for _, c := range []struct {
		reason string
		answer wire.Tunnel
		change func(*wire.Tunnel)
	}{
		{"drop_stranger", owned(asked, 0), func(w *wire.Tunnel) { w.From = netip.MustParseAddr("192.0.2.66") }},
		{"drop_stranger", notMine(asked), func(w *wire.Tunnel) { w.Instance.Server = 200 }},
		{"drop_impossible_id", owned(asked, 2), func(*wire.Tunnel) {}},
		{"drop_impossible_id", owned(asked, 0), func(w *wire.Tunnel) { w.Instance.Service = 6 }},
		{"drop_impossible_id", owned(asked, 0), func(w *wire.Tunnel) { w.Instance.Update = true }},
		{"drop_impossible_id", notMine(asked), func(w *wire.Tunnel) { w.Instance.Core = 1 }},
		{"drop_impossible_id", notMine(asked), func(w *wire.Tunnel) { w.Instance.Update = true }},
		{"drop_other_packet", owned(asked, 0), func(w *wire.Tunnel) { w.Flow++ }},
		{"drop_other_packet", notMine(asked), func(w *wire.Tunnel) { w.Flow++ }},
	} {
		c.change(&c.answer)
		b.fromNode(t, c.answer, f.later()).Is(t, c.reason, rig.XDPDrop, nil, c.reason)
	}
	b.fromNode(t, owned(asked, 0), f.later()[:30]).Is(t, "cut short", rig.XDPDrop, nil, "drop_malformed")
	transit := flow{"tcp", netip.AddrPortFrom(remote4, 1), netip.AddrPortFrom(remote4, 2)}
	foreign := owned(asked, 0)
	foreign.Flow = transit.hash()
	b.fromNode(t, foreign, transit.later()).Is(t, "of no service", rig.XDPDrop, nil, "drop_other_packet")
	if n := b.flows(t); n != 0 {
		t.Errorf("%d entries after bad answers", n)
	}
}

// testEarlierFlow: a tuple that another LB began again, at another instance, takes the place of a flow
// that had no packet for a second, and not of one that lives.
func testEarlierFlow(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen)
	must(t, b.SetWeights(service, []float64{1, 0, 0}))
	f := from4("tcp", 95)
	b.tunnelled(t, "earlier", b.fromClient(t, f.packet()), f.packet(), "flow_begun", "steer")
	answer := natted(f, 40000).reversed().later()
	asked := b.asks(t, "later", b.fromWorld(t, answer), answer, 1)
	to := b.tunnelled(t, "later", b.fromNode(t, owned(asked, 1), answer), answer, "recovered", "steer")
	b.fromNode(t, back(to), f.reversed().packet()).Is(t, "while it lives", rig.XDPDrop, nil, "drop_conflict")
	b.at(t, b.now+2*time.Second)
	b.fromNode(t, back(to), f.reversed().packet()).Is(t, "a second later", redirect, nil, "update_known")
	g := from4("tcp", 96)
	must(t, b.SetWeights(service, []float64{0, 0, 1}))
	b.tunnelled(t, "earlier", b.fromClient(t, g.packet()), g.packet(), "flow_begun", "steer")
	must(t, b.SetNextHop(200, topo.MAC{}))
	b.fromNode(t, back(to), g.reversed().packet()).Is(t, "of a node that is gone", redirect, nil, "update_known")
	if again := b.tunnelled(t, "after", b.fromClient(t, f.later()), f.later(), "steer"); again.Instance != to.Instance {
		t.Errorf("the client's packet went to %+v, not to %+v", again.Instance, to.Instance)
	}
}

// testProbe: an answer to a probe ends at the LB, which notes when a node answered last.
func testProbe(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen)
	answered := func(server int) uint64 {
		t.Helper()
		n, err := b.Answered(server)
		must(t, err)
		return n
	}
	alive := wire.Tunnel{LinkTo: b.macs[nodesLink], From: nodeAddr[0], To: lbAddr[0], Instance: wire.Instance{Server: 1}, Message: wire.MessageAlive}
	for range 3 {
		was := [2]uint64{answered(1), answered(200)}
		b.at(t, b.now+edge.AnsweredWithin)
		b.fromNode(t, alive, []byte{0x45}).Is(t, "alive", rig.XDPDrop, nil, "alive")
		if answered(1) == was[0] || answered(200) != was[1] {
			t.Errorf("nodes answered at %v, then at %d and %d", was, answered(1), answered(200))
		}
	}
	alive.From = netip.MustParseAddr("192.0.2.66")
	b.fromNode(t, alive, []byte{0x45}).Is(t, "a stranger's", rig.XDPDrop, nil, "drop_stranger")
}
