package edge_test

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// TestEdge runs every test of the programs, then asks whether together they met every reason
// that the programs can count.
func TestEdge(t *testing.T) {
	seen := rig.Hits{}
	for _, c := range []struct {
		name string
		test func(*testing.T, rig.Hits)
	}{
		{"both directions", testBothDirections},
		{"pass untouched", testPass},
		{"learn", testLearn},
		{"die together", testDieTogether},
		{"weights", testWeights},
		{"ages", testAges},
		{"apply", testApply},
		{"node gone", testNodeGone},
		{"other cores", testOtherCores},
		{"missing core", testMissingCore},
		{"bad packets", testBadPackets},
		{"options", testOptions},
		{"source routes", testSourceRoutes},
		{"time exceeded", testTimeExceeded},
		{"bad updates", testBadUpdates},
		{"recover", testRecover},
		{"recover, NAT", testRecoverNAT},
		{"recover, moved", testRecoverMoved},
		{"recover, all", testRecoverAll},
		{"recover, limits", testRecoverLimits},
		{"recover, bad answers", testBadAnswers},
		{"an earlier flow", testEarlierFlow},
		{"probe", testProbe},
		{"too big", testTooBig},
		{"narrow", testNarrow},
		{"neighbours", testNeighbours},
		{"ended", testEnded},
		{"keep-alive", testKeepAlive},
		{"word of datagrams", testDatagramWord},
		{"port again", testPortAgain},
		{"no word", testNoWord},
		{"table full", testTableFull},
		{"forged", testForged},
		{"ways", testWays},
		{"the world begins", testWorldBegins},
		{"a stray tries", testStrayTries},
		{"between services", testBetween},
		{"new prefixes", testNewPrefixes},
		{"a RST ends nothing", testRSTEndsNothing},
		{"talkers", testTalkers},
		{"both ways", testBothWays},
		{"moved at once", testMovedAtOnce},
		{"one place", testOnePlace},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, seen) })
	}
	t.Run("every counter", func(t *testing.T) {
		seen.Covers(t, counterNames(t), map[string]string{"drop_no_headroom": "BPF_PROG_RUN leaves 256 bytes before every frame"})
	})
}

func counterNames(t *testing.T) (names []string) {
	all, err := newBench(t, rig.Hits{}).Counters()
	must(t, err)
	for _, c := range all {
		names = append(names, c.Name)
	}
	return names
}

// testBothDirections: the first packet of a flow, of either family and protocol, chooses the
// instance, and all others of both directions go there; the instance counts them.
func testBothDirections(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen)
	met := map[wire.Instance]uint64{}
	for _, kind := range []string{"tcp", "udp", "echo"} {
		for port := range 20 {
			for _, f := range []flow{from4(kind, 1000+port), from6(kind, 1000+port)} {
				if kind == "echo" {
					f.to = netip.AddrPortFrom(f.to.Addr(), f.from.Port())
				}
				first := b.tunnelled(t, f.String(), b.fromClient(t, f.packet()), f.packet(), "flow_begun", "steer")
				if kind != "echo" && first.Flow != f.hash() {
					t.Errorf("%v: digest %x, want %x", f, first.Flow, f.hash())
				}
				answer := f.reversed()
				if second := b.tunnelled(t, f.String(), b.fromWorld(t, answer.packet()), answer.packet(), "steer"); second.Instance != first.Instance || second.Flow != first.Flow {
					t.Errorf("%v: the answer went to %+v, not to %+v", f, second.Instance, first.Instance)
				}
				met[first.Instance] += 2
			}
		}
	}
	counts, err := b.Counts(service)
	must(t, err)
	for i, c := range config().Services[0].Instances {
		if want := met[wire.Instance{Server: c.Server, Core: c.Core, Service: service}]; counts[i].Packets.Total() != want || counts[i].Flows != want/2 || want == 0 {
			t.Errorf("instance %+v counts %+v, want %d packets", c, counts[i], want)
		}
	}
	if n := b.flows(t); n != 120 {
		t.Errorf("%d entries for 120 flows", n)
	}
	begun := from4("udp", 7).reversed() // by the world, for the client network
	b.worldBegins(t, begun.reversed(), begun.packet())
	tooBig := rig.TooBig(rig.Packet{Protocol: topo.UDP, Src: begun.to, Dst: begun.from, Hop: 9}, 1000)
	b.tunnelled(t, "packet too big", b.fromWorld(t, tooBig.Ip()), tooBig.Ip(), "steer")
}

