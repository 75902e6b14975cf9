package edge_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// Another service of the edge, with clients of its own.
const beside = 6

var beside4, beside6 = netip.MustParseAddr("10.2.0.7"), netip.MustParseAddr("2001:db8:2::7")

// withBeside gives the LB that service, at the same instances.
func withBeside(cfg *topo.EdgeLB) {
	cfg.Services = append(cfg.Services, topo.EdgeService{
		Number: beside, Instances: cfg.Services[0].Instances,
		Prefixes: []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16"), netip.MustParsePrefix("2001:db8:2::/48")},
	})
}

// admitted is the tunnel of a packet that its chain let pass, unchanged.
func admitted(to wire.Tunnel) wire.Tunnel { return back(to) }

// worldBegins lets the world begin a flow that its chain admits: the LB has its entry afterwards.
func (b *bench) worldBegins(t *testing.T, f flow, packet []byte) wire.Tunnel {
	t.Helper()
	before := b.flows(t)
	to := b.tunnelled(t, f.String(), b.fromWorld(t, packet), packet, "flow_tried", "steer")
	if !to.Inward || !to.Returns || b.flows(t) != before {
		t.Fatalf("%v: the first packet went in %+v, and made %d entries", f, to, b.flows(t)-before)
	}
	if out := b.fromNode(t, admitted(to), packet); out.Action == rig.XDPDrop || !slices.Contains(out.Reasons, "flow_begun") {
		t.Fatalf("%v: behind its chain: %v", f, out.Reasons)
	}
	return to
}

// families are a flow of the client network in either family, and its end in the other service.
func families(kind string, port int) []flow {
	all := []flow{from4(kind, port), from6(kind, port)}
	for i := range all {
		if kind == "echo" {
			all[i].to = netip.AddrPortFrom(all[i].to.Addr(), all[i].from.Port())
		}
	}
	return all
}

// other is the public address, or another client, of the family of an address.
func other(of netip.Addr, four, six netip.Addr) netip.Addr {
	if of.Is4() {
		return four
	}
	return six
}

// testForged: a source of the other side is dropped before any state, whatever the packet's flow, kind and
// family, and whether the LB knows the flow or a CPU had it just now.
func testForged(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen, withBeside)
	onOneCPU(t)
	address(t, "world", "2001:db8:18::1/64")
	for i, kind := range []string{"tcp", "udp", "echo"} {
		for _, f := range families(kind, 1000+i) {
			to := b.tunnelled(t, f.String(), b.fromClient(t, f.packet()), f.packet(), "flow_begun", "steer")
			changed := natted(f, 40000+i)
			b.learns(t, to, changed.packet())
			for range 2 { // so that the shorter way knows the flow
				b.tunnelled(t, f.String(), b.fromClient(t, f.later()), f.later(), "steer")
				b.tunnelled(t, f.String(), b.fromWorld(t, changed.reversed().later()), changed.reversed().later(), "steer")
			}
			flows := b.flows(t)
			client, next, public := f.from.Addr(), other(client4, netip.MustParseAddr("10.1.9.9"), netip.MustParseAddr("2001:db8:1::99")), other(f.from.Addr(), public, public6)
			next = other(f.from.Addr(), next, netip.MustParseAddr("2001:db8:1::99"))
			besides, remote, own := other(f.from.Addr(), beside4, beside6), f.to.Addr(), other(f.from.Addr(), netip.MustParseAddr("198.18.0.1"), netip.MustParseAddr("2001:db8:18::1"))
			foreign := other(f.from.Addr(), netip.MustParseAddr("192.168.3.3"), netip.MustParseAddr("2001:db8:dead::3"))
			with := func(from, to netip.Addr) flow {
				return flow{kind, netip.AddrPortFrom(from, f.from.Port()), netip.AddrPortFrom(to, f.to.Port())}
			}
			forged := func(label string, send func(*testing.T, []byte) rig.Outcome, g flow) {
				t.Helper()
				for _, packet := range [][]byte{g.packet(), g.later(), long(g)} {
					send(t, packet).Is(t, fmt.Sprintf("%s: %v", label, g), rig.XDPDrop, nil, "drop_wrong_side")
				}
			}
			for _, source := range []netip.Addr{client, next, besides, public} {
				for _, destination := range []netip.Addr{client, next, besides, public, remote, own} {
					forged("from the world", b.fromWorld, with(source, destination))
				}
			}
			forged("the client's own packet, from the world", b.fromWorld, f)
			forged("the changed packet, from the world", b.fromWorld, changed)
			for _, source := range []netip.Addr{foreign, remote, public} {
				for _, destination := range []netip.Addr{client, besides, public, remote} {
					forged("from the clients", b.fromClient, with(source, destination))
				}
			}
			forged("the changed packet, from the clients", b.fromClient, changed)
			forged("the answer, from the clients", b.fromClient, changed.reversed())
			if n := b.flows(t); n != flows {
				t.Errorf("%v: forged packets made %d entries", f, n-flows)
			}
		}
	}
	testForgedErrors(t, b)
}

