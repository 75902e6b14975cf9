package dataplane

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"proffer/policy"
	"proffer/topo"
)

// altered returns a copy of frame with one byte changed.
func altered(frame []byte, at int, to byte) []byte {
	frame = slices.Clone(frame)
	frame[at] = to
	return frame
}

// Offsets in a frame.
const (
	atEtherType = 12
	atVersion   = 14
	atLength    = 18
	atNext      = 20
	atHop       = 21
	atDst       = 38
	atUpper     = 54
)

// testPassUntouched: whatever is for no service of ours is the kernel's.
func testPassUntouched(t *testing.T, seen hits) {
	r := newLBRig(t, seen, hunting(2, 4))
	plain := inward(huntPort, syn).frame()
	plain4 := overIPv4(inward(huntPort, syn)).frame()
	vlan := slices.Concat(plain[:12], []byte{0x81, 0, 0, 5}, plain[12:])
	arp := make([]byte, 42)
	arp[12], arp[13] = 8, 6
	elsewhere := inward(huntPort, syn)
	elsewhere.dst = netip.MustParseAddrPort("[2001:db8:f::2]:80")
	toSelf := inward(huntPort, syn)
	toSelf.dst = netip.AddrPortFrom(own(lbLocator), huntPort)
	for _, c := range []struct {
		what  string
		frame []byte
		why   string
	}{
		{"no more than a link header", plain[:14], "pass_not_ip"},
		{"VLAN tag", vlan, "pass_not_ip"},
		{"ARP", arp, "pass_not_ip"},
		{"IPv6 header cut short", plain[:53], "pass_not_ip"},
		{"IPv4 header cut short", plain4[:33], "pass_not_ip"},
		{"IPv4 header of 16 bytes", altered(plain4, atVersion, 0x44), "pass_not_ip"},
		{"IPv4 shorter than its header", altered(plain4, 17, 19), "pass_not_ip"},
		{"version 4 behind IPv6's type", altered(plain, atVersion, 0x40), "pass_not_ip"},
		{"version 6 behind IPv4's type", altered(altered(plain, atEtherType, 8), atEtherType+1, 0), "pass_not_ip"},
		{"version 5", altered(plain, atVersion, 0x50), "pass_not_ip"},
		{"version 4 for our own address", altered(toSelf.frame(), atVersion, 0x40), "pass_not_ip"},
		{"UDP to TCP's port", datagram(huntPort, "x").frame(), "pass_not_service"},
		{"no next header, to the VIP", altered(plain, atNext, 59), "pass_not_service"},
		{"another port", inward(8080, syn).frame(), "pass_not_service"},
		{"another address", elsewhere.frame(), "pass_not_service"},
		{"another address, cut at the ports", elsewhere.frame()[:57], "pass_not_service"},
		{"another address, fragment", altered(elsewhere.frame(), atNext, 44), "pass_not_service"},
		{"IPv4", plain4, "pass_not_service"},
		{"too big about nobody's flow", tooBig(outward(8080, ack), 1400).frame(), "pass_not_service"},
		{"own address", toSelf.frame(), "pass_own_address"},
		{"own address, cut short", toSelf.frame()[:60], "pass_own_address"},
	} {
		r.send(t, c.frame).is(t, c.what, xdpPass, c.frame, c.why)
	}
}

