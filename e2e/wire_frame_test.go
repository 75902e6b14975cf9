package e2e

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"proffer/wire"
)

// Numbers of RFC 8200 and 8754. How to read headers is written down here once more: a
// test that read frames as the product does would agree with any mistake.
const (
	ethernet = wire.EthernetBytes
	ipv6     = wire.IPv6Bytes
	routing  = wire.ProtoRouting
	tcp      = wire.ProtoTCP
)

// frame is a frame on a link, with what the tests ask of it.
type frame struct {
	bytes  []byte
	link   string
	toNode bool // from the router
	ip     header
	list   []netip.Addr // the segments of the SRH, first to visit first; without SRH the one that is the destination; nil: not encapsulated
	inner  []byte       // the IPv6 packet that has the TCP header
	tcp    *segment     // nil: neither TCP nor TCP inside IPv6
}

// header is an IPv6 header.
type header struct {
	source, destination netip.Addr
	class, next, hops   uint8
	label               uint32
}

// segment is a TCP header, and the addresses it is for.
type segment struct {
	from, to netip.AddrPort
	header   header
	seq      uint32
	flags    uint8
	payload  int
}

// flow is a connection as its client sends it, in either direction.
type flow struct{ client, vip netip.AddrPort }

func (f flow) String() string { return fmt.Sprintf("%v → %v", f.client, f.vip) }

func (s *segment) flow(vip netip.Addr) flow {
	if s.from.Addr() == vip {
		return flow{s.to, s.from}
	}
	return flow{s.from, s.to}
}

func (s *segment) String() string {
	return fmt.Sprintf("%v → %v flags %#02x seq %d with %d bytes", s.from, s.to, s.flags, s.seq, s.payload)
}

func (h header) String() string {
	return fmt.Sprintf("%v → %v next %d class %#x label %#x hops %d", h.source, h.destination, h.next, h.class, h.label, h.hops)
}

func (s *segment) has(flags uint8) bool { return s.flags&flags == flags }

func parseHeader(b []byte) header {
	first := binary.BigEndian.Uint32(b)
	return header{
		source:      netip.AddrFrom16([16]byte(b[8:24])),
		destination: netip.AddrFrom16([16]byte(b[24:40])),
		class:       uint8(first >> 20),
		label:       first & 0xfffff,
		next:        b[6],
		hops:        b[7],
	}
}

// parse reads a frame; what is no IPv6 keeps an empty header.
func parse(link string, toNode bool, b []byte) frame {
	f := frame{bytes: b, link: link, toNode: toNode}
	if len(b) < ethernet+ipv6 || binary.BigEndian.Uint16(b[12:]) != 0x86dd {
		return f
	}
	packet := b[ethernet:]
	f.ip = parseHeader(packet)
	f.inner = packet
	next, rest := f.ip.next, packet[ipv6:]
	if next == routing {
		f.list, next, rest = segments(rest)
	}
	if next == wire.ProtoIPv6 {
		if f.list == nil {
			f.list = []netip.Addr{f.ip.destination}
		}
		f.inner, next = rest, rest[6]
	}
	if next == tcp {
		f.tcp = parseTCP(f.inner)
	}
	return f
}

// segments reads an SRH (RFC 8754 §2): the list as it stands in the header, in
// the order of the visits, and what follows the header.
func segments(b []byte) (list []netip.Addr, next uint8, rest []byte) {
	length := 8 + 8*int(b[1])
	for at := 8; at+16 <= length; at += 16 {
		list = append(list, netip.AddrFrom16([16]byte(b[at:at+16])))
	}
	slices.Reverse(list)
	return list, b[0], b[length:]
}

func parseTCP(packet []byte) *segment {
	h, b := parseHeader(packet), packet[ipv6:]
	return &segment{
		header:  h,
		from:    netip.AddrPortFrom(h.source, binary.BigEndian.Uint16(b)),
		to:      netip.AddrPortFrom(h.destination, binary.BigEndian.Uint16(b[2:])),
		seq:     binary.BigEndian.Uint32(b[4:]),
		flags:   b[13],
		payload: int(binary.BigEndian.Uint16(packet[4:])) - 4*int(b[12]>>4),
	}
}

// way is every segment of an encapsulated frame as it leaves the LB, where the
// first is only the destination: the SRH is reduced (RFC 8986 §5.2).
func (f *frame) way() []netip.Addr {
	if f.ip.next != routing {
		return f.list
	}
	return append([]netip.Addr{f.ip.destination}, f.list...)
}

// encapsulated reports whether the frame has an outer header, with or without a
// list.
func (f *frame) encapsulated() bool { return f.list != nil }

// overhead is what is in front of the inner packet.
func (f *frame) overhead() int { return len(f.bytes) - ethernet - len(f.inner) }

// function is the function of a SID: 16 bits after the locator.
func function(sid netip.Addr) wire.Function {
	b := sid.As16()
	return wire.Function(binary.BigEndian.Uint16(b[8:]))
}

func locator(sid netip.Addr) netip.Prefix {
	p, _ := sid.Prefix(64)
	return p
}

// packet is the inner packet without its hop limit, and of a SYN-ACK without the
// MSS and the checksum over it: the same before and after the LB, which changes
// nothing else.
func (f *frame) packet() string {
	b := slices.Clone(f.inner)
	b[7] = 0
	if f.tcp != nil && f.tcp.has(wire.SYN|wire.ACK) {
		const checksum, mss = ipv6 + 16, ipv6 + 20 + 2 // Linux puts the MSS first
		clear(b[checksum : checksum+2])
		clear(b[mss : mss+2])
	}
	return string(b)
}
