package lb_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"proffer/dataplane/objects"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// testPassUntouched: whatever is for no service of ours is the kernel's.
func testPassUntouched(t *testing.T, seen rig.Hits) {
	r := rig.NewLB(t, seen, rig.Hunting(2, 4))
	plain := rig.Inward(rig.HuntPort, wire.SYN).Frame()
	plain4 := rig.OverIPv4(rig.Inward(rig.HuntPort, wire.SYN)).Frame()
	vlan := slices.Concat(plain[:12], []byte{0x81, 0, 0, 5}, plain[12:])
	arp := make([]byte, 42)
	copy(arp, rig.HereMAC[:])
	arp[12], arp[13] = 8, 6
	elsewhere := rig.Inward(rig.HuntPort, wire.SYN)
	elsewhere.Dst = netip.MustParseAddrPort("[2001:db8:f::2]:80")
	toSelf := rig.Inward(rig.HuntPort, wire.SYN)
	toSelf.Dst = netip.AddrPortFrom(wire.Own(rig.LbLocator), rig.HuntPort)
	for _, c := range []struct {
		label string
		frame []byte
		why   string
	}{
		{"no more than a link header", plain[:14], "pass_not_ip"},
		{"VLAN tag", vlan, "pass_not_ip"},
		{"ARP", arp, "pass_not_ip"},
		{"IPv6 header cut short", plain[:53], "pass_not_ip"},
		{"IPv4 header cut short", plain4[:33], "pass_not_ip"},
		{"IPv4 header of 16 bytes", rig.Altered(plain4, rig.AtVersion, 0x44), "pass_not_ip"},
		{"IPv4 shorter than its header", rig.Altered(plain4, 17, 19), "pass_not_ip"},
		{"version 4 behind IPv6's type", rig.Altered(plain, rig.AtVersion, 4<<4), "pass_not_ip"},
		{"version 6 behind IPv4's type", rig.Altered(rig.Altered(plain, rig.AtEtherType, 8), rig.AtEtherType+1, 0), "pass_not_ip"},
		{"version 5", rig.Altered(plain, rig.AtVersion, 0x50), "pass_not_ip"},
		{"version 4 for our own address", rig.Altered(toSelf.Frame(), rig.AtVersion, 4<<4), "pass_not_ip"},
		{"another address", elsewhere.Frame(), "pass_not_service"},
		{"another address, cut at the ports", elsewhere.Frame()[:57], "pass_not_service"},
		{"another address, fragment", rig.Altered(elsewhere.Frame(), rig.AtNext, 44), "pass_not_service"},
		{"IPv4", plain4, "pass_not_service"},
		{"own address", toSelf.Frame(), "pass_own_address"},
		{"own address, cut short", toSelf.Frame()[:60], "pass_own_address"},
	} {
		r.Send(t, c.frame).Is(t, c.label, rig.XDPPass, c.frame, c.why)
	}
}