// testForgedErrors: an ICMP error has its own source, beside the flow that it quotes.
func testForgedErrors(t *testing.T, b *bench) {
	t.Helper()
	for i, f := range families("udp", 2000) {
		b.tunnelled(t, f.String(), b.fromClient(t, f.packet()), f.packet(), "flow_begun", "steer")
		kind := []byte{11, 3}[i]
		about := func(from, to netip.Addr, quoted []byte) []byte {
			return wire.IP{Source: from, Destination: to, HopLimit: 9}.ICMP(kind, 0, 0, quoted)
		}
		router := other(f.from.Addr(), netip.MustParseAddr("198.51.100.254"), netip.MustParseAddr("2001:db8:9::fe"))
		for _, source := range []netip.Addr{f.from.Addr(), other(f.from.Addr(), public, public6), other(f.from.Addr(), beside4, beside6)} {
			packet := about(source, f.from.Addr(), f.packet())
			b.fromWorld(t, packet).Is(t, fmt.Sprintf("an error of %v from the world", source), rig.XDPDrop, nil, "drop_wrong_side")
		}
		packet := about(router, f.from.Addr(), f.packet())
		b.tunnelled(t, "an error of the world", b.fromWorld(t, packet), packet, "steer")
		inner := other(f.from.Addr(), netip.MustParseAddr("10.3.0.1"), netip.MustParseAddr("2001:db8:3::1"))
		packet = about(inner, f.to.Addr(), f.reversed().packet())
		b.tunnelled(t, "an error of a router of the client network", b.fromClient(t, packet), packet, "steer")
		packet = about(inner, f.from.Addr(), f.packet())
		b.fromClient(t, packet).Is(t, "an error about a packet of the client, from its own side", rig.XDPDrop, nil, "drop_wrong_side")
	}
}

// testWays: the way of a packet is that of its link.
func testWays(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen)
	for _, f := range families("udp", 1) {
		for range 3 { // by the general way, then by the shorter
			for inward, out := range map[bool]func() (rig.Outcome, []byte){
				false: func() (rig.Outcome, []byte) { return b.fromClient(t, long(f)), long(f) },
				true:  func() (rig.Outcome, []byte) { return b.fromWorld(t, long(f.reversed())), long(f.reversed()) },
			} {
				if inward && b.flows(t) == 0 {
					continue
				}
				out, packet := out()
				tunnel, inside, err := wire.ParseTunnel(out.Frame)
				must(t, err)
				if tunnel.Inward != inward || tunnel.Returns || !slices.Equal(inside, packet) {
					t.Errorf("%v, inward %t, went in %+v", f, inward, tunnel)
				}
			}
		}
		must(t, b.Objects().EdgeFlows.Delete(f.hash()))
	}
	segment := from4("tcp", 2).reversed().later()
	if asked := b.asks(t, "a question", b.fromWorld(t, segment), segment, 1); !asked.Inward {
		t.Errorf("a question about a packet of the world went in %+v", asked)
	}
}

