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
	vlan := slices.Concat(plain[:12], []byte{0x81, 0, 0, 5}, plain[12:])
	arp := make([]byte, 42)
	arp[12], arp[13] = 8, 6
	ipv4 := make([]byte, 60)
	ipv4[12], ipv4[13], ipv4[14] = 8, 0, 0x45
	echo := ethernet(hereMAC, routerMAC, append(ipv6(clientAddr, vipAddr, 0, 0, 60, 58, 8), 128, 0, 0, 0, 0, 1, 0, 1))
	udp := ethernet(hereMAC, routerMAC, append(ipv6(clientAddr, vipAddr, 0, 0, 60, 17, 8), 0x9c, 0x40, 0, 80, 0, 8, 0, 0))
	elsewhere := inward(huntPort, syn)
	elsewhere.dst = netip.MustParseAddrPort("[2001:db8:f::2]:80")
	toSelf := inward(huntPort, syn)
	toSelf.dst = netip.AddrPortFrom(own(lbLocator), huntPort)
	for _, c := range []struct {
		what  string
		frame []byte
		why   string
	}{
		{"no more than a link header", plain[:14], "pass_not_ipv6"},
		{"VLAN tag", vlan, "pass_not_ipv6"},
		{"ARP", arp, "pass_not_ipv6"},
		{"IPv4", ipv4, "pass_not_ipv6"},
		{"IPv6 header cut short", plain[:53], "pass_not_ipv6"},
		{"version 4 behind IPv6's type", altered(plain, atVersion, 0x40), "pass_not_ipv6"},
		{"echo request to the VIP", echo, "pass_not_service"},
		{"UDP to the VIP", udp, "pass_not_service"},
		{"no next header, to the VIP", altered(plain, atNext, 59), "pass_not_service"},
		{"another port", inward(8080, syn).frame(), "pass_not_service"},
		{"another address", elsewhere.frame(), "pass_not_service"},
		{"another address, cut at the ports", elsewhere.frame()[:57], "pass_not_service"},
		{"another address, fragment", altered(elsewhere.frame(), atNext, 44), "pass_not_service"},
		{"own address", toSelf.frame(), "pass_own_address"},
		{"own address, cut short", toSelf.frame()[:60], "pass_own_address"},
	} {
		r.send(t, c.frame).is(t, c.what, xdpPass, c.frame, c.why)
	}
}

// testClientMalformed: what is for a VIP and cannot be understood is dropped.
func testClientMalformed(t *testing.T, seen hits) {
	r := newLBRig(t, seen, hunting(2, 4))
	plain := inward(huntPort, syn).frame()
	for cut := atUpper; cut < len(plain); cut++ {
		r.send(t, plain[:cut]).is(t, fmt.Sprintf("cut to %d bytes", cut), xdpDrop, nil, "drop_truncated")
	}
	for _, next := range []byte{0, 43, 60, 51, 135, 139, 140} {
		r.send(t, altered(plain, atNext, next)).is(t, fmt.Sprint("extension header ", next), xdpDrop, nil, "drop_extension_header")
	}
	r.send(t, altered(plain, atNext, 44)).is(t, "fragment", xdpDrop, nil, "drop_fragment")
	for offset := range byte(5) {
		r.send(t, altered(plain, atUpper+12, offset<<4)).is(t, fmt.Sprint("data offset ", offset), xdpDrop, nil, "drop_malformed_tcp")
	}
	r.send(t, altered(plain, atUpper+12, 6<<4)).is(t, "data offset past the end", xdpDrop, nil, "drop_malformed_tcp")
	r.send(t, altered(plain, atLength+1, 19)).is(t, "19 bytes of TCP", xdpDrop, nil, "drop_malformed_tcp")
	r.send(t, altered(plain, atLength+1, 21)).is(t, "longer than the frame", xdpDrop, nil, "drop_truncated")
	r.send(t, altered(plain, atHop, 1)).is(t, "hop limit 1", xdpDrop, nil, "drop_hop_limit")
	r.send(t, altered(plain, atHop, 0)).is(t, "hop limit 0", xdpDrop, nil, "drop_hop_limit")
}

// testNoWayOut: nobody to send to, no neighbour, no room.
func testNoWayOut(t *testing.T, seen hits) {
	t.Run("no server", func(t *testing.T) {
		empty, emptySingle := hunting(2, 0), service(81, topo.Single, 1, 0)
		r := newLBRig(t, seen, empty, emptySingle, service(82, topo.Single, 1, 3))
		r.send(t, inward(huntPort, syn).frame()).is(t, "hunt", xdpDrop, nil, "drop_no_server")
		r.send(t, inward(81, syn).frame()).is(t, "single", xdpDrop, nil, "drop_no_server")
	})
	t.Run("no next hop", func(t *testing.T) {
		r := newLBRig(t, seen, hunting(2, 4))
		r.resolve(t, 0)
		r.send(t, inward(huntPort, syn).frame()).is(t, "SYN", xdpDrop, nil, "drop_no_next_hop")
	})
	t.Run("too big", func(t *testing.T) {
		r := newLBRig(t, seen, hunting(2, 4))
		for _, c := range []struct {
			length int // of the packet without link header
			fits   bool
		}{{mtu - 64, true}, {mtu - 63, false}, {mtu, false}} {
			p := inward(huntPort, ack)
			p.payload = make([]byte, c.length-60)
			if c.fits {
				r.send(t, p.frame()).is(t, "fits", xdpTX, recovered(p, r.list(0, p.flow())), "recover")
			} else {
				r.send(t, p.frame()).is(t, "does not fit", xdpDrop, nil, "drop_too_big")
			}
		}
	})
	t.Run("no headroom", func(t *testing.T) {
		r := newLBRig(t, seen, hunting(4, 8))
		const metadata = 216 // takes most of XDP's 256 bytes of headroom
		p := inward(huntPort, syn).frame()
		r.ctx = xdpContext{Data: metadata, DataEnd: uint32(metadata + len(p))}
		r.send(t, append(make([]byte, metadata), p...)).is(t, "metadata", xdpDrop, nil, "drop_no_headroom")
	})
}