// testClientMalformed: a malformed packet for a VIP is dropped.
func testClientMalformed(t *testing.T, seen rig.Hits) {
	r := rig.NewLB(t, seen, rig.Hunting(2, 4), rig.Hunting(2, 4, rig.Over4), rig.Hunting(2, 4, rig.OverUDP))
	for _, p := range []rig.Packet{rig.Inward(rig.HuntPort, wire.SYN), rig.OverIPv4(rig.Inward(rig.HuntPort, wire.SYN))} {
		plain := p.Frame()
		header := len(plain) - 20
		for cut := header; cut < len(plain); cut++ {
			why := "drop_truncated"
			if cut >= header+4 { // the ports name the service
				why = "drop_malformed_transport"
			}
			r.Send(t, plain[:cut]).Is(t, fmt.Sprintf("cut to %d bytes", cut), rig.XDPDrop, nil, why)
		}
		for offset := range byte(5) {
			r.Send(t, rig.Altered(plain, header+12, offset<<4)).Is(t, fmt.Sprint("data offset ", offset), rig.XDPDrop, nil, "drop_malformed_transport")
		}
		r.Send(t, rig.Altered(plain, header+12, 6<<4)).Is(t, "data offset past the end", rig.XDPDrop, nil, "drop_malformed_transport")
	}
	plain := rig.Inward(rig.HuntPort, wire.SYN).Frame()
	for _, next := range []byte{0, 60, 51, 135, 139, 140} { // the TCP header is no such header
		r.Send(t, rig.Altered(plain, rig.AtNext, next)).Is(t, fmt.Sprint("extension header ", next), rig.XDPDrop, nil, "drop_extension_header")
	}
	r.Send(t, rig.Altered(plain, rig.AtNext, 44)).Is(t, "fragment", rig.XDPDrop, nil, "drop_fragment")
	r.Send(t, rig.Altered(plain, rig.AtLength+1, 19)).Is(t, "19 bytes of TCP", rig.XDPDrop, nil, "drop_malformed_transport")
	r.Send(t, rig.Altered(plain, rig.AtLength+1, 21)).Is(t, "longer than the frame", rig.XDPDrop, nil, "drop_truncated")

	four := rig.OverIPv4(rig.Inward(rig.HuntPort, wire.SYN)).Frame()
	r.Send(t, rig.Altered(four, 14, 0x4f)).Is(t, "options longer than the packet", rig.XDPDrop, nil, "drop_extension_header")
	r.Send(t, rig.Altered(four, 20, 0x20)).Is(t, "IPv4, more fragments", rig.XDPDrop, nil, "drop_fragment")
	r.Send(t, rig.Altered(four, 21, 5)).Is(t, "IPv4, a later fragment", rig.XDPDrop, nil, "drop_fragment")
	r.Send(t, rig.Altered(four, 17, 41)).Is(t, "longer than the frame", rig.XDPDrop, nil, "drop_truncated")

	udp := rig.Datagram(rig.HuntPort, "12345").Frame()
	for cut := rig.AtUpper; cut < rig.AtUpper+8; cut++ {
		r.Send(t, udp[:cut]).Is(t, fmt.Sprintf("UDP cut to %d bytes", cut), rig.XDPDrop, nil, "drop_truncated")
	}
	r.Send(t, udp[:rig.AtUpper+9]).Is(t, "UDP cut in its payload", rig.XDPDrop, nil, "drop_truncated")
	r.Send(t, rig.Altered(udp, rig.AtUpper+5, 7)).Is(t, "UDP length 7", rig.XDPDrop, nil, "drop_malformed_transport")
	r.Send(t, rig.Altered(udp, rig.AtUpper+5, 14)).Is(t, "UDP length past the packet", rig.XDPDrop, nil, "drop_malformed_transport")
}

// testUnknownDispatch: a dispatch that the programs do not have is not taken for
// another; each packet of the service is dropped and counted.
func testUnknownDispatch(t *testing.T, seen rig.Hits) {
	hashed := func(s *topo.Service) { s.Fragments = topo.HashFragments }
	r := rig.NewLB(t, seen, rig.Hunting(2, 4, hashed), rig.Hunting(2, 4, rig.OverUDP))
	services := r.Objects().Services
	for i := range services.MaxEntries() {
		var record objects.LBService
		if err := services.Lookup(i, &record); err != nil {
			t.Fatal(err)
		}
		if record.Buckets == 0 {
			continue
		}
		record.Dispatch = 200
		if err := services.Put(i, record); err != nil {
			t.Fatal(err)
		}
	}
	drop := func(label string, frame []byte, reason string) {
		r.Send(t, frame).Is(t, label, rig.XDPDrop, nil, reason)
	}
	drop("SYN", rig.Inward(rig.HuntPort, wire.SYN).Frame(), "drop_unknown_dispatch")
	drop("ACK", rig.Inward(rig.HuntPort, wire.ACK).Frame(), "drop_unknown_dispatch")
	drop("datagram", rig.Datagram(rig.HuntPort, "x").Frame(), "drop_unknown_dispatch")
	for _, f := range fragmentsOf(rig.Inward(rig.HuntPort, wire.ACK)) {
		drop("fragment", f, "drop_fragment")
	}
	answer := rig.Outward(rig.HuntPort, wire.SYN|wire.ACK)
	drop("cs", rig.SignalFrom(2, answer, wire.CreateStickiness, 7), "drop_not_from_vip")
	drop("rms", rig.SignalFrom(2, answer, wire.RemoveStickiness, 7), "drop_not_from_vip")
	drop("nm", rig.SignalFrom(2, rig.Inward(rig.HuntPort, wire.ACK), wire.NotMine, 7), "drop_not_from_vip")
}