// testWorldBegins: a packet of the world makes no entry until its chain let it pass. Until then all packets
// of the flow go to one instance; one that another instance let pass goes on, too.
func testWorldBegins(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen)
	instances := map[wire.Instance]bool{}
	for port := range 60 {
		for _, kind := range []string{"tcp", "udp", "echo"} {
			for _, f := range families(kind, 3000+port) {
				packet := f.reversed().packet()
				to := b.tunnelled(t, f.String(), b.fromWorld(t, packet), packet, "flow_tried", "steer")
				again := b.tunnelled(t, f.String(), b.fromWorld(t, packet), packet, "flow_tried", "steer")
				if to != again || !to.Inward || !to.Returns {
					t.Fatalf("%v went in %+v, then in %+v", f, to, again)
				}
				instances[to.Instance] = true
			}
		}
	}
	if n := b.flows(t); n != 0 {
		t.Errorf("%d entries of flows that no chain let pass", n)
	}
	if len(instances) != 3 {
		t.Errorf("flows went to %v alone", instances)
	}
	counts, err := b.Counts(service)
	must(t, err)
	if counts[0].Flows+counts[1].Flows+counts[2].Flows != 0 || counts[0].Packets.Total() == 0 {
		t.Errorf("the instances count %+v", counts)
	}
	f := from4("udp", 1)
	to := b.worldBegins(t, f, f.reversed().packet())
	elsewhere := admitted(to)
	elsewhere.Instance.Core = 1 - elsewhere.Instance.Core
	if to.Instance.Server == 200 {
		elsewhere.From, elsewhere.To, elsewhere.Instance.Server, elsewhere.Instance.Core = nodeAddr[0], lbAddr[0], 1, 0
	}
	b.fromNode(t, elsewhere, f.reversed().packet()).Is(t, "through another instance", redirect, nil, "update_known")
	if again := b.tunnelled(t, "the client's answer", b.fromClient(t, f.packet()), f.packet(), "steer"); again.Instance != to.Instance || again.Inward {
		t.Errorf("the answer went in %+v, not to %+v", again, to.Instance)
	}
	if again := b.tunnelled(t, "the world's next", b.fromWorld(t, f.reversed().packet()), f.reversed().packet(), "steer"); again.Instance != to.Instance || again.Returns {
		t.Errorf("the world's next packet went in %+v, not to %+v", again, to.Instance)
	}
	g := from4("udp", 2)
	forged := admitted(b.tunnelled(t, "another", b.fromWorld(t, g.reversed().packet()), g.reversed().packet(), "flow_tried", "steer"))
	b.fromNode(t, forged, from4("udp", 3).reversed().packet()).Is(t, "behind its chain it is another packet", rig.XDPDrop, nil, "drop_unknown_flow")
	forged.Returns = false
	b.fromNode(t, forged, g.reversed().packet()).Is(t, "a changed packet without an entry", rig.XDPDrop, nil, "drop_unknown_flow")
	if n := b.flows(t); n != 1 {
		t.Errorf("%d entries, want that of the flow that was let pass", n)
	}
}

// testStrayTries: a segment of the world that no node owns makes no entry either.
func testStrayTries(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen)
	for _, f := range families("tcp", 1) {
		packet := f.reversed().later()
		asked := b.asks(t, "stray", b.fromWorld(t, packet), packet, 1)
		asked = b.asks(t, "stray", b.fromNode(t, notMine(asked), packet), packet, 200)
		to := b.tunnelled(t, "unowned", b.fromNode(t, notMine(asked), packet), packet, "unowned", "flow_tried", "steer")
		if !to.Inward || !to.Returns || b.flows(t) != 0 {
			t.Errorf("%v went in %+v, and made %d entries", f, to, b.flows(t))
		}
	}
}

// hop checks a packet that went to a chain, and returns its tunnel.
func (b *bench) hop(t *testing.T, label string, out rig.Outcome, packet []byte, service int, inward, returns bool) wire.Tunnel {
	t.Helper()
	to, inside, err := wire.ParseTunnel(out.Frame)
	if err != nil || out.Action != redirect {
		t.Fatalf("%s: action %d for %v, %v", label, out.Action, out.Reasons, err)
	}
	if to.Instance.Service != service || to.Inward != inward || to.Returns != returns || !slices.Equal(inside, packet) {
		t.Fatalf("%s: went in %+v (%v), want service %d, inward %t, returns %t", label, to, out.Reasons, service, inward, returns)
	}
	return to
}