// testPass: packets of no flow of the client network are the kernel's, untouched.
func testPass(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen)
	arp := wire.Frame(b.macs["clients"], rig.RouterMAC, from4("udp", 1).packet())
	arp[rig.AtEtherType+1] = 6
	b.run(t, b.Objects().EdgeClients, arp).Is(t, "ARP", rig.XDPPass, arp, "pass_not_ip")
	other := wire.Frame(topo.MAC{2, 9}, rig.RouterMAC, from4("udp", 1).packet())
	b.run(t, b.Objects().EdgeClients, other).Is(t, "another host's", rig.XDPPass, other, "pass_other_host")
	transit := flow{"udp", netip.AddrPortFrom(remote4, 1), netip.AddrPortFrom(remote4, 2)}
	b.fromWorld(t, transit.packet()).Is(t, "no prefix, from the world", rig.XDPPass, nil, "pass_not_edge")
	own := from4("udp", 1)
	own.to = netip.AddrPortFrom(lbAddr[0], 4789)
	b.fromClient(t, own.packet()).Is(t, "the host's own", rig.XDPPass, nil, "pass_own_address")
	plain := wire.Frame(b.macs[nodesLink], rig.RouterMAC, from4("udp", 1).packet())
	b.run(t, b.Objects().EdgeBack, plain).Is(t, "not in a tunnel", rig.XDPPass, plain, "pass_not_tunnel")
}

// natted is the flow after source NAT.
func natted(f flow, port int) flow {
	addr := public
	if f.from.Addr().Is6() {
		addr = public6
	}
	f.from = netip.AddrPortFrom(addr, uint16(port))
	if f.kind == "echo" {
		f.to = netip.AddrPortFrom(f.to.Addr(), uint16(port))
	}
	return f
}

// testLearn: a packet that a function changed comes back in the tunnel; the LB learns the tuple,
// for both directions, and sends the packet on as a router. The world's answers go to the same
// instance, and their change back is known.
func testLearn(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen)
	for _, kind := range []string{"tcp", "udp"} {
		f := from4(kind, 3000)
		to := b.tunnelled(t, kind, b.fromClient(t, f.packet()), f.packet(), "flow_begun", "steer")
		changed := natted(f, 40000)
		for _, reason := range []string{"update_learned", "update_known"} {
			out := b.fromNode(t, back(to), changed.packet())
			out.Is(t, kind, redirect, wire.Frame(gatewayMAC, b.macs["world"], hopped(changed.packet())), reason)
		}
		answer := changed.reversed()
		again := b.tunnelled(t, kind, b.fromWorld(t, answer.packet()), answer.packet(), "steer")
		if again.Instance != to.Instance {
			t.Errorf("%s: the answer went to %+v, not to %+v", kind, again.Instance, to.Instance)
		}
		changedBack := f.reversed().packet()
		b.fromNode(t, back(again), changedBack).Is(t, kind+", answer", redirect, wire.Frame(gatewayMAC, b.macs["world"], hopped(changedBack)), "update_known")
	}
	over6 := from6("udp", 3000) // without a route the kernel gets the packet, and answers by ICMP
	to := b.tunnelled(t, "IPv6", b.fromClient(t, over6.packet()), over6.packet(), "flow_begun", "steer")
	rewritten := wire.Frame(b.macs[nodesLink], b.macs[nodesLink], over6.packet())
	b.fromNode(t, back(to), over6.packet()).Is(t, "IPv6", rig.XDPPass, rewritten, "pass_to_router")
	marked := from4("tcp", 3001)
	to = b.tunnelled(t, "marked", b.fromClient(t, marked.packet()), marked.packet(), "flow_begun", "steer")
	congested := back(to)
	congested.Class = 3 // CE, and the packet inside cannot carry it
	b.fromNode(t, congested, natted(marked, 40001).packet()).Is(t, "congested", rig.XDPDrop, nil, "drop_congested")
}

