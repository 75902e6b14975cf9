package rig

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"proffer/policy"
	"proffer/topo"
)

// Inner is a packet of either family and any protocol, as it travels in segments.
type Inner struct {
	Flow  policy.Flow // as the client sends it
	Class byte
	Ip    []byte
}

// IpOf puts an IP header of the family of p's addresses before payload.
func IpOf(p Packet, protocol byte, payload []byte) []byte {
	src, dst := p.Src.Addr(), p.Dst.Addr()
	if !src.Is4() {
		return append(ipv6(src, dst, p.Class, 0x12345, p.Hop, protocol, len(payload)), payload...)
	}
	b := make([]byte, 20) // RFC 791 §3.1
	b[0], b[1], b[8], b[9] = 0x45, p.Class, p.Hop, protocol
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)+len(payload)))
	copy(b[12:], src.AsSlice())
	copy(b[16:], dst.AsSlice())
	binary.BigEndian.PutUint16(b[10:], Sum16(b))
	return append(b, payload...)
}

// Sum16 is the Internet checksum (RFC 1071) of an even number of bytes.
func Sum16(b []byte) uint16 {
	total := uint32(0)
	for i := 0; i < len(b); i += 2 {
		total += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for total > 0xffff {
		total = total>>16 + total&0xffff
	}
	return ^uint16(total)
}

// InnerTCP is p, in IPv4 if its addresses are.
func InnerTCP(p Packet) Inner {
	six := p
	six.Src, six.Dst = mappedPort(p.Src), mappedPort(p.Dst)
	tcp := six.Ip()[40:]
	tcp[16], tcp[17] = 0, 0
	binary.BigEndian.PutUint16(tcp[16:], Checksum(p.Src.Addr(), p.Dst.Addr(), 6, tcp))
	return Inner{Flow: p.Flow(), Class: p.Class, Ip: IpOf(p, 6, tcp)}
}

// InnerUDP is a datagram of p's addresses and payload.
func InnerUDP(p Packet) Inner {
	udp := binary.BigEndian.AppendUint16(nil, p.Src.Port())
	udp = binary.BigEndian.AppendUint16(udp, p.Dst.Port())
	udp = binary.BigEndian.AppendUint16(udp, uint16(8+len(p.Payload)))
	udp = append(append(udp, 0, 0), p.Payload...)
	binary.BigEndian.PutUint16(udp[6:], Checksum(p.Src.Addr(), p.Dst.Addr(), 17, udp))
	f := p.Flow()
	f.Protocol = topo.UDP
	return Inner{Flow: f, Class: p.Class, Ip: IpOf(p, 17, udp)}
}

// InnerTooBig says that a packet of the flow was too big for a link on its way to
// the client (RFC 4443 §3.2, RFC 1191 §4).
func InnerTooBig(in Inner, p Packet) Inner {
	back := p
	back.Src, back.Dst = p.Dst, p.Src
	quoted := InnerTCP(back).Ip
	if in.Flow.Protocol == topo.UDP {
		quoted = InnerUDP(back).Ip
	}
	icmp, protocol := []byte{2, 0, 0, 0, 0, 0, 1400 >> 8, 1400 & 0xff}, byte(58)
	if p.Src.Addr().Is4() {
		icmp, protocol = []byte{3, 4, 0, 0, 0, 0, 1400 >> 8, 1400 & 0xff}, 1
	}
	p.Class = 0
	return Inner{Flow: in.Flow, Ip: IpOf(p, protocol, append(icmp, quoted...))}
}

func mappedPort(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom16(a.Addr().As16()), a.Port())
}

// Frame is the packet by itself.
func (in Inner) Frame(to, from topo.MAC) []byte {
	if in.Ip[0]>>4 == 6 {
		return Ethernet(to, from, in.Ip)
	}
	return slices.Concat(to[:], from[:], []byte{8, 0}, in.Ip)
}

// Encapsulated puts in behind an outer header from an address, and a reduced SRH
// if there is more than one segment (RFC 8986 §5.2).
func Encapsulated(from netip.Addr, in Inner, class, hop byte, segments []netip.Addr) []byte {
	version := byte(41)
	if in.Ip[0]>>4 == 4 {
		version = 4
	}
	next, header := version, []byte(nil)
	if n := len(segments); n > 1 {
		next, header = 43, SRH(version, n-1, n-2, lastFirst(segments[1:])...)
	}
	ip := ipv6(from, segments[0], class, policy.FlowLabel(in.Flow), hop, next, len(header)+len(in.Ip))
	return slices.Concat(ip, header, in.Ip)
}

// InsertedInto puts (from, segments…, destination) into in itself, which is IPv6
// (6LB §II).
func InsertedInto(from netip.Addr, in Inner, segments []netip.Addr) []byte {
	dst := netip.AddrFrom16([16]byte(in.Ip[24:40]))
	list := append([]netip.Addr{dst}, append(lastFirst(segments), from)...)
	header := SRH(in.Ip[6], len(segments), len(segments)+1, list...)
	out := slices.Concat(in.Ip[:40], header, in.Ip[40:])
	binary.BigEndian.PutUint16(out[4:], uint16(len(out)-40))
	out[6] = 43
	copy(out[24:40], segments[0].AsSlice())
	return out
}

func lastFirst(segments []netip.Addr) []netip.Addr {
	list := slices.Clone(segments)
	slices.Reverse(list)
	return list
}

// Tagged is an address of a node with a tag for interface identifier.
func Tagged(locator netip.Prefix, tag [8]byte) netip.Addr {
	a := locator.Addr().As16()
	copy(a[8:], tag[:])
	return netip.AddrFrom16(a)
}

// WithKey names a key in a SID.
func WithKey(sid netip.Addr, id uint8) netip.Addr {
	a := sid.As16()
	a[13] = id
	return netip.AddrFrom16(a)
}

// WithFlags says more in a SID: enum sid_flags.
func WithFlags(sid netip.Addr, flags byte) netip.Addr {
	a := sid.As16()
	a[12] |= flags
	return netip.AddrFrom16(a)
}

const (
	SidRetry = 1
	SidFinal = 2
)

// OverIPv4 gives a packet of the test's client the addresses of IPv4.
func OverIPv4(p Packet) Packet {
	for _, a := range []*netip.AddrPort{&p.Src, &p.Dst} {
		switch a.Addr() {
		case ClientAddr:
			*a = netip.AddrPortFrom(Client4, a.Port())
		case VipAddr:
			*a = netip.AddrPortFrom(Vip4, a.Port())
		}
	}
	return p
}

var (
	Client4 = netip.MustParseAddr("192.0.2.7")
	Vip4    = netip.MustParseAddr("203.0.113.1")
)
