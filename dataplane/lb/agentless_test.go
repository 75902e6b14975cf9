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

// testAgentless: each delivery's frame, of the first packet of a flow, of later ones, and without
// flows; and exactly the packets that do not fit are answered.
func testAgentless(t *testing.T, seen rig.Hits) {
	for _, c := range deliveryCases() {
		r := newAgentless(t, seen, c.services()...)
		send := func(label string, svc int, p rig.Packet, reasons ...string) {
			t.Helper()
			server := chosen(t, r, svc, p)
			out := r.Send(t, p.Frame())
			out.Frame = comparable(out.Frame)
			out.Is(t, fmt.Sprintf("%v: %s", c, label), rig.XDPTX, comparable(delivered(p, c.by, server, c.four)), append(reasons, c.counter)...)
		}
		send("SYN", 0, c.packet(81, wire.SYN), "deliver", "flow_begun")
		send("ACK", 0, c.packet(81, wire.ACK), "steer", "flow_established")
		send("data", 0, rig.Sized(c.packet(81, wire.ACK), 300), "steer")
		send("without flows", 1, c.packet(82, wire.ACK), "deliver")
		send("as long as fits", 1, rig.Sized(c.packet(82, wire.ACK), rig.MTU-c.header), "deliver")
		send("a flow's, as long as fits", 0, rig.Sized(c.packet(81, wire.ACK), rig.MTU-c.header), "steer")
		last := c.packet(81, wire.ACK)
		last.Hop = 1
		r.Send(t, last.Frame()).Is(t, fmt.Sprintf("%v: at its last hop", c), rig.XDPTX, nil, "time_exceeded")
		if c.header == 0 {
			continue
		}
		for _, port := range []uint16{81, 82} {
			long := rig.Sized(c.packet(port, wire.ACK), rig.MTU-c.header+1)
			out := r.Send(t, long.Frame())
			out.Is(t, fmt.Sprintf("%v: too long", c), rig.XDPTX, nil, "too_big")
			if got := mtuIn(out.Frame); got != rig.MTU-c.header {
				t.Errorf("%v: the report has %d bytes, want %d", c, got, rig.MTU-c.header)
			}
		}
	}
}

// testAgentlessUnresolved: a server at its link address is a neighbour itself: another prefix's
// next hop, as a gateway's, would send the packet back.
func testAgentlessUnresolved(t *testing.T, seen rig.Hits) {
	c := deliveryCase{by: topo.ByL2}
	r := newAgentless(t, seen, c.services()...)
	err := r.SetNextHops(topo.NextHops{netip.MustParsePrefix("2001:db8:5::/64"): rig.RouterMAC, netip.MustParsePrefix("::/0"): rig.RouterMAC})
	if err != nil {
		t.Fatal(err)
	}
	r.Send(t, c.packet(82, wire.ACK).Frame()).Is(t, "behind a gateway", rig.XDPDrop, nil, "drop_no_next_hop")
	if without, all := r.Resolved(); len(without) != 4 || all != 4 {
		t.Errorf("%d of %d servers have no next hop, want all", len(without), all)
	}
	tunnel := deliveryCase{by: topo.ByVXLAN, four: true}
	rig.Enter(t) // a link without an IPv4 address
	r = rig.LoadLB(t, seen, rig.LBConfig(tunnel.services()...))
	onLink(t, r)
	r.Send(t, tunnel.packet(82, wire.ACK).Frame()).Is(t, "no source", rig.XDPDrop, nil, "drop_no_next_hop")
}

