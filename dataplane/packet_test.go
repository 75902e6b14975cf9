package dataplane

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"proffer/policy"
	"proffer/topo"
)

// TCP's flags (RFC 9293 §3.1).
const (
	fin = 0x01
	syn = 0x02
	rst = 0x04
	psh = 0x08
	ack = 0x10
)

// packet is a TCP segment in IPv6 in Ethernet, as a test writes it down; or a
// datagram, or an ICMP error about another packet; or all that in IPv4.
type packet struct {
	to, from topo.MAC
	class    byte
	hop      byte
	protocol topo.Protocol
	src, dst netip.AddrPort
	seq, ack uint32
	flags    byte
	options  []byte // a multiple of 4
	payload  []byte

	about   *packet // "packet too big": what was, and for which link
	linkMTU int
}

const clientISN = 7_000_000

// inward is a packet of the test's client for a port of the VIP.
func inward(port uint16, flags byte) packet {
	return packet{
		to: hereMAC, from: routerMAC, hop: 60, flags: flags, seq: clientISN,
		src: netip.AddrPortFrom(clientAddr, clientPort),
		dst: netip.AddrPortFrom(vipAddr, port),
	}
}

// outward is the answer's direction.
func outward(port uint16, flags byte) packet {
	p := inward(port, flags)
	p.src, p.dst = p.dst, p.src
	return p
}

// datagram is UDP's inward.
func datagram(port uint16, payload string) packet {
	p := inward(port, 0)
	p.protocol, p.payload = topo.UDP, []byte(payload)
	return p
}

// reply is a packet of the other direction.
func (p packet) reply(flags byte) packet {
	p.src, p.dst, p.flags = p.dst, p.src, flags
	return p
}

// tooBig is what a router says to the sender of p, an answer to the client.
func tooBig(p packet, mtu int) packet {
	router := netip.MustParseAddr("2001:db8:c::ff")
	if p.src.Addr().Is4() {
		router = netip.MustParseAddr("192.0.2.254")
	}
	return packet{
		to: hereMAC, from: routerMAC, hop: 60, protocol: p.protocol,
		src: netip.AddrPortFrom(router, 0), dst: p.src, about: &p, linkMTU: mtu,
	}
}

func (p packet) flow() policy.Flow {
	if p.about != nil {
		return p.about.reversed()
	}
	return policy.Flow{Client: p.src, VIP: p.dst, Protocol: p.protocol}
}

func (p packet) reversed() policy.Flow {
	return policy.Flow{Client: p.dst, VIP: p.src, Protocol: p.protocol}
}

// ip returns the packet from its IP header on.
func (p packet) ip() []byte {
	is6 := p.src.Addr().Is6()
	switch {
	case p.about != nil && is6:
		return p.around(58, p.icmp(2, 0))
	case p.about != nil:
		return p.around(1, p.icmp(3, 4))
	case p.protocol == topo.UDP:
		return p.around(17, p.udp())
	default:
		return p.around(6, p.tcp())
	}
}

func (p packet) tcp() []byte {
	tcp := make([]byte, 20, 20+len(p.options)+len(p.payload))
	binary.BigEndian.PutUint16(tcp[0:], p.src.Port())
	binary.BigEndian.PutUint16(tcp[2:], p.dst.Port())
	binary.BigEndian.PutUint32(tcp[4:], p.seq)
	binary.BigEndian.PutUint32(tcp[8:], p.ack)
	tcp[12] = byte(20+len(p.options)) / 4 << 4
	tcp[13] = p.flags
	binary.BigEndian.PutUint16(tcp[14:], 65000)
	tcp = append(append(tcp, p.options...), p.payload...)
	binary.BigEndian.PutUint16(tcp[16:], checksum(p.src.Addr(), p.dst.Addr(), 6, tcp))
	return tcp
}

// udp is a header of RFC 768 and the payload.
func (p packet) udp() []byte {
	udp := make([]byte, 8, 8+len(p.payload))
	binary.BigEndian.PutUint16(udp[0:], p.src.Port())
	binary.BigEndian.PutUint16(udp[2:], p.dst.Port())
	binary.BigEndian.PutUint16(udp[4:], uint16(8+len(p.payload)))
	udp = append(udp, p.payload...)
	binary.BigEndian.PutUint16(udp[6:], checksum(p.src.Addr(), p.dst.Addr(), 17, udp))
	return udp
}

// icmp quotes as much of p.about as p.payload has room for, or all of it.
func (p packet) icmp(kind, code byte) []byte {
	icmp := append([]byte{kind, code, 0, 0}, binary.BigEndian.AppendUint32(nil, uint32(p.linkMTU))...)
	icmp = append(icmp, p.about.ip()...)
	if kind == 2 {
		binary.BigEndian.PutUint16(icmp[2:], checksum(p.src.Addr(), p.dst.Addr(), 58, icmp))
	} else {
		binary.BigEndian.PutUint16(icmp[2:], ^sum(icmp))
	}
	return icmp
}

// around puts the IP header in front.
func (p packet) around(next byte, b []byte) []byte {
	if p.src.Addr().Is6() {
		return append(ipv6(p.src.Addr(), p.dst.Addr(), p.class, 0x12345, p.hop, next, len(b)), b...)
	}
	return append(ipv4(p.src.Addr(), p.dst.Addr(), p.class, p.hop, next, len(b)), b...)
}

func (p packet) frame() []byte { return ethernet(p.to, p.from, p.ip()) }