// xdpContext is struct xdp_md of linux/bpf.h.
type xdpContext struct {
	Data, DataEnd, DataMeta, IngressIfindex, RxQueueIndex, EgressIfindex uint32
}

// testUnwrap: the signals of servers, and what is none.
func testUnwrap(t *testing.T, seen hits) {
	r := newLBRig(t, seen, hunting(2, 4))
	p := outward(huntPort, syn|ack)
	generation := policy.Generation(clientISN)
	good := signalFrom(1, p, create, generation)
	stranger := p
	stranger.src = netip.MustParseAddrPort("[2001:db8:f::2]:80")
	otherPort := outward(8080, syn|ack)
	lost := p
	lost.dst = netip.MustParseAddrPort("[2001:db8:dead::1]:40000")
	dying := p
	dying.hop = 1
	for _, c := range []struct {
		what  string
		frame []byte
		why   []string
	}{
		{"a server's function", signalFrom(1, p, 0xca, generation), []string{"drop_unknown_function"}},
		{"no function of any node", signalFrom(1, p, 0x77, generation), []string{"drop_unknown_function"}},
		{"unknown locator", signalFrom(9, p, create, generation), []string{"drop_unknown_sender"}},
		{"inner source no VIP", signalFrom(1, stranger, create, generation), []string{"drop_not_from_vip"}},
		{"inner source another port", signalFrom(1, otherPort, create, generation), []string{"drop_not_from_vip"}},
		{"inner protocol not TCP", altered(good, atUpper+6, 17), []string{"drop_not_from_vip"}},
		{"hop limit", signalFrom(1, dying, create, generation), []string{"drop_hop_limit", "stickiness_created"}},
		{"no neighbour", signalFrom(1, lost, create, generation), []string{"drop_no_next_hop", "stickiness_created"}},
	} {
		out := r.send(t, c.frame)
		if len(c.why) > 1 { // it need not have learnt of a packet that goes nowhere
			out.reasons = slices.DeleteFunc(out.reasons, func(s string) bool { return s == c.why[1] })
		}
		out.is(t, c.what, xdpDrop, nil, c.why[0])
	}
	addr, err := r.Unresolved()
	if err != nil || addr != lost.dst.Addr() {
		t.Errorf("unresolved %v, %v, want %v", addr, err, lost.dst.Addr())
	}
	r.send(t, signalFrom(1, p, create, generation+1)).is(t, "a signal", xdpTX, unwrapped(p), "stickiness_created")
}

// testUnwrapCongestion: all combinations of RFC 6040, figure 4.
func testUnwrapCongestion(t *testing.T, seen hits) {
	r := newLBRig(t, seen, hunting(2, 4))
	p := outward(huntPort, syn|ack)
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
	p := outward(huntPort, syn|ack)
	good := signalFrom(1, p, create, 5)
	for cut := atUpper; cut < len(good); cut++ {
		r.send(t, good[:cut]).is(t, fmt.Sprintf("cut to %d bytes", cut), xdpDrop, nil, "drop_truncated")
	}
	longer := slices.Clone(good) // the inner packet says more than the outer one holds
	binary.BigEndian.PutUint16(longer[atUpper+4:], 21)
	r.send(t, append(longer, 0)).is(t, "inner packet past the outer one's end", xdpDrop, nil, "drop_truncated")
	r.send(t, altered(good, atUpper, 0x40)).is(t, "version 4 inside", xdpDrop, nil, "drop_truncated")
	r.send(t, altered(good, atNext, 6)).is(t, "TCP for a SID", xdpDrop, nil, "drop_not_ipv6_inside")
	r.send(t, altered(good, atUpper+40+12, 4<<4)).is(t, "data offset 4", xdpDrop, nil, "drop_malformed_tcp")
	for _, c := range badSRHs(sid(lbLocator, create, 5)) {
		r.send(t, withSRH(good, c.header)).is(t, c.what, xdpDrop, nil, "drop_malformed_srh")
	}
	to := sid(lbLocator, create, 5)
	last := srh(41, 0, 0, to)
	r.send(t, withSRH(good, last)).is(t, "SRH that has done its work", xdpTX, unwrapped(p), "stickiness_created")
	onward := srh(41, 1, 1, clientAddr, to)
	r.send(t, withSRH(good, onward)).is(t, "a signal that wants to go on", xdpDrop, nil, "drop_segments_left")
}
