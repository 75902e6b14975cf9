package nf_test

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// TestNode runs every test of the programs, then asks whether together they met every reason
// that the programs can count.
func TestNode(t *testing.T) {
	seen := rig.Hits{}
	for _, c := range []struct {
		name string
		test func(*testing.T, rig.Hits)
	}{
		{"unchanged", testUnchanged},
		{"cost", testCost},
		{"NAT", testNAT},
		{"NAT, exhausted", testExhausted},
		{"NAT, shared address", testSharedAddress},
		{"NAT, over", testOver},
		{"NAT, again", testAgain},
		{"sides", testSides},
		{"returns", testReturns},
		{"no state before", testNoStateBefore},
		{"two services", testTwoServices},
		{"a forged RST", testForgedRST},
		{"a RST", testRST},
		{"a forged FIN", testForgedFIN},
		{"many flows are over", testManyOver},
		{"full", testFull},
		{"NAT, bad packets", testBadNAT},
		{"NAT, errors", testErrors},
		{"NAT, bad errors", testBadErrors},
		{"firewall", testFirewall},
		{"firewall and NAT", testOrder},
		{"refused", testRefused},
		{"unbound", testUnbound},
		{"IDS", testIDS},
		{"rewriter", testRewriter},
		{"virtual core", testVirtual},
		{"user space", testUser},
		{"bad tunnels", testBadTunnels},
		{"owner", testOwner},
		{"owner, aged", testOwnerAged},
		{"owner, bad questions", testBadQuestions},
		{"probe", testProbe},
		{"no way on", testNoWay},
		{"neighbours", testNeighbours},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, seen) })
	}
	t.Run("every counter", func(t *testing.T) {
		all, err := newBench(t, rig.Hits{}).Counters()
		must(t, err)
		var names []string
		for _, c := range all {
			names = append(names, c.Name)
		}
		seen.Covers(t, names, map[string]string{
			"drop_no_headroom": "the tunnel's own room is there",
		})
	})
}

// testUnchanged: a packet that no function changed goes straight to its destination, as by a
// router, and counts at its core.
func testUnchanged(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen)
	for core := range 2 {
		f := outward("tcp", 4, 1000+core)
		for _, p := range []flow{f, f.reversed()} {
			want := p.packet()
			want[8]--
			want[10], want[11] = 0, 0
			binary.BigEndian.PutUint16(want[10:], wire.Checksum(want[:wire.IPv4Bytes]))
			b.run(t, around(to(core, costly), p.packet())).Is(t, "unchanged", redirect, wire.Frame(routerMAC, here, want), "direct")
		}
		n, err := b.Count(core, costly)
		must(t, err)
		if bytes := uint64(2 * len(f.packet())); n.Packets != 2 || n.Bytes != bytes {
			t.Errorf("core %d counts %+v, want 2 packets of %d bytes", core, n, bytes)
		}
	}
	over6 := outward("udp", 6, 1000) // without a route
	b.run(t, around(to(0, costly), over6.packet())).Is(t, "no route", rig.XDPPass, wire.Frame(here, here, over6.packet()), "pass_to_router")
}

// testCost: a packet takes at least the time that it costs.
func testCost(t *testing.T, seen rig.Hits) {
	const each = 5 * time.Millisecond
	b := newBench(t, seen, func(cfg *topo.Datapath) {
		cfg.Chains[0].Functions = []topo.Function{topo.Cost{Each: each}, topo.Cost{Each: each}}
	})
	begun := time.Now()
	b.run(t, around(to(0, costly), outward("udp", 4, 1).packet())).Is(t, "cost", redirect, nil, "direct")
	if took := time.Since(begun); took < 2*each {
		t.Errorf("two functions of %v took %v", each, took)
	}
}