// testNoWayOut: no server to send to, no neighbour, no room before the frame.
func testNoWayOut(t *testing.T, seen rig.Hits) {
	r := rig.NewLB(t, seen, rig.Hunting(2, 0), rig.Service(81, topo.Stateless, 1, 0), rig.Service(82, topo.Stateless, 1, 3))
	r.Send(t, rig.Inward(rig.HuntPort, wire.SYN).Frame()).Is(t, "hunt", rig.XDPDrop, nil, "drop_no_server")
	r.Send(t, rig.Inward(81, wire.SYN).Frame()).Is(t, "single", rig.XDPDrop, nil, "drop_no_server")
	r.Resolve(t, 0)
	r.Send(t, rig.Inward(82, wire.SYN).Frame()).Is(t, "single, no next hop", rig.XDPDrop, nil, "drop_no_next_hop")

	r.Reconfigure(t, rig.Hunting(4, 8))
	r.Resolve(t, 3) // those that are not resolved are left out
	for i := range 60 {
		if i == 20 {
			r.Reconfigure(t, rig.Hunting(2, 8))
			r.Resolve(t, 3)
		}
		p := rig.Inward(rig.HuntPort, wire.SYN)
		p.Src = netip.AddrPortFrom(rig.ClientAddr, uint16(rig.ClientPort+1+i))
		near := slices.DeleteFunc(r.List(t, 0, p.Flow()), func(s int) bool { return s > 2 })
		if len(near) == 0 {
			r.Send(t, p.Frame()).Is(t, "no server is near", rig.XDPDrop, nil, "drop_no_next_hop")
		} else {
			r.Send(t, p.Frame()).Is(t, "some are near", rig.XDPTX, rig.Offered(p, near), "offer")
		}
	}
	r.Resolve(t, 255)
	r.Reconfigure(t, rig.Hunting(2, 8, rig.Members))
	r.Learn(t, 7, rig.ClientISN)
	r.Resolve(t, 3)
	r.Send(t, rig.Inward(rig.HuntPort, wire.ACK).Frame()).Is(t, "the owner has no next hop", rig.XDPDrop, nil, "drop_no_next_hop")

	r.Resolve(t, 255)
	const metadata = 216 // takes most of XDP's 256 bytes of headroom
	p := rig.Inward(rig.HuntPort, wire.SYN)
	p.Src = netip.AddrPortFrom(rig.ClientAddr, 1)
	r.Ctx = xdpContext{Data: metadata, DataEnd: uint32(metadata + len(p.Frame()))}
	r.Send(t, append(make([]byte, metadata), p.Frame()...)).Is(t, "metadata", rig.XDPDrop, nil, "drop_no_headroom")
}

// xdpContext is struct xdp_md of linux/bpf.h.
type xdpContext struct {
	Data, DataEnd, DataMeta, IngressIfindex, RxQueueIndex, EgressIfindex uint32
}

