package rig

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"proffer/policy"
	"proffer/topo"
)

// TCP's flags (RFC 9293 §3.1).
const (
	FIN = 0x01
	SYN = 0x02
	RST = 0x04
	PSH = 0x08
	ACK = 0x10
)

// Packet is a TCP segment in IPv6 in Ethernet, as a test writes it down; or a
// datagram, or an ICMP error about another packet; or all that in IPv4.
type Packet struct {
	To, From topo.MAC
	Class    byte
	Hop      byte
	Protocol topo.Protocol
	Src, Dst netip.AddrPort
	Seq, Ack uint32
	Flags    byte
	Options  []byte // a multiple of 4
	Payload  []byte

	about   *Packet // "packet too big": what was, and for which link
	linkMTU int
}

const ClientISN = 7_000_000

// Inward is a packet of the test's client for a port of the VIP.
func Inward(port uint16, flags byte) Packet {
	return Packet{
		To: HereMAC, From: RouterMAC, Hop: 60, Flags: flags, Seq: ClientISN,
		Src: netip.AddrPortFrom(ClientAddr, ClientPort),
		Dst: netip.AddrPortFrom(VipAddr, port),
	}
}

// Outward is the answer's direction.
func Outward(port uint16, flags byte) Packet {
	p := Inward(port, flags)
	p.Src, p.Dst = p.Dst, p.Src
	return p
}

// Datagram is UDP's inward.
func Datagram(port uint16, payload string) Packet {
	p := Inward(port, 0)
	p.Protocol, p.Payload = topo.UDP, []byte(payload)
	return p
}

// Reply is a packet of the other direction.
func (p Packet) Reply(flags byte) Packet {
	p.Src, p.Dst, p.Flags = p.Dst, p.Src, flags
	return p
}

// TooBig is what a router says to the sender of p, an answer to the client.
func TooBig(p Packet, mtu int) Packet {
	router := netip.MustParseAddr("2001:db8:c::ff")
	if p.Src.Addr().Is4() {
		router = netip.MustParseAddr("192.0.2.254")
	}
	return Packet{
		To: HereMAC, From: RouterMAC, Hop: 60, Protocol: p.Protocol,
		Src: netip.AddrPortFrom(router, 0), Dst: p.Src, about: &p, linkMTU: mtu,
	}
}

func (p Packet) Flow() policy.Flow {
	if p.about != nil {
		return p.about.Reversed()
	}
	return policy.Flow{Client: p.Src, VIP: p.Dst, Protocol: p.Protocol}
}

func (p Packet) Reversed() policy.Flow {
	return policy.Flow{Client: p.Dst, VIP: p.Src, Protocol: p.Protocol}
}

// Ip returns the packet from its IP header on.
func (p Packet) Ip() []byte {
	is6 := p.Src.Addr().Is6()
	switch {
	case p.about != nil && is6:
		return p.Around(58, p.icmp(2, 0))
	case p.about != nil:
		return p.Around(1, p.icmp(3, 4))
	case p.Protocol == topo.UDP:
		return p.Around(17, p.udp())
	default:
		return p.Around(6, p.Tcp())
	}
}

func (p Packet) Tcp() []byte {
	tcp := make([]byte, 20, 20+len(p.Options)+len(p.Payload))
	binary.BigEndian.PutUint16(tcp[0:], p.Src.Port())
	binary.BigEndian.PutUint16(tcp[2:], p.Dst.Port())
	binary.BigEndian.PutUint32(tcp[4:], p.Seq)
	binary.BigEndian.PutUint32(tcp[8:], p.Ack)
	tcp[12] = byte(20+len(p.Options)) / 4 << 4
	tcp[13] = p.Flags
	binary.BigEndian.PutUint16(tcp[14:], 65000)
	tcp = append(append(tcp, p.Options...), p.Payload...)
	binary.BigEndian.PutUint16(tcp[16:], Checksum(p.Src.Addr(), p.Dst.Addr(), 6, tcp))
	return tcp
}

// udp is a header of RFC 768 and the payload.
func (p Packet) udp() []byte {
	udp := make([]byte, 8, 8+len(p.Payload))
	binary.BigEndian.PutUint16(udp[0:], p.Src.Port())
	binary.BigEndian.PutUint16(udp[2:], p.Dst.Port())
	binary.BigEndian.PutUint16(udp[4:], uint16(8+len(p.Payload)))
	udp = append(udp, p.Payload...)
	binary.BigEndian.PutUint16(udp[6:], Checksum(p.Src.Addr(), p.Dst.Addr(), 17, udp))
	return udp
}

// icmp quotes as much of p.about as p.payload has room for, or all of it.
func (p Packet) icmp(kind, code byte) []byte {
	icmp := append([]byte{kind, code, 0, 0}, binary.BigEndian.AppendUint32(nil, uint32(p.linkMTU))...)
	icmp = append(icmp, p.about.Ip()...)
	if kind == 2 {
		binary.BigEndian.PutUint16(icmp[2:], Checksum(p.Src.Addr(), p.Dst.Addr(), 58, icmp))
	} else {
		binary.BigEndian.PutUint16(icmp[2:], ^Sum(icmp))
	}
	return icmp
}