// testNAT: packets of a flow leave with one public port of their core's range, all checksums as of
// new packets, and answers come back to the client network; all go back to the LB.
func testNAT(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen)
	given := map[netip.AddrPort]string{}
	for core := range 2 {
		for _, family := range []int{4, 6} {
			for i, kind := range []string{"tcp", "udp", "echo"} {
				f := outward(kind, family, 1000+10*core+i)
				label := f.from.String() + " " + kind
				there := to(core, natted)
				out := b.run(t, around(there, f.packet()))
				port := portOf(t, label, out, kind)
				after := f.after(port)
				out.Is(t, label, redirect, around(rig.Back(there), after.packet()), "nat_bound", "returned")
				if low := first + core*ports; int(port) < low || int(port) >= low+ports {
					t.Errorf("%s: core %d gave port %d", label, core, port)
				}
				if other := given[after.from]; other != "" {
					t.Errorf("%s has the port of %s", label, other)
				}
				given[after.from] = label
				b.run(t, around(there, f.packet())).Is(t, label+", again", redirect, around(rig.Back(there), after.packet()), "returned")
				answer, home := after.reversed(), f.reversed()
				b.run(t, around(there, answer.packet())).Is(t, label+", answer", redirect, around(rig.Back(there), home.packet()), "returned")
			}
		}
	}
	none := wire.IP{Source: client4, Destination: remote4, HopLimit: 50, Class: 0x28, ID: 7}.UDP(7, 80, []byte("x"))
	none[26], none[27] = 0, 0 // no checksum, RFC 768
	out := b.run(t, around(to(0, natted), none))
	if _, packet, err := wire.ParseTunnel(out.Frame); err != nil || packet[26] != 0 || packet[27] != 0 {
		t.Errorf("a datagram without a checksum got one: %x (%v)", out.Frame, err)
	}
}

// testExhausted: a core that has given all its ports refuses the next flow, and counts it; flows
// that have a port go on, other cores have theirs.
func testExhausted(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen)
	given := map[uint16]bool{}
	for i := range ports {
		f := outward("udp", 4, 1000+i)
		given[portOf(t, "flow", b.run(t, around(to(1, natted), f.packet())), "udp")] = true
	}
	if len(given) != ports || given[0] {
		t.Errorf("%d ports for %d flows", len(given), ports)
	}
	more := outward("udp", 4, 5000)
	b.run(t, around(to(1, natted), more.packet())).Is(t, "one more", rig.XDPDrop, nil, "drop_nat_exhausted")
	b.run(t, around(to(1, natted), outward("udp", 4, 1000).packet())).Is(t, "the first", redirect, nil, "returned")
	b.run(t, around(to(0, natted), more.packet())).Is(t, "another core", redirect, nil, "nat_bound", "returned")
	b.at(t, b.now+10*time.Second)
	_, err := b.SweepTurn()
	must(t, err)
	for i := range ports { // all ports are free again
		b.run(t, around(to(1, natted), outward("udp", 4, 3000+i).packet())).Is(t, "after the sweep", redirect, nil, "nat_bound", "returned")
	}
}

// testSharedAddress: services with one public address share its ports, whatever the ranges; other addresses
// have theirs.
func testSharedAddress(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen, func(cfg *topo.Datapath) {
		cfg.Chains[0].Functions = []topo.Function{topo.SourceNAT{Public4: public4, First: first, Ports: 2 * ports}}
	})
	given := map[uint16]bool{}
	bind := func(service, from int) {
		for i := range ports {
			there := to(0, service)
			out := b.run(t, around(there, outward("udp", 4, from+i).packet()))
			out.Is(t, "a flow", redirect, nil, "nat_bound", "returned")
			port := portOf(t, "a flow", out, "udp")
			if given[port] {
				t.Fatalf("port %d is given twice", port)
			}
			given[port] = true
		}
	}
	bind(natted, 1000)
	bind(costly, 3000)
	b.run(t, around(to(0, costly), outward("udp", 4, 5000).packet())).Is(t, "one more", rig.XDPDrop, nil, "drop_nat_exhausted")
	b.run(t, around(to(0, natted), outward("udp", 6, 5000).packet())).Is(t, "IPv6", redirect, nil, "nat_bound", "returned")
}