// testClientMalformed: what is for a VIP and cannot be understood is dropped.
func testClientMalformed(t *testing.T, seen hits) {
	r := newLBRig(t, seen, hunting(2, 4), hunting(2, 4, over4), hunting(2, 4, overUDP))
	for _, p := range []packet{inward(huntPort, syn), overIPv4(inward(huntPort, syn))} {
		plain := p.frame()
		header := len(plain) - 20
		for cut := header; cut < len(plain); cut++ {
			why := "drop_truncated"
			if cut >= header+4 { // the ports say whose it is
				why = "drop_malformed_transport"
			}
			r.send(t, plain[:cut]).is(t, fmt.Sprintf("cut to %d bytes", cut), xdpDrop, nil, why)
		}
		for offset := range byte(5) {
			r.send(t, altered(plain, header+12, offset<<4)).is(t, fmt.Sprint("data offset ", offset), xdpDrop, nil, "drop_malformed_transport")
		}
		r.send(t, altered(plain, header+12, 6<<4)).is(t, "data offset past the end", xdpDrop, nil, "drop_malformed_transport")
	}
	plain := inward(huntPort, syn).frame()
	for _, next := range []byte{0, 43, 60, 51, 135, 139, 140} {
		r.send(t, altered(plain, atNext, next)).is(t, fmt.Sprint("extension header ", next), xdpDrop, nil, "drop_extension_header")
	}
	r.send(t, altered(plain, atNext, 44)).is(t, "fragment", xdpDrop, nil, "drop_fragment")
	r.send(t, altered(plain, atLength+1, 19)).is(t, "19 bytes of TCP", xdpDrop, nil, "drop_malformed_transport")
	r.send(t, altered(plain, atLength+1, 21)).is(t, "longer than the frame", xdpDrop, nil, "drop_truncated")
	r.send(t, altered(plain, atHop, 1)).is(t, "hop limit 1", xdpDrop, nil, "drop_hop_limit")
	r.send(t, altered(plain, atHop, 0)).is(t, "hop limit 0", xdpDrop, nil, "drop_hop_limit")

	four := overIPv4(inward(huntPort, syn)).frame()
	r.send(t, slices.Concat(altered(four, 14, 0x46)[:34], make([]byte, 4), four[34:])).
		is(t, "IPv4 option", xdpDrop, nil, "drop_extension_header")
	r.send(t, altered(four, 20, 0x20)).is(t, "IPv4, more fragments", xdpDrop, nil, "drop_fragment")
	r.send(t, altered(four, 21, 5)).is(t, "IPv4, a later fragment", xdpDrop, nil, "drop_fragment")
	r.send(t, altered(four, 22, 1)).is(t, "TTL 1", xdpDrop, nil, "drop_hop_limit")
	r.send(t, altered(four, 17, 41)).is(t, "longer than the frame", xdpDrop, nil, "drop_truncated")

	udp := datagram(huntPort, "12345").frame()
	for cut := atUpper; cut < atUpper+8; cut++ {
		r.send(t, udp[:cut]).is(t, fmt.Sprintf("UDP cut to %d bytes", cut), xdpDrop, nil, "drop_truncated")
	}
	r.send(t, udp[:atUpper+9]).is(t, "UDP cut in its payload", xdpDrop, nil, "drop_truncated")
	r.send(t, altered(udp, atUpper+5, 7)).is(t, "UDP length 7", xdpDrop, nil, "drop_malformed_transport")
	r.send(t, altered(udp, atUpper+5, 14)).is(t, "UDP length past the packet", xdpDrop, nil, "drop_malformed_transport")
}

// testNoWayOut: nobody to send to, no neighbour, no room before the frame.
func testNoWayOut(t *testing.T, seen hits) {
	r := newLBRig(t, seen, hunting(2, 0), service(81, topo.Single, 1, 0), service(82, topo.Single, 1, 3))
	r.send(t, inward(huntPort, syn).frame()).is(t, "hunt", xdpDrop, nil, "drop_no_server")
	r.send(t, inward(81, syn).frame()).is(t, "single", xdpDrop, nil, "drop_no_server")
	r.resolve(t, 0)
	r.send(t, inward(82, syn).frame()).is(t, "single, no next hop", xdpDrop, nil, "drop_no_next_hop")

	r.apply(t, hunting(4, 8))
	r.resolve(t, 3) // those that are not resolved are left out
	for i := range 60 {
		if i == 20 {
			r.apply(t, hunting(2, 8))
			r.resolve(t, 3)
		}
		p := inward(huntPort, syn)
		p.src = netip.AddrPortFrom(clientAddr, uint16(clientPort+1+i))
		near := slices.DeleteFunc(r.list(t, 0, p.flow()), func(s int) bool { return s > 2 })
		if len(near) == 0 {
			r.send(t, p.frame()).is(t, "nobody is near", xdpDrop, nil, "drop_no_server")
		} else {
			r.send(t, p.frame()).is(t, "some are near", xdpTX, offered(p, near), "offer")
		}
	}
	r.resolve(t, 255)
	r.learn(t, 7, clientISN)
	r.resolve(t, 3)
	r.send(t, inward(huntPort, ack).frame()).is(t, "the owner has no next hop", xdpDrop, nil, "drop_no_next_hop")

	r.resolve(t, 255)
	const metadata = 216 // takes most of XDP's 256 bytes of headroom
	p := inward(huntPort, syn)
	p.src = netip.AddrPortFrom(clientAddr, 1)
	r.ctx = xdpContext{Data: metadata, DataEnd: uint32(metadata + len(p.frame()))}
	r.send(t, append(make([]byte, metadata), p.frame()...)).is(t, "metadata", xdpDrop, nil, "drop_no_headroom")
}