// hopped is a packet after a router.
func hopped(packet []byte) []byte {
	packet[8]--
	packet[10], packet[11] = 0, 0
	binary.BigEndian.PutUint16(packet[10:], wire.Checksum(packet[:20]))
	return packet
}

// testDieTogether: the entries before and after a change are removed by one sweep, which keeps both
// while packets of either come.
func testDieTogether(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen)
	f := from4("udp", 3000)
	to := b.tunnelled(t, "udp", b.fromClient(t, f.packet()), f.packet(), "flow_begun", "steer")
	changed := natted(f, 40000)
	b.fromNode(t, back(to), changed.packet()).Is(t, "change", redirect, nil, "update_learned")
	lone := from4("udp", 3001)
	b.fromClient(t, lone.packet())
	sweep := func(kept, removed uint64) {
		t.Helper()
		swept, err := b.SweepTurn()
		must(t, err)
		if swept.Removed != removed || b.flows(t) != int(kept) {
			t.Errorf("after %v the sweep removed %d and left %d, want %d and %d", b.now-rig.Start, swept.Removed, b.flows(t), removed, kept)
		}
	}
	sweep(3, 0)
	b.at(t, b.now-time.Second) // they were dated after the sweep read its clock
	sweep(3, 0)
	b.at(t, b.now+time.Second)
	if swept, err := b.SweepTurn(); err != nil || swept.Kept != 3 { // by the programs' clock
		t.Errorf("the sweep kept %d flows of 3: %v", swept.Kept, err)
	}
	b.at(t, b.now+idle/2)
	b.fromWorld(t, changed.reversed().packet()).Is(t, "answer", redirect, nil, "steer") // the other entry's packets stop
	b.at(t, b.now+idle*3/4)
	sweep(2, 1)
	b.at(t, b.now+idle/2)
	sweep(0, 2)
}

// testNodeGone: a flow of a node that is gone goes to another and is counted; without any
// instance it is dropped.
func testNodeGone(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen)
	must(t, b.SetWeights(service, []float64{1, 0, 0}))
	f := from4("tcp", 5)
	b.fromClient(t, f.packet())
	must(t, b.SetNextHop(1, topo.MAC{}))
	b.fromClient(t, f.packet()).Is(t, "no instance", rig.XDPDrop, nil, "drop_no_instance")
	must(t, b.SetWeights(service, []float64{0, 0, 1}))
	moved := b.tunnelled(t, "moved", b.fromWorld(t, f.reversed().packet()), f.reversed().packet(), "flow_moved", "steer")
	if moved.Instance.Server != 200 {
		t.Errorf("moved to %+v", moved.Instance)
	}
	if again := b.tunnelled(t, "after", b.fromClient(t, f.packet()), f.packet(), "steer"); again.Instance != moved.Instance {
		t.Errorf("from the client to %+v, from the world to %+v", again.Instance, moved.Instance)
	}
}

// testOtherCores: a node that has more or fewer cores keeps the flows of those that it still has; those of a
// core that is gone move.
func testOtherCores(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen)
	var flows [2]flow
	for core := range flows {
		weights := []float64{0, 0, 0}
		weights[core] = 1
		must(t, b.SetWeights(service, weights))
		flows[core] = from4("tcp", 70+core)
		b.tunnelled(t, "begun", b.fromClient(t, flows[core].packet()), flows[core].packet(), "flow_begun", "steer")
	}
	more := config()
	more.Nodes[0].Cores = 3
	more.Services[0].Instances[0].Core = 2
	must(t, b.Apply(more))
	for core, f := range flows {
		if to := b.tunnelled(t, "with a core more", b.fromClient(t, f.later()), f.later(), "steer"); to.Instance.Core != core || to.Instance.Server != 1 {
			t.Errorf("the flow of core %d went to %+v", core, to.Instance)
		}
	}
	fewer := config()
	fewer.Nodes[0].Cores = 1
	fewer.Services[0].Instances = fewer.Services[0].Instances[2:] // at the other node
	must(t, b.Apply(fewer))
	if to := b.tunnelled(t, "with a core less", b.fromClient(t, flows[0].later()), flows[0].later(), "steer"); to.Instance.Core != 0 || to.Instance.Server != 1 {
		t.Errorf("the flow of core 0 went to %+v", to.Instance)
	}
	if to := b.tunnelled(t, "of the core that is gone", b.fromClient(t, flows[1].packet()), flows[1].packet(), "flow_moved", "steer"); to.Instance.Server != 200 {
		t.Errorf("the flow of core 1 went to %+v", to.Instance)
	}
}