// testOver: a flow's port is free after both directions were idle, or lingered after both closed,
// or one reset, and not before.
func testOver(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen)
	sweep := func(label string, kept, removed uint64) {
		t.Helper()
		swept, err := b.SweepTurn()
		must(t, err)
		if swept.Kept != kept || swept.Removed != removed {
			t.Errorf("%s: the sweep kept %d and removed %d, want %d and %d", label, swept.Kept, swept.Removed, kept, removed)
		}
	}
	begin := func(kind string, port int) (there wire.Tunnel, f, after flow) {
		there, f = to(0, natted), outward(kind, 4, port)
		return there, f, f.after(portOf(t, kind, b.run(t, around(there, f.packet())), kind))
	}
	there, _, idle := begin("udp", 1)
	b.at(t, b.now+9*time.Second)
	b.run(t, around(there, idle.reversed().packet()))
	b.at(t, b.now+9*time.Second)
	sweep("an answer came 9 s ago", 1, 0)
	b.at(t, b.now-10*time.Second)
	sweep("an answer came after the sweep read its clock", 1, 0)
	b.at(t, b.now+10*time.Second)
	b.at(t, b.now+time.Second)
	sweep("an answer came 10 s ago", 0, 1)
	b.run(t, around(there, idle.reversed().packet())).Is(t, "late answer", redirect, nil, "unbound")

	_, f, after := begin("tcp", 2)
	f.flags = wire.FIN | wire.ACK
	b.run(t, around(there, f.packet()))
	b.at(t, b.now+2*time.Second)
	sweep("one side closed", 1, 0)
	answer := after.reversed()
	answer.flags = wire.FIN | wire.ACK
	b.run(t, around(there, answer.packet()))
	sweep("both sides closed", 1, 0)
	b.at(t, b.now+2*time.Second)
	sweep("and lingered", 0, 1)

	_, f, _ = begin("tcp", 3)
	f.flags = wire.RST | wire.ACK
	b.run(t, around(there, f.packet()))
	b.at(t, b.now+2*time.Second)
	sweep("reset", 0, 1)
}

// testAgain: ports that a connection uses again, by a SYN of the client or its answer to one, stay bound
// until it is over, if either end closed that before; a SYN of the world alone keeps none.
func testAgain(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen)
	there := to(0, natted)
	for i, c := range []struct {
		label  string
		closed [2]byte // outward and inward, 0: not closed
		opens  [2]byte
		kept   bool
	}{
		{"reset by the client", [2]byte{wire.RST | wire.ACK}, [2]byte{wire.SYN}, true},
		{"reset by the world", [2]byte{0, wire.RST | wire.ACK}, [2]byte{wire.SYN}, true},
		{"closed by both", [2]byte{wire.FIN | wire.ACK, wire.FIN | wire.ACK}, [2]byte{wire.SYN}, true},
		{"opened by the world", [2]byte{0, wire.RST | wire.ACK}, [2]byte{wire.SYN | wire.ACK, wire.SYN}, true},
		{"a SYN of the world", [2]byte{0, wire.RST | wire.ACK}, [2]byte{0, wire.SYN}, false},
	} {
		f := outward("tcp", 4, 1000+i)
		after := f.after(portOf(t, c.label, b.run(t, around(there, f.packet())), "tcp"))
		for _, flags := range [][2]byte{c.closed, c.opens} {
			for way, p := range []flow{f, after.reversed()} {
				if p.flags = flags[way]; p.flags != 0 {
					b.run(t, around(there, p.packet())).Is(t, c.label, redirect, nil, "returned")
				}
			}
		}
		b.at(t, b.now+2*time.Second)
		_, err := b.SweepTurn()
		must(t, err)
		reason := map[bool]string{true: "returned", false: "unbound"}[c.kept]
		b.run(t, around(there, after.reversed().later().packet())).Is(t, c.label+", after 2 s", redirect, nil, reason)
	}
}

// testManyOver: a sweep of more flows than a step of it has room for removes all that are over, and
// no other, of every function.
func testManyOver(t *testing.T, seen rig.Hits) {
	const over, live = 2*topo.MaxNodeExpiring + 1, topo.MaxNodeExpiring + 2
	b := newBench(t, seen, chained(topo.Firewall{Rules: []topo.Rule{{Allow: true}}}, topo.SourceNAT{Public4: public4, First: first, Ports: 1024}))
	begin := func(from, flows int) {
		for i := range flows {
			b.run(t, around(to(0, costly), outward("udp", 4, from+i).packet())).Is(t, "a flow", redirect, nil, "firewall_admitted", "nat_bound", "returned")
		}
	}
	begin(1000, over)
	b.at(t, b.now+9*time.Second)
	begin(5000, live)
	b.at(t, b.now+time.Second)
	for _, want := range []uint64{2 * over, 0} {
		if swept, err := b.SweepTurn(); err != nil || swept.Removed != want || swept.Kept != 2*live {
			t.Errorf("the sweep removed %d flows and kept %d, want %d and %d: %v", swept.Removed, swept.Kept, want, 2*live, err)
		}
	}
}