// xdpContext is struct xdp_md of linux/bpf.h.
type xdpContext struct {
	Data, DataEnd, DataMeta, IngressIfindex, RxQueueIndex, EgressIfindex uint32
}

// testUnwrap: the signals of servers, and what is none.
func testUnwrap(t *testing.T, seen hits) {
	r := newLBRig(t, seen, hunting(2, 4), service(81, topo.Single, 1, 4))
	p := synAck(huntPort)
	generation := policy.Generation(clientISN)
	stranger := p
	stranger.src = netip.MustParseAddrPort("[2001:db8:f::2]:80")
	otherPort := outward(8080, syn|ack)
	lost := p
	lost.dst = netip.MustParseAddrPort("[2001:db8:dead::1]:40000")
	dying := p
	dying.hop = 1
	udp := p
	udp.protocol = topo.UDP
	for _, c := range []struct {
		what  string
		frame []byte
		why   string
	}{
		{"a server's function", signalFrom(1, p, 0xca, generation), "drop_unknown_function"},
		{"no function of any node", signalFrom(1, p, 0x77, generation), "drop_unknown_function"},
		{"unknown locator", signalFrom(9, p, create, generation), "drop_unknown_sender"},
		{"a server goes on with a list", signalFrom(1, inward(huntPort, ack), goOn, generation), "drop_unknown_sender"},
		{"inner source no VIP", signalFrom(1, stranger, create, generation), "drop_not_from_vip"},
		{"inner source another port", signalFrom(1, otherPort, create, generation), "drop_not_from_vip"},
		{"inner protocol another", signalFrom(1, udp, create, generation), "drop_not_from_vip"},
		{"inner packet inward", signalFrom(1, inward(huntPort, ack), create, generation), "drop_not_from_vip"},
		{"given back, outward", signalFrom(1, p, notMine, generation), "drop_not_from_vip"},
		{"a service without flows", signalFrom(1, outward(81, syn|ack), create, generation), "drop_not_from_vip"},
		{"hop limit", signalFrom(1, dying, create, generation), "drop_hop_limit"},
		{"no neighbour", signalFrom(1, lost, create, generation), "drop_no_next_hop"},
	} {
		r.send(t, c.frame).is(t, c.what, xdpDrop, nil, c.why)
		if n, _ := r.table.count(t); n != 0 {
			t.Fatalf("%s: it left %d entries", c.what, n)
		}
	}
	addr, err := r.Unresolved()
	if err != nil || addr != lost.dst.Addr() {
		t.Errorf("unresolved %v, %v, want %v", addr, err, lost.dst.Addr())
	}
	r.send(t, signalFrom(1, p, create, generation)).is(t, "a signal", xdpTX, unwrapped(p), "stickiness_created")
}