// ethernet puts a link header before a packet of either family.
func ethernet(to, from topo.MAC, ip []byte) []byte {
	kind := []byte{0x86, 0xdd}
	if ip[0]>>4 == 4 {
		kind = []byte{0x08, 0x00}
	}
	return slices.Concat(to[:], from[:], kind, ip)
}

// ipv6 is a header of RFC 8200 §3.
func ipv6(src, dst netip.Addr, class byte, label uint32, hop, next byte, length int) []byte {
	b := make([]byte, 8, 40)
	binary.BigEndian.PutUint32(b, 6<<28|uint32(class)<<20|label)
	binary.BigEndian.PutUint16(b[4:], uint16(length))
	b[6], b[7] = next, hop
	return append(append(b, src.AsSlice()...), dst.AsSlice()...)
}

// ipv4 is a header of RFC 791 §3.1 without options; its packet must not be
// fragmented.
func ipv4(src, dst netip.Addr, tos, ttl, protocol byte, length int) []byte {
	b := []byte{0x45, tos, 0, 0, 0xbe, 0xef, 0x40, 0, ttl, protocol, 0, 0}
	binary.BigEndian.PutUint16(b[2:], uint16(20+length))
	b = append(append(b, src.AsSlice()...), dst.AsSlice()...)
	binary.BigEndian.PutUint16(b[10:], ^sum(b))
	return b
}

// srh is a segment routing header of RFC 8754 §2; list as on the wire, last
// segment first.
func srh(next byte, left, last int, list ...netip.Addr) []byte {
	b := []byte{next, byte(2 * len(list)), 4, byte(left), byte(last), 0, 0, 0}
	for _, a := range list {
		b = append(b, a.AsSlice()...)
	}
	return b
}

// sid is an address of the layout of struct sid.
func sid(locator netip.Prefix, function byte, generation uint16) netip.Addr {
	a := locator.Addr().As16()
	a[9] = function
	binary.BigEndian.PutUint16(a[10:], generation)
	return netip.AddrFrom16(a)
}

// withReport fills the last bits of a SID.
func withReport(sid netip.Addr, report byte) netip.Addr {
	a := sid.As16()
	a[15] = report
	return netip.AddrFrom16(a)
}

// own is a node's own address, locator::1.
func own(locator netip.Prefix) netip.Addr {
	a := locator.Addr().As16()
	a[15] = 1
	return netip.AddrFrom16(a)
}

// route is how a packet carries segments.
type route struct {
	from     netip.Prefix
	segments []netip.Addr // first to last
	insert   bool         // into the packet itself
	hop      byte         // of the outer header
	key      *topo.Key    // signs
	back     bool         // around an answer: its flow is the other way round
}

func (r route) flowOf(p packet) policy.Flow {
	if r.back {
		return p.reversed()
	}
	return p.flow()
}

// around is p on its route, from the first IPv6 header on.
func (r route) around(p packet) []byte {
	if r.insert {
		return r.into(p)
	}
	signed := r.segments[1:]
	if len(r.segments) == 1 {
		signed = r.segments
	}
	b := outer(r.from, r.flowOf(p), p.class, r.hop, r.segments, p.ip())
	copy(b[8:24], r.sender(r.flowOf(p), signed...))
	return b
}

// sender is the sender's address: with the tag over those segments, in the order
// of an SRH, if there is a key.
func (r route) sender(f policy.Flow, segments ...netip.Addr) []byte {
	a := own(r.from).As16()
	if r.key != nil {
		tag := policy.Tag(*r.key, f, r.from, lastFirst(segments))
		copy(a[8:], tag[:])
	}
	return a[:]
}

// into is (sender, segments…, destination) behind the packet's own IPv6 header.
func (r route) into(p packet) []byte {
	b := p.ip()
	covered := append(slices.Clone(r.segments), p.dst.Addr())
	list := append(lastFirst(covered), netip.AddrFrom16([16]byte(r.sender(r.flowOf(p), covered...))))
	header := srh(b[6], len(r.segments), len(list)-1, list...)
	b[6] = 43
	copy(b[24:40], r.segments[0].AsSlice())
	b = slices.Concat(b[:40], header, b[40:])
	binary.BigEndian.PutUint16(b[4:], uint16(len(b)-40))
	return b
}

// outer puts inner behind an outer header and, for more than one segment, a
// reduced SRH; segments first to last.
func outer(from netip.Prefix, f policy.Flow, class, hop byte, segments []netip.Addr, inner []byte) []byte {
	inside := byte(41)
	if inner[0]>>4 == 4 {
		inside = 4
	}
	next, header := inside, []byte(nil)
	if n := len(segments); n > 1 {
		next, header = 43, srh(inside, n-1, n-2, lastFirst(segments[1:])...)
	}
	ip := ipv6(own(from), segments[0], class, policy.FlowLabel(f), hop, next, len(header)+len(inner))
	return slices.Concat(ip, header, inner)
}

// checksum of an upper-layer packet (RFC 8200 §8.1, RFC 9293 §3.1) whose own
// field is zero.
func checksum(src, dst netip.Addr, protocol byte, b []byte) uint16 {
	return ^sum(slices.Concat(src.AsSlice(), dst.AsSlice(), []byte{0, 0, byte(len(b) >> 8), byte(len(b)), 0, 0, 0, protocol}, b))
}

// sum adds 16-bit words in one's complement (RFC 1071).
func sum(b []byte) uint16 {
	if len(b)%2 == 1 {
		b = append(slices.Clone(b), 0)
	}
	total := uint32(0)
	for i := 0; i < len(b); i += 2 {
		total += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for total > 0xffff {
		total = total>>16 + total&0xffff
	}
	return uint16(total)
}