// testUnwrap: the signals of servers, and packets that are none.
func testUnwrap(t *testing.T, seen rig.Hits) {
	r := rig.NewLB(t, seen, rig.Hunting(2, 4, rig.Members), rig.Service(81, topo.Stateless, 1, 4))
	p := rig.SynAck(rig.HuntPort)
	generation := wire.Generation(rig.ClientISN)
	stranger := p
	stranger.Src = netip.MustParseAddrPort("[2001:db8:f::2]:80")
	otherPort := rig.Outward(8080, wire.SYN|wire.ACK)
	lost := p
	lost.Dst = netip.MustParseAddrPort("[2001:db8:dead::1]:40000")
	dying := p
	dying.Hop = 1
	udp := p
	udp.Protocol = topo.UDP
	for _, c := range []struct {
		label string
		frame []byte
		why   string
	}{
		{"a server's function", rig.SignalFrom(1, p, wire.ConnectAvail, generation), "drop_unknown_function"},
		{"no function of any node", rig.SignalFrom(1, p, 0x77, generation), "drop_unknown_function"},
		{"unknown locator", rig.SignalFrom(9, p, wire.CreateStickiness, generation), "drop_unknown_sender"},
		{"a server goes on with a list", rig.SignalFrom(1, rig.Inward(rig.HuntPort, wire.ACK), wire.RecoverStickiness, generation), "drop_unknown_sender"},
		{"inner source no VIP", rig.SignalFrom(1, stranger, wire.CreateStickiness, generation), "drop_not_from_vip"},
		{"inner source another port", rig.SignalFrom(1, otherPort, wire.CreateStickiness, generation), "drop_not_from_vip"},
		{"inner protocol another", rig.SignalFrom(1, udp, wire.CreateStickiness, generation), "drop_not_from_vip"},
		{"inner source a router", rig.SignalFrom(1, rig.TooBig(rig.Sized(rig.Inward(rig.HuntPort, wire.ACK), 200), 1400), wire.CreateStickiness, generation), "drop_not_from_vip"},
		{"inner packet inward", rig.SignalFrom(1, rig.Inward(rig.HuntPort, wire.ACK), wire.CreateStickiness, generation), "drop_not_from_vip"},
		{"given back, outward", rig.SignalFrom(1, p, wire.NotMine, generation), "drop_not_from_vip"},
		{"a service without flows", rig.SignalFrom(1, rig.Outward(81, wire.SYN|wire.ACK), wire.CreateStickiness, generation), "drop_not_from_vip"},
		{"hop limit", rig.SignalFrom(1, dying, wire.CreateStickiness, generation), "drop_hop_limit"},
		{"no neighbour", rig.SignalFrom(1, lost, wire.CreateStickiness, generation), "drop_no_next_hop"},
	} {
		r.Send(t, c.frame).Is(t, c.label, rig.XDPDrop, nil, c.why)
		if n, _ := r.Table.Count(t); n != 0 {
			t.Fatalf("%s: it left %d entries", c.label, n)
		}
	}
	addr, err := r.Unresolved()
	if err != nil || addr != lost.Dst.Addr() {
		t.Errorf("unresolved %v, %v, want %v", addr, err, lost.Dst.Addr())
	}
	r.Send(t, rig.SignalFrom(1, p, wire.CreateStickiness, generation)).Is(t, "a signal", rig.XDPTX, rig.Unwrapped(p), "stickiness_created")
}

// testUnwrapCongestion: all combinations of RFC 6040, figure 4.
func testUnwrapCongestion(t *testing.T, seen rig.Hits) {
	r := rig.NewLB(t, seen, rig.Hunting(2, 4, rig.Members), rig.Hunting(2, 4, rig.Over4, rig.Members))
	for _, p := range []rig.Packet{rig.SynAck(rig.HuntPort), rig.OverIPv4(rig.SynAck(rig.HuntPort))} {
		r.Send(t, rig.SignalFrom(1, p, wire.CreateStickiness, 5))
		for _, c := range rig.Congestion {
			p.Class = 0xb8 | c.Inner
			frame := rig.SignalFrom(1, p, wire.CreateStickiness, 5)
			frame[rig.AtVersion+1] = frame[rig.AtVersion+1]&^0x30 | c.Outer<<4
			label := fmt.Sprintf("inner %02b, outer %02b", c.Inner, c.Outer)
			if c.Want == rig.Dropped {
				r.Send(t, frame).Is(t, label, rig.XDPDrop, nil, "drop_congested")
				continue
			}
			q := p
			q.Class = 0xb8 | c.Want
			r.Send(t, frame).Is(t, label, rig.XDPTX, rig.Unwrapped(q), "stickiness_repeated")
		}
	}
}

