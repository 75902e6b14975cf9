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

// packet is a TCP segment in IPv6 in Ethernet, as a test writes it down.
type packet struct {
	to, from topo.MAC
	class    byte
	hop      byte
	src, dst netip.AddrPort
	seq, ack uint32
	flags    byte
	options  []byte // a multiple of 4
	payload  []byte
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

func (p packet) flow() policy.Flow { return policy.Flow{Client: p.src, VIP: p.dst} }

func (p packet) reversed() policy.Flow { return policy.Flow{Client: p.dst, VIP: p.src} }

// ip returns the packet from its IPv6 header on.
func (p packet) ip() []byte {
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
	return append(ipv6(p.src.Addr(), p.dst.Addr(), p.class, 0x12345, p.hop, 6, len(tcp)), tcp...)
}

func (p packet) frame() []byte { return ethernet(p.to, p.from, p.ip()) }

func ethernet(to, from topo.MAC, ip []byte) []byte {
	return slices.Concat(to[:], from[:], []byte{0x86, 0xdd}, ip)
}

// ipv6 is a header of RFC 8200 §3.
func ipv6(src, dst netip.Addr, class byte, label uint32, hop, next byte, length int) []byte {
	b := make([]byte, 8, 40)
	binary.BigEndian.PutUint32(b, 6<<28|uint32(class)<<20|label)
	binary.BigEndian.PutUint16(b[4:], uint16(length))
	b[6], b[7] = next, hop
	return append(append(b, src.AsSlice()...), dst.AsSlice()...)
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

// own is a node's own address, locator::1.
func own(locator netip.Prefix) netip.Addr {
	a := locator.Addr().As16()
	a[15] = 1
	return netip.AddrFrom16(a)
}

// outer puts inner behind an outer header and, for more than one segment, a
// reduced SRH; segments first to last.
func outer(from netip.Prefix, f policy.Flow, class, hop byte, segments []netip.Addr, inner []byte) []byte {
	next, header := byte(41), []byte(nil)
	if n := len(segments); n > 1 {
		list := slices.Clone(segments[1:])
		slices.Reverse(list)
		next, header = 43, srh(41, n-1, n-2, list...)
	}
	ip := ipv6(own(from), segments[0], class, policy.FlowLabel(f), hop, next, len(header)+len(inner))
	return slices.Concat(ip, header, inner)
}

// checksum of an upper-layer packet (RFC 8200 §8.1) whose own field is zero.
func checksum(src, dst netip.Addr, protocol byte, b []byte) uint16 {
	pseudo := slices.Concat(src.AsSlice(), dst.AsSlice(), []byte{0, 0, byte(len(b) >> 8), byte(len(b)), 0, 0, 0, protocol}, b)
	if len(pseudo)%2 == 1 {
		pseudo = append(pseudo, 0)
	}
	total := uint32(0)
	for i := 0; i < len(pseudo); i += 2 {
		total += uint32(binary.BigEndian.Uint16(pseudo[i:]))
	}
	for total > 0xffff {
		total = total>>16 + total&0xffff
	}
	return ^uint16(total)
}