// testAgentlessChanges: a flow stays with its server when the delivery changes, at once.
func testAgentlessChanges(t *testing.T, seen rig.Hits) {
	six := func(d topo.Delivery) topo.Service { return kept(4, by(d, false)) }
	p := client(0, wire.SYN)
	for _, pair := range [][2]topo.Delivery{{topo.ByAgent, topo.ByDT6}, {topo.ByL2, topo.ByVXLAN}} {
		r := newAgentless(t, seen, six(pair[0]))
		r.Send(t, p.Frame())
		r.Send(t, client(0, wire.ACK).Frame())
		server := chosen(t, r, 0, p)
		for _, d := range []topo.Delivery{pair[1], pair[0], pair[1]} {
			r.Reconfigure(t, six(d))
			onLink(t, r)
			ack := client(0, wire.ACK)
			out := r.Send(t, ack.Frame())
			if want := delivered(ack, d, server, false); out.Action != rig.XDPTX || string(out.Frame) != string(want) {
				t.Errorf("%v after %v: action %d for %v\n got %x\nwant %x", d, pair, out.Action, out.Reasons, out.Frame, want)
			}
		}
	}
}

// testAgentlessSums: over IPv6 the UDP checksum covers each kind of packet that has one itself; none
// is made up where it has none.
func testAgentlessSums(t *testing.T, seen rig.Hits) {
	for _, vip4 := range []bool{false, true} {
		c := deliveryCase{by: topo.ByVXLAN, vip4: vip4}
		services := c.services()
		datagrams := services[1]
		datagrams.VIP.Protocol = topo.UDP
		r := newAgentless(t, seen, append(services, datagrams)...)
		datagram := rig.Datagram(82, "odd")
		about := rig.TooBig(c.packet(82, wire.ACK).Reply(wire.ACK), 1400)
		if vip4 {
			datagram = rig.OverIPv4(datagram)
		}
		for _, p := range []rig.Packet{datagram, about, c.packet(82, wire.ACK), rig.Sized(c.packet(82, wire.ACK), 401)} {
			wantUDPSum(t, fmt.Sprintf("IPv4 %v, %v", vip4, p), r.Send(t, p.Frame()), false)
		}
		if vip4 {
			bare := datagram.Frame()
			clear(bare[14+20+6 : 14+20+8])
			wantUDPSum(t, "a datagram without checksum", r.Send(t, bare), true)
		}
	}
}

// wantUDPSum demands a right checksum of the outer datagram, or none.
func wantUDPSum(t *testing.T, label string, out rig.Outcome, none bool) {
	t.Helper()
	if out.Action != rig.XDPTX || out.Frame[12] != 0x86 || out.Frame[20] != 17 {
		t.Fatalf("%s: action %d for %v: %x", label, out.Action, out.Reasons, out.Frame)
	}
	ip := out.Frame[14:]
	h := wire.IP{Source: netip.AddrFrom16([16]byte(ip[8:])), Destination: netip.AddrFrom16([16]byte(ip[24:]))}
	field := binary.BigEndian.Uint16(ip[46:])
	if none && field != 0 || !none && (field == 0 || h.Checksum(wire.ProtoUDP, ip[40:]) != 0) {
		t.Errorf("%s: UDP checksum %04x", label, field)
	}
}

// testAgentlessFragments: a fragment goes where the whole packet would, by each delivery.
func testAgentlessFragments(t *testing.T, seen rig.Hits) {
	for _, c := range deliveryCases() {
		services := c.services()
		services[1].Fragments = topo.HashFragments
		r := newAgentless(t, seen, services...)
		p := c.packet(82, wire.ACK)
		whole := r.Send(t, p.Frame())
		whole.Is(t, fmt.Sprintf("%v, whole", c), rig.XDPTX, nil, "deliver", c.counter)
		for _, f := range fragmentsOf(p) {
			out := r.Send(t, slices.Clone(f))
			out.Is(t, fmt.Sprintf("%v, fragment", c), rig.XDPTX, nil, "deliver", c.counter)
			want := f[14:]
			if c.vip4 {
				want[8]--
				rig.Resum(want)
			} else {
				want[7]--
			}
			if string(out.Frame[:6]) != string(whole.Frame[:6]) || string(out.Frame[14+c.header:]) != string(want) {
				t.Errorf("%v: the fragment left as %x, want %x for %x", c, out.Frame, want, whole.Frame[:6])
			}
		}
	}
}