// testBetween: a packet of a client of one service to one of another passes the chain of the first outward, then
// that of the second inward, and the answer both the other way, at the same instances; with source NAT in
// the first or without.
func testBetween(t *testing.T, seen rig.Hits) {
	for _, nat := range []bool{false, true} {
		for i, kind := range []string{"tcp", "udp", "echo"} {
			for _, f := range families(kind, 4000+i) {
				b := newBench(t, seen, withBeside)
				label := fmt.Sprintf("NAT %t, %v", nat, f)
				f.to = netip.AddrPortFrom(other(f.from.Addr(), beside4, beside6), f.to.Port())
				after := f
				if nat {
					after = natted(f, 40000)
				}
				out := b.fromClient(t, f.packet())
				one := b.hop(t, label, out, f.packet(), service, false, true)
				out = b.fromNode(t, back(one), after.packet())
				two := b.hop(t, label+", behind the first chain", out, after.packet(), beside, true, true)
				if want := map[bool]int{false: 1, true: 2}[nat]; b.flows(t) != want {
					t.Errorf("%s: %d entries before the second chain let it pass, want %d", label, b.flows(t), want)
				}
				if out = b.fromNode(t, admitted(two), after.packet()); out.Action == rig.XDPDrop || !slices.Contains(out.Reasons, "flow_begun") {
					t.Fatalf("%s: behind both chains: %v", label, out.Reasons)
				}
				for range 3 {
					answer := after.reversed()
					out = b.fromClient(t, answer.later())
					three := b.hop(t, label+", answer", out, answer.later(), beside, false, true)
					out = b.fromNode(t, back(three), answer.later())
					four := b.hop(t, label+", answer behind the second chain", out, answer.later(), service, true, false)
					if three.Instance != two.Instance || four.Instance != one.Instance {
						t.Errorf("%s: by %+v, %+v, and back by %+v, %+v", label, one.Instance, two.Instance, three.Instance, four.Instance)
					}
					out = b.fromNode(t, back(four), f.reversed().later())
					if out.Action == rig.XDPDrop || !slices.Equal(slices.DeleteFunc(out.Reasons, func(r string) bool { return r == "pass_to_router" }), []string{"update_known"}) && out.Action == redirect {
						t.Errorf("%s: the answer behind both chains: %v", label, out.Reasons)
					}
					five := b.hop(t, label+", later", b.fromClient(t, f.later()), f.later(), service, false, true)
					six := b.hop(t, label+", later", b.fromNode(t, back(five), after.later()), after.later(), beside, true, false)
					if five.Instance != one.Instance || six.Instance != two.Instance {
						t.Errorf("%s: by %+v, %+v, and later by %+v, %+v", label, one.Instance, two.Instance, five.Instance, six.Instance)
					}
					b.at(t, b.now+300*time.Millisecond)
				}
				b.fromWorld(t, after.later()).Is(t, label+", forged from the world", rig.XDPDrop, nil, "drop_wrong_side")
				b.fromWorld(t, after.reversed().later()).Is(t, label+", forged from the world", rig.XDPDrop, nil, "drop_wrong_side")
			}
		}
	}
}

// testNewPrefixes: after a reload known flows are looked at again: an address that was the world's may be a
// client's now, and the other way.
func testNewPrefixes(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen)
	onOneCPU(t)
	for _, f := range families("udp", 5000) {
		f.to = netip.AddrPortFrom(other(f.from.Addr(), beside4, beside6), 80)
		b.tunnelled(t, "begun", b.fromClient(t, long(f)), long(f), "flow_begun", "steer")
		for range 2 {
			b.tunnelled(t, "known", b.fromClient(t, long(f)), long(f), "steer")
			b.tunnelled(t, "known, from the world", b.fromWorld(t, long(f.reversed())), long(f.reversed()), "steer")
		}
	}
	cfg := config()
	withBeside(cfg)
	must(t, b.Apply(cfg))
	b.at(t, b.now+300*time.Millisecond) // records of known flows are as old as that
	for _, f := range families("udp", 5000) {
		f.to = netip.AddrPortFrom(other(f.from.Addr(), beside4, beside6), 80)
		b.fromWorld(t, long(f.reversed())).Is(t, "a client's now", rig.XDPDrop, nil, "drop_wrong_side")
		b.hop(t, "to a client", b.fromClient(t, long(f)), long(f), service, false, true)
	}
}

// testRSTEndsNothing: an LB's entry ends by idle alone: neither a RST nor FINs of either side, in whatever
// number, end it before.
func testRSTEndsNothing(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen)
	for _, f := range families("tcp", 6000) {
		to := b.tunnelled(t, f.String(), b.fromClient(t, f.packet()), f.packet(), "flow_begun", "steer")
		changed := natted(f, 40000)
		b.learns(t, to, changed.packet())
		for _, flags := range []byte{wire.RST, wire.RST | wire.ACK, wire.FIN | wire.ACK} {
			segment := worldly(changed, wire.TCP{Seq: 1 << 31, Flags: flags}, "")
			b.tunnelled(t, "of the world", b.fromWorld(t, segment), segment, "steer")
			segment = worldly(f.reversed(), wire.TCP{Seq: 1 << 31, Flags: flags}, "")
			b.tunnelled(t, "of the client", b.fromClient(t, segment), segment, "steer")
		}
		b.at(t, b.now+idle-time.Second)
		_, err := b.SweepTurn()
		must(t, err)
		if again := b.tunnelled(t, "after a pause", b.fromClient(t, f.later()), f.later(), "steer"); again.Instance != to.Instance {
			t.Errorf("after RSTs the flow went to %+v, not to %+v", again.Instance, to.Instance)
		}
		b.tunnelled(t, "after a pause", b.fromWorld(t, changed.reversed().later()), changed.reversed().later(), "steer")
	}
}