// Around puts the IP header in front.
func (p Packet) Around(next byte, b []byte) []byte {
	if p.Src.Addr().Is6() {
		return append(ipv6(p.Src.Addr(), p.Dst.Addr(), p.Class, 0x12345, p.Hop, next, len(b)), b...)
	}
	return append(ipv4(p.Src.Addr(), p.Dst.Addr(), p.Class, p.Hop, next, len(b)), b...)
}

func (p Packet) Frame() []byte { return Ethernet(p.To, p.From, p.Ip()) }

// Ethernet puts a link header before a packet of either family.
func Ethernet(to, from topo.MAC, ip []byte) []byte {
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
	binary.BigEndian.PutUint16(b[10:], ^Sum(b))
	return b
}

// SRH is a segment routing header of RFC 8754 §2; list as on the wire, last
// segment first.
func SRH(next byte, left, last int, list ...netip.Addr) []byte {
	b := []byte{next, byte(2 * len(list)), 4, byte(left), byte(last), 0, 0, 0}
	for _, a := range list {
		b = append(b, a.AsSlice()...)
	}
	return b
}

// SID is an address of the layout of struct sid.
func SID(locator netip.Prefix, function byte, generation uint16) netip.Addr {
	a := locator.Addr().As16()
	a[9] = function
	binary.BigEndian.PutUint16(a[10:], generation)
	return netip.AddrFrom16(a)
}

// WithReport fills the last bits of a SID.
func WithReport(sid netip.Addr, report byte) netip.Addr {
	a := sid.As16()
	a[15] = report
	return netip.AddrFrom16(a)
}

// Own is a node's own address, locator::1.
func Own(locator netip.Prefix) netip.Addr {
	a := locator.Addr().As16()
	a[15] = 1
	return netip.AddrFrom16(a)
}

// Route is how a packet carries segments.
type Route struct {
	From     netip.Prefix
	Segments []netip.Addr // first to last
	Insert   bool         // into the packet itself
	Hop      byte         // of the outer header
	Key      *topo.Key    // signs
	back     bool         // around an answer: its flow is the other way round
}

func (r Route) flowOf(p Packet) policy.Flow {
	if r.back {
		return p.Reversed()
	}
	return p.Flow()
}

// Around is p on its route, from the first IPv6 header on.
func (r Route) Around(p Packet) []byte {
	if r.Insert {
		return r.into(p)
	}
	signed := r.Segments[1:]
	if len(r.Segments) == 1 {
		signed = r.Segments
	}
	b := Outer(r.From, r.flowOf(p), p.Class, r.Hop, r.Segments, p.Ip())
	copy(b[8:24], r.sender(r.flowOf(p), signed...))
	return b
}

// sender is the sender's address: with the tag over those segments, in the order
// of an SRH, if there is a key.
func (r Route) sender(f policy.Flow, segments ...netip.Addr) []byte {
	a := Own(r.From).As16()
	if r.Key != nil {
		tag := policy.Tag(*r.Key, f, r.From, lastFirst(segments))
		copy(a[8:], tag[:])
	}
	return a[:]
}

// into is (sender, segments…, destination) behind the packet's own IPv6 header.
func (r Route) into(p Packet) []byte {
	b := p.Ip()
	covered := append(slices.Clone(r.Segments), p.Dst.Addr())
	list := append(lastFirst(covered), netip.AddrFrom16([16]byte(r.sender(r.flowOf(p), covered...))))
	header := SRH(b[6], len(r.Segments), len(list)-1, list...)
	b[6] = 43
	copy(b[24:40], r.Segments[0].AsSlice())
	b = slices.Concat(b[:40], header, b[40:])
	binary.BigEndian.PutUint16(b[4:], uint16(len(b)-40))
	return b
}

// Outer puts inner behind an outer header and, for more than one segment, a
// reduced SRH; segments first to last.
func Outer(from netip.Prefix, f policy.Flow, class, hop byte, segments []netip.Addr, inner []byte) []byte {
	inside := byte(41)
	if inner[0]>>4 == 4 {
		inside = 4
	}
	next, header := inside, []byte(nil)
	if n := len(segments); n > 1 {
		next, header = 43, SRH(inside, n-1, n-2, lastFirst(segments[1:])...)
	}
	ip := ipv6(Own(from), segments[0], class, policy.FlowLabel(f), hop, next, len(header)+len(inner))
	return slices.Concat(ip, header, inner)
}

// Checksum of an upper-layer packet (RFC 8200 §8.1, RFC 9293 §3.1) whose own
// field is zero.
func Checksum(src, dst netip.Addr, protocol byte, b []byte) uint16 {
	return ^Sum(slices.Concat(src.AsSlice(), dst.AsSlice(), []byte{0, 0, byte(len(b) >> 8), byte(len(b)), 0, 0, 0, protocol}, b))
}

// Sum adds 16-bit words in one's complement (RFC 1071).
func Sum(b []byte) uint16 {
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