// testMissingCore: the flow of a core that its node turns out not to have goes to another instance.
func testMissingCore(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen)
	must(t, b.SetWeights(service, []float64{0, 1, 0}))
	f := from4("tcp", 70)
	b.tunnelled(t, "begun", b.fromClient(t, f.packet()), f.packet(), "flow_begun", "steer")
	must(t, b.SetCores(1, 1))
	must(t, b.SetWeights(service, []float64{0, 0, 1}))
	if to := b.tunnelled(t, "missing", b.fromClient(t, f.packet()), f.packet(), "flow_moved", "steer"); to.Instance.Server != 200 {
		t.Errorf("the flow went to %+v", to.Instance)
	}
}

// testBadPackets: packets of the client network that show no whole flow are dropped.
func testBadPackets(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen)
	f := from4("udp", 9)
	whole := f.packet()
	fragment := hopped(f.packet())
	fragment[6] = 0x20
	b.fromClient(t, fragment).Is(t, "fragment", rig.XDPDrop, nil, "drop_fragment")
	b.fromClient(t, whole[:len(whole)-1]).Is(t, "cut short", rig.XDPDrop, nil, "drop_malformed")
	gre := wire.IP{Source: client4, Destination: remote4, HopLimit: 9}.Around(47, make([]byte, 20))
	b.fromClient(t, gre).Is(t, "GRE", rig.XDPDrop, nil, "drop_protocol")
	timestamp := wire.IP{Source: client4, Destination: remote4, HopLimit: 9}.ICMP(13, 0, 1, make([]byte, 12))
	b.fromClient(t, timestamp).Is(t, "ICMP without a flow", rig.XDPDrop, nil, "drop_protocol")
	unsolicited := flow{"tcp", netip.AddrPortFrom(remote4, 80), netip.AddrPortFrom(public, 1234)}
	b.fromWorld(t, unsolicited.packet()).Is(t, "to a public address", rig.XDPDrop, nil, "drop_unsolicited")
	if n := b.flows(t); n != 0 {
		t.Errorf("%d entries after bad packets", n)
	}
}

