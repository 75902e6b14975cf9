package nf_test

import (
	"net/netip"
	"testing"

	"proffer/dataplane/objects"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// returning is the tunnel of a packet that the LB wants back.
func returning(w wire.Tunnel, inward bool) wire.Tunnel {
	w.Inward, w.Returns = inward, true
	return w
}

// testSides: the direction is the LB's word. An outward packet has a source of the client network; a packet
// from one client to another is inward at the chain of the second.
func testSides(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen)
	for _, family := range []int{4, 6} {
		for _, kind := range []string{"tcp", "udp", "echo"} {
			f := outward(kind, family, 1)
			foreign := f.reversed()
			for _, service := range []int{costly, natted} {
				b.run(t, to(0, service).Around(foreign.packet())).Is(t, "a foreign source, outward", rig.XDPDrop, nil, "drop_wrong_side")
			}
			b.run(t, to(0, natted).Around(f.after(first).packet())).Is(t, "a public source, outward", rig.XDPDrop, nil, "drop_wrong_side")
			b.owner(t, "afterwards", f.packet(), 0, 0)
			inward := to(0, natted)
			inward.Inward = true
			out := b.run(t, inward.Around(f.packet()))
			if out.Reasons[0] == "nat_bound" {
				t.Errorf("%s, IPv%d: a packet that came inward got a port", kind, family)
			}
		}
	}
}

// testReturns: a packet that the LB wants back returns from the end of its chain, unchanged.
func testReturns(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen)
	for _, family := range []int{4, 6} {
		for _, inward := range []bool{false, true} {
			f := outward("udp", family, 1)
			if inward {
				f = f.reversed()
			}
			w := returning(to(1, costly), inward)
			b.run(t, w.Around(f.packet())).Is(t, "wanted back", redirect, rig.Back(w).Around(f.packet()), "returned")
		}
	}
}

// testNoStateBefore: packets of the world that a firewall denies leave nothing at the node, with user space
// before the firewall, too.
func testNoStateBefore(t *testing.T, seen rig.Hits) {
	rules := topo.Firewall{Rules: []topo.Rule{{Allow: true, Source: netip.MustParsePrefix("10.1.0.0/16")}, {Allow: true, Source: netip.MustParsePrefix("2001:db8:1::/48")}}}
	const loopback = 1
	mac := topo.MAC{2, 0, 0, 0, 0, 0x77}
	for _, functions := range [][]topo.Function{{rules}, {rules, topo.User{}}} {
		b := newBench(t, seen, chained(functions...))
		must(t, b.Objects().UserLinks.Put(uint32(1), objects.NFUserLink{Index: loopback, Mac: mac}))
		through := func(w wire.Tunnel, packet []byte, reason string) {
			t.Helper()
			out := b.run(t, w.Around(packet))
			if len(functions) > 1 && w.Inward { // the last function comes first
				out.Is(t, "to user space", redirect, nil, "user_given")
				w.LinkTo, w.LinkFrom = mac, mac
				out = b.runs(t, b.Objects().NodeResume, w.Around(packet))
			}
			if out.Reasons[0] != reason {
				t.Errorf("%v, want %s first", out.Reasons, reason)
			}
		}
		for _, family := range []int{4, 6} {
			for _, kind := range []string{"tcp", "udp", "echo"} {
				f := outward(kind, family, 7)
				through(returning(to(1, costly), true), f.reversed().packet(), "drop_firewall_denied")
			}
		}
		var key objects.NFNodeFlow
		var state objects.NFFirewallState
		if b.Objects().FirewallStates.Iterate().Next(&key, &state) {
			t.Errorf("the firewall knows %+v", key)
		}
		var hash uint64
		var kept objects.NFKeptFlow
		if b.Objects().NodeFlows.Iterate().Next(&hash, &kept) {
			t.Errorf("the node keeps %+v of a packet that its chain denied", kept)
		}
	}
}

// testTwoServices: a flow between clients of two services is one flow to each, though its tuple is the same
// and both are at one core: the firewalls decide apart, and the node tells an LB the instance of each.
func testTwoServices(t *testing.T, seen rig.Hits) {
	of := func(nets ...string) (f topo.Firewall) {
		for _, n := range nets {
			f.Rules = append(f.Rules, topo.Rule{Allow: true, Source: netip.MustParsePrefix(n)})
		}
		return f
	}
	b := newBench(t, seen, func(cfg *topo.Datapath) {
		cfg.Clients = append(cfg.Clients, netip.MustParsePrefix("10.2.0.0/16"), netip.MustParsePrefix("2001:db8:2::/48"))
		cfg.Chains[0].Functions = []topo.Function{of("10.1.0.0/16", "2001:db8:1::/48")}
		cfg.Chains[1].Functions = []topo.Function{of("10.2.0.0/16", "2001:db8:2::/48", "10.1.0.7/32", "2001:db8:1::7/128")}
	})
	for _, family := range []int{4, 6} {
		f := outward("udp", family, 1)
		f.to = netip.AddrPortFrom(netip.MustParseAddr("10.2.0.7"), 80)
		if family == 6 {
			f.to = netip.AddrPortFrom(netip.MustParseAddr("2001:db8:2::7"), 80)
		}
		b.run(t, returning(to(0, costly), true).Around(f.reversed().packet())).Is(t, "from a client that no rule names", rig.XDPDrop, nil, "drop_firewall_denied")
		one, two := returning(to(0, costly), false), returning(to(0, natted), true)
		b.run(t, one.Around(f.packet())).Is(t, "outward", redirect, rig.Back(one).Around(f.packet()), "firewall_admitted", "returned")
		b.run(t, two.Around(f.packet())).Is(t, "inward at the other service", redirect, rig.Back(two).Around(f.packet()), "firewall_admitted", "returned")
		answer := f.reversed()
		b.run(t, returning(to(0, natted), false).Around(answer.packet())).Is(t, "the answer", redirect, nil, "returned")
		b.run(t, returning(to(0, costly), true).Around(answer.packet())).Is(t, "the answer, inward", redirect, nil, "returned")
		for _, c := range []struct {
			packet  flow
			inward  bool
			service int
		}{{f, false, costly}, {f, true, natted}, {answer, false, natted}, {answer, true, costly}} {
			q, a := question(), answers(0, c.service)
			q.Inward, a.Inward = c.inward, c.inward
			b.run(t, q.Around(c.packet.packet())).Is(t, "question", redirect, a.Around(c.packet.packet()), "owned")
		}
	}
}