// testUnwrapCongestion: all combinations of RFC 6040, figure 4.
func testUnwrapCongestion(t *testing.T, seen hits) {
	r := newLBRig(t, seen, hunting(2, 4), hunting(2, 4, over4))
	for _, p := range []packet{synAck(huntPort), overIPv4(synAck(huntPort))} {
		r.send(t, signalFrom(1, p, create, 5))
		for _, c := range congestion {
			p.class = 0xb8 | c.inner
			frame := signalFrom(1, p, create, 5)
			frame[atVersion+1] = frame[atVersion+1]&^0x30 | c.outer<<4
			what := fmt.Sprintf("inner %02b, outer %02b", c.inner, c.outer)
			if c.want == dropped {
				r.send(t, frame).is(t, what, xdpDrop, nil, "drop_congested")
				continue
			}
			q := p
			q.class = 0xb8 | c.want
			r.send(t, frame).is(t, what, xdpTX, unwrapped(q), "stickiness_repeated")
		}
	}
}

// congestion is RFC 6040, figure 4: what becomes of the inner ECN field.
const dropped = 0xff

var congestion = []struct{ inner, outer, want byte }{
	{0, 0, 0}, {0, 2, 0}, {0, 1, 0}, {0, 3, dropped}, // Not-ECT
	{2, 0, 2}, {2, 2, 2}, {2, 1, 1}, {2, 3, 3}, // ECT(0)
	{1, 0, 1}, {1, 2, 1}, {1, 1, 1}, {1, 3, 3}, // ECT(1)
	{3, 0, 3}, {3, 2, 3}, {3, 1, 3}, {3, 3, 3}, // CE
}

// testServerMalformed: signals that cannot be understood.
func testServerMalformed(t *testing.T, seen hits) {
	r := newLBRig(t, seen, hunting(2, 4))
	p := synAck(huntPort)
	good := signalFrom(1, p, create, 5)
	inserted := signalFrom(1, p, create, 5, insert)
	for cut := atUpper; cut < len(good); cut++ {
		r.send(t, good[:cut]).is(t, fmt.Sprintf("cut to %d bytes", cut), xdpDrop, nil, "drop_truncated")
	}
	for cut := atUpper; cut < len(inserted); cut++ {
		r.send(t, inserted[:cut]).is(t, fmt.Sprintf("inserted, cut to %d bytes", cut), xdpDrop, nil, "drop_truncated")
	}
	longer := slices.Clone(good) // the inner packet says more than the outer one holds
	binary.BigEndian.PutUint16(longer[atUpper+4:], 21)
	r.send(t, append(longer, 0)).is(t, "inner packet past the outer one's end", xdpDrop, nil, "drop_truncated")
	r.send(t, altered(good, atUpper, 0x50)).is(t, "version 5 inside", xdpDrop, nil, "drop_truncated")
	r.send(t, altered(good, atNext, 4)).is(t, "IPv6 where IPv4 was announced", xdpDrop, nil, "drop_nothing_inside")
	r.send(t, altered(good, atNext, 6)).is(t, "TCP for a SID", xdpDrop, nil, "drop_nothing_inside")
	r.send(t, altered(good, atNext, 59)).is(t, "no next header", xdpDrop, nil, "drop_nothing_inside")
	r.send(t, altered(good, atUpper+40+12, 4<<4)).is(t, "data offset 4", xdpDrop, nil, "drop_malformed_transport")
	r.send(t, altered(inserted, atUpper+56+12, 4<<4)).is(t, "inserted, data offset 4", xdpDrop, nil, "drop_malformed_transport")
	for _, c := range badSRHs(sid(lbLocator, create, 5)) {
		r.send(t, withSRH(good, c.header)).is(t, c.what, xdpDrop, nil, "drop_malformed_srh")
	}
	to := sid(lbLocator, create, 5)
	last := srh(41, 0, 0, to)
	r.send(t, withSRH(good, last)).is(t, "SRH that has done its work", xdpTX, unwrapped(p), "stickiness_created")
	onward := srh(41, 1, 1, clientAddr, to)
	r.send(t, withSRH(good, onward)).is(t, "a signal that wants to go on", xdpDrop, nil, "drop_segments_left")
	r.send(t, altered(inserted, atUpper+3, 2)).is(t, "inserted, two to go", xdpDrop, nil, "drop_segments_left")
}
