package dataplane

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"proffer/policy"
	"proffer/topo"
)

// inner is a packet of either family and any protocol, as it travels in segments.
type inner struct {
	flow  policy.Flow // as the client sends it
	class byte
	ip    []byte
}

// ipOf puts an IP header of the family of p's addresses before payload.
func ipOf(p packet, protocol byte, payload []byte) []byte {
	src, dst := p.src.Addr(), p.dst.Addr()
	if !src.Is4() {
		return append(ipv6(src, dst, p.class, 0x12345, p.hop, protocol, len(payload)), payload...)
	}
	b := make([]byte, 20) // RFC 791 §3.1
	b[0], b[1], b[8], b[9] = 0x45, p.class, p.hop, protocol
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)+len(payload)))
	copy(b[12:], src.AsSlice())
	copy(b[16:], dst.AsSlice())
	binary.BigEndian.PutUint16(b[10:], sum16(b))
	return append(b, payload...)
}

// sum16 is the Internet checksum (RFC 1071) of an even number of bytes.
func sum16(b []byte) uint16 {
	total := uint32(0)
	for i := 0; i < len(b); i += 2 {
		total += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for total > 0xffff {
		total = total>>16 + total&0xffff
	}
	return ^uint16(total)
}

// innerTCP is p, in IPv4 if its addresses are.
func innerTCP(p packet) inner {
	six := p
	six.src, six.dst = mappedPort(p.src), mappedPort(p.dst)
	tcp := six.ip()[40:]
	tcp[16], tcp[17] = 0, 0
	binary.BigEndian.PutUint16(tcp[16:], checksum(p.src.Addr(), p.dst.Addr(), 6, tcp))
	return inner{flow: p.flow(), class: p.class, ip: ipOf(p, 6, tcp)}
}

// innerUDP is a datagram of p's addresses and payload.
func innerUDP(p packet) inner {
	udp := binary.BigEndian.AppendUint16(nil, p.src.Port())
	udp = binary.BigEndian.AppendUint16(udp, p.dst.Port())
	udp = binary.BigEndian.AppendUint16(udp, uint16(8+len(p.payload)))
	udp = append(append(udp, 0, 0), p.payload...)
	binary.BigEndian.PutUint16(udp[6:], checksum(p.src.Addr(), p.dst.Addr(), 17, udp))
	f := p.flow()
	f.Protocol = topo.UDP
	return inner{flow: f, class: p.class, ip: ipOf(p, 17, udp)}
}

// innerTooBig says that a packet of the flow was too big for a link on its way to
// the client (RFC 4443 §3.2, RFC 1191 §4).
func innerTooBig(in inner, p packet) inner {
	back := p
	back.src, back.dst = p.dst, p.src
	quoted := innerTCP(back).ip
	if in.flow.Protocol == topo.UDP {
		quoted = innerUDP(back).ip
	}
	icmp, protocol := []byte{2, 0, 0, 0, 0, 0, 1400 >> 8, 1400 & 0xff}, byte(58)
	if p.src.Addr().Is4() {
		icmp, protocol = []byte{3, 4, 0, 0, 0, 0, 1400 >> 8, 1400 & 0xff}, 1
	}
	p.class = 0
	return inner{flow: in.flow, ip: ipOf(p, protocol, append(icmp, quoted...))}
}

func mappedPort(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom16(a.Addr().As16()), a.Port())
}

// frame is the packet by itself.
func (in inner) frame(to, from topo.MAC) []byte {
	if in.ip[0]>>4 == 6 {
		return ethernet(to, from, in.ip)
	}
	return slices.Concat(to[:], from[:], []byte{8, 0}, in.ip)
}

// encapsulated puts in behind an outer header from an address, and a reduced SRH
// if there is more than one segment (RFC 8986 §5.2).
func encapsulated(from netip.Addr, in inner, class, hop byte, segments []netip.Addr) []byte {
	version := byte(41)
	if in.ip[0]>>4 == 4 {
		version = 4
	}
	next, header := version, []byte(nil)
	if n := len(segments); n > 1 {
		next, header = 43, srh(version, n-1, n-2, lastFirst(segments[1:])...)
	}
	ip := ipv6(from, segments[0], class, policy.FlowLabel(in.flow), hop, next, len(header)+len(in.ip))
	return slices.Concat(ip, header, in.ip)
}

// insertedInto puts (from, segments…, destination) into in itself, which is IPv6
// (6LB §II).
func insertedInto(from netip.Addr, in inner, segments []netip.Addr) []byte {
	dst := netip.AddrFrom16([16]byte(in.ip[24:40]))
	list := append([]netip.Addr{dst}, append(lastFirst(segments), from)...)
	header := srh(in.ip[6], len(segments), len(segments)+1, list...)
	out := slices.Concat(in.ip[:40], header, in.ip[40:])
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

// tagged is an address of a node with a tag for interface identifier.
func tagged(locator netip.Prefix, tag [8]byte) netip.Addr {
	a := locator.Addr().As16()
	copy(a[8:], tag[:])
	return netip.AddrFrom16(a)
}

// withKey names a key in a SID.
func withKey(sid netip.Addr, id uint8) netip.Addr {
	a := sid.As16()
	a[13] = id
	return netip.AddrFrom16(a)
}

// withFlags says more in a SID: enum sid_flags.
func withFlags(sid netip.Addr, flags byte) netip.Addr {
	a := sid.As16()
	a[12] |= flags
	return netip.AddrFrom16(a)
}

const (
	sidRetry = 1
	sidFinal = 2
)

// overIPv4 gives a packet of the test's client the addresses of IPv4.
func overIPv4(p packet) packet {
	for _, a := range []*netip.AddrPort{&p.src, &p.dst} {
		switch a.Addr() {
		case clientAddr:
			*a = netip.AddrPortFrom(client4, a.Port())
		case vipAddr:
			*a = netip.AddrPortFrom(vip4, a.Port())
		}
	}
	return p
}

var (
	client4 = netip.MustParseAddr("192.0.2.7")
	vip4    = netip.MustParseAddr("203.0.113.1")
)