// testBadUpdates: packets that are no changed packets of a node's own flows change nothing.
func testBadUpdates(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen)
	must(t, b.SetWeights(service, []float64{1, 0, 0}))
	f, g := from4("udp", 21), from4("udp", 22)
	to := b.tunnelled(t, "f", b.fromClient(t, f.packet()), f.packet(), "flow_begun", "steer")
	must(t, b.SetWeights(service, []float64{0, 1, 0}))
	b.fromClient(t, g.packet())
	changed := natted(f, 40000).packet()
	for _, c := range []struct {
		reason string
		change func(*wire.Tunnel)
		packet []byte
	}{
		{"drop_stranger", func(w *wire.Tunnel) { w.From = netip.MustParseAddr("192.0.2.66") }, changed},
		{"drop_stranger", func(w *wire.Tunnel) { w.Instance.Server = 200 }, changed},
		{"drop_stranger", func(w *wire.Tunnel) { w.Instance.Server = 17 }, changed},
		{"drop_impossible_id", func(w *wire.Tunnel) { w.Instance.Core = 2 }, changed},
		{"drop_impossible_id", func(w *wire.Tunnel) { w.Instance.Service = 6 }, changed},
		{"drop_impossible_id", func(w *wire.Tunnel) { w.Instance.Service = 0 }, changed},
		{"drop_no_update", func(w *wire.Tunnel) { w.Instance.Update = false }, changed},
		{"drop_no_update", func(w *wire.Tunnel) { w.Message = wire.MessageRecover }, changed},
		{"drop_no_update", func(w *wire.Tunnel) { w.Message = wire.MessageProbe }, changed},
		{"drop_unknown_flow", func(w *wire.Tunnel) { w.Flow++ }, changed},
		{"drop_wrong_instance", func(w *wire.Tunnel) { w.Instance.Core = 1 }, changed},
		{"drop_conflict", func(*wire.Tunnel) {}, g.packet()},
		{"drop_fragment", func(*wire.Tunnel) {}, func() []byte { p := hopped(natted(f, 1).packet()); p[6] = 0x20; return p }()},
		{"drop_malformed", func(*wire.Tunnel) {}, changed[:len(changed)-3]},
		{"pass_not_tunnel", func(w *wire.Tunnel) { w.To = remote4 }, changed},
	} {
		tunnel := back(to)
		c.change(&tunnel)
		action := uint32(rig.XDPDrop)
		if c.reason == "pass_not_tunnel" {
			action = rig.XDPPass
		}
		b.fromNode(t, tunnel, c.packet).Is(t, c.reason, action, nil, c.reason)
	}
	good := back(to).Around(changed)
	const atVXLAN = wire.EthernetBytes + wire.IPv4Bytes + wire.UDPBytes
	for at, value := range map[int]byte{atVXLAN: 9, atVXLAN + 3: 1, atVXLAN + 7: wire.Messages, atVXLAN + 8: 4, atVXLAN + 14: 9, atVXLAN + 21: 6} {
		b.run(t, b.Objects().EdgeBack, rig.Altered(good, at, value)).Is(t, "malformed tunnel", rig.XDPDrop, nil, "drop_malformed_tunnel")
	}
	b.run(t, b.Objects().EdgeBack, good[:atVXLAN+20]).Is(t, "tunnel cut short", rig.XDPDrop, nil, "drop_malformed_tunnel")
	inPart := rig.Altered(good, wire.EthernetBytes+6, 0x20)
	b.run(t, b.Objects().EdgeBack, inPart).Is(t, "tunnel in fragments", rig.XDPDrop, nil, "drop_fragment")
	if n := b.flows(t); n != 2 {
		t.Errorf("%d entries after bad updates, want 2", n)
	}
}

// testTableFull: a flow without room is dropped and counted; those that have an entry go on.
func testTableFull(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen, func(cfg *topo.EdgeLB) { cfg.Flows.Entries = 16 })
	full := 0
	for port := range 40 {
		out := b.fromClient(t, from4("udp", 100+port).packet())
		if out.Action == rig.XDPDrop {
			out.Is(t, "full", rig.XDPDrop, nil, "drop_table_full")
			full++
		}
	}
	if n := b.flows(t); n != 40-full || n < 16 {
		t.Errorf("%d entries and %d refusals of 40 flows, room for 16", n, full)
	}
	first := from4("udp", 100)
	b.tunnelled(t, "first", b.fromClient(t, first.packet()), first.packet(), "steer")
	b.at(t, b.now+idle+time.Second)
	_, err := b.SweepTurn()
	must(t, err)
	b.tunnelled(t, "after the sweep", b.fromClient(t, from4("udp", 139).packet()), from4("udp", 139).packet(), "flow_begun", "steer")
}

// TestVerified: the programs leave the verifier most of its patience.
func TestVerified(t *testing.T) {
	b := newBench(t, rig.Hits{})
	all, err := b.Verified()
	must(t, err)
	for _, v := range all {
		t.Logf("%s: %d", v.Program, v.Instructions)
		if v.Instructions > 20_000 {
			t.Errorf("the verifier looked at %d instructions of %s: 20,000 at most", v.Instructions, v.Program)
		}
	}
}