// testBadNAT: packets that NAT cannot translate are dropped.
func testBadNAT(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen, func(cfg *topo.Datapath) {
		cfg.Chains[1].Functions = []topo.Function{topo.SourceNAT{Public4: public4, First: first, Ports: ports}}
	})
	stray := flow{"tcp", netip.AddrPortFrom(remote4, 80), netip.AddrPortFrom(public4, first), wire.ACK}
	aborted := outward("tcp", 4, 1)
	aborted.flags = wire.RST
	b.run(t, around(to(0, natted), aborted.packet())).Is(t, "RST without a binding", rig.XDPDrop, nil, "drop_nat_unknown")
	stray.flags = wire.SYN
	b.run(t, around(to(0, natted), stray.packet())).Is(t, "SYN without a binding", rig.XDPDrop, nil, "drop_nat_unknown")
	b.run(t, around(to(0, natted), outward("udp", 6, 1).packet())).Is(t, "no address", rig.XDPDrop, nil, "drop_nat_family")
	tooBig := rig.TooBig(rig.Packet{Protocol: topo.UDP, Src: stray.to, Dst: stray.from, Hop: 9}, 1000)
	b.run(t, around(to(0, natted), tooBig.Ip())).Is(t, "packet too big of no binding", rig.XDPDrop, nil, "drop_nat_unknown")
}

// testBadTunnels: packets that are no LB's for an instance of this node are dropped, those of
// others are the kernel's.
func testBadTunnels(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen)
	packet := outward("udp", 4, 1).packet()
	for _, c := range []struct {
		reason string
		change func(*wire.Tunnel)
	}{
		{"drop_stranger", func(w *wire.Tunnel) { w.From = netip.MustParseAddr("192.0.2.66") }},
		{"drop_stranger", func(w *wire.Tunnel) { w.To = netip.MustParseAddr("192.0.2.66") }},
		{"drop_impossible_id", func(w *wire.Tunnel) { w.Instance.Server++ }},
		{"drop_impossible_id", func(w *wire.Tunnel) { w.Instance.Core = 2 }},
		{"drop_impossible_id", func(w *wire.Tunnel) { w.Instance.Service = 0 }},
		{"drop_impossible_id", func(w *wire.Tunnel) { w.Instance.Service = 9 }},
		{"drop_impossible_id", func(w *wire.Tunnel) { w.Instance.Update = true }},
	} {
		w := to(0, costly)
		c.change(&w)
		b.run(t, around(w, packet)).Is(t, c.reason, rig.XDPDrop, nil, c.reason)
	}
	good := around(to(0, costly), packet)
	const atVXLAN = wire.EthernetBytes + wire.IPv4Bytes + wire.UDPBytes
	b.run(t, rig.Altered(good, atVXLAN+7, wire.Messages)).Is(t, "reserved bit", rig.XDPDrop, nil, "drop_malformed_tunnel")
	b.run(t, rig.Altered(good, wire.EthernetBytes+6, 0x20)).Is(t, "in fragments", rig.XDPDrop, nil, "drop_fragment")
	b.run(t, rig.Altered(good, atVXLAN-5, 1)).Is(t, "another port", rig.XDPPass, nil, "pass_not_tunnel")
	b.run(t, around(to(0, costly), packet[:len(packet)-1])).Is(t, "cut short inside", rig.XDPDrop, nil, "drop_malformed")
	congested := to(0, costly)
	congested.Class = 3
	b.run(t, around(congested, packet)).Is(t, "congested", rig.XDPDrop, nil, "drop_congested")
}

// testNoWay: a changed packet without an LB's next hop is dropped, and one that meets no function.
func testNoWay(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen)
	must(t, b.SetNextHop(0, topo.MAC{}))
	b.run(t, around(to(0, natted), outward("udp", 4, 1).packet())).Is(t, "no LB", rig.XDPDrop, nil, "drop_no_lb", "nat_bound")
	must(t, b.Objects().NodeFunctions.Delete(uint32(costly*2*(topo.MaxChain+1))))
	b.run(t, around(to(0, costly), outward("udp", 4, 1).packet())).Is(t, "no function", rig.XDPDrop, nil, "drop_no_function")
}

// TestVerified: the programs leave the verifier most of its patience.
func TestVerified(t *testing.T) {
	all, err := newBench(t, rig.Hits{}).Verified()
	must(t, err)
	for _, v := range all {
		t.Logf("%s: %d", v.Program, v.Instructions)
		if v.Instructions > 20_000 {
			t.Errorf("the verifier looked at %d instructions of %s: 20,000 at most", v.Instructions, v.Program)
		}
	}
}