// testServerMalformed: signals that cannot be understood.
func testServerMalformed(t *testing.T, seen rig.Hits) {
	r := rig.NewLB(t, seen, rig.Hunting(2, 4, rig.Members))
	p := rig.SynAck(rig.HuntPort)
	good := rig.SignalFrom(1, p, wire.CreateStickiness, 5)
	inserted := rig.SignalFrom(1, p, wire.CreateStickiness, 5, rig.Insert)
	for cut := rig.AtUpper; cut < len(good); cut++ {
		r.Send(t, good[:cut]).Is(t, fmt.Sprintf("cut to %d bytes", cut), rig.XDPDrop, nil, "drop_truncated")
	}
	for cut := rig.AtUpper; cut < len(inserted); cut++ {
		r.Send(t, inserted[:cut]).Is(t, fmt.Sprintf("inserted, cut to %d bytes", cut), rig.XDPDrop, nil, "drop_truncated")
	}
	longer := slices.Clone(good) // the inner length exceeds the outer packet
	binary.BigEndian.PutUint16(longer[rig.AtUpper+4:], 21)
	r.Send(t, append(longer, 0)).Is(t, "inner packet past the outer one's end", rig.XDPDrop, nil, "drop_truncated")
	r.Send(t, rig.Altered(good, rig.AtUpper, 0x50)).Is(t, "version 5 inside", rig.XDPDrop, nil, "drop_truncated")
	r.Send(t, rig.Altered(good, rig.AtNext, 4)).Is(t, "IPv6 where IPv4 was announced", rig.XDPDrop, nil, "drop_nothing_inside")
	r.Send(t, rig.Altered(good, rig.AtNext, 6)).Is(t, "TCP for a SID", rig.XDPDrop, nil, "drop_nothing_inside")
	r.Send(t, rig.Altered(good, rig.AtNext, 59)).Is(t, "no next header", rig.XDPDrop, nil, "drop_nothing_inside")
	r.Send(t, rig.Altered(good, rig.AtUpper+40+12, 4<<4)).Is(t, "data offset 4", rig.XDPDrop, nil, "drop_malformed_transport")
	r.Send(t, rig.Altered(inserted, rig.AtUpper+56+12, 4<<4)).Is(t, "inserted, data offset 4", rig.XDPDrop, nil, "drop_malformed_transport")
	for _, c := range rig.BadSRHs(rig.SID(rig.LbLocator, wire.CreateStickiness, 5)) {
		r.Send(t, rig.WithSRH(good, c.Header)).Is(t, c.Name, rig.XDPDrop, nil, "drop_malformed_srh")
	}
	to := rig.SID(rig.LbLocator, wire.CreateStickiness, 5)
	for _, c := range rig.WithTLVs(to) {
		r.Send(t, rig.WithSRH(good, c.Header)).Is(t, c.Name, rig.XDPDrop, nil, "drop_tlv")
	}
	last := wire.SRH(wire.ProtoIPv6, 0, to)
	r.Send(t, rig.WithSRH(good, last)).Is(t, "SRH that has done its work", rig.XDPTX, rig.Unwrapped(p), "stickiness_created")
	onward := wire.SRH(wire.ProtoIPv6, 1, to, rig.ClientAddr)
	r.Send(t, rig.WithSRH(good, onward)).Is(t, "a signal that wants to go on", rig.XDPDrop, nil, "drop_segments_left")
	r.Send(t, rig.Altered(inserted, rig.AtUpper+3, 2)).Is(t, "inserted, two to go", rig.XDPDrop, nil, "drop_segments_left")
}
