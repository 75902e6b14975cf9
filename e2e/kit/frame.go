package kit

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
	Ethernet = wire.EthernetBytes
	IPv6     = wire.IPv6Bytes
	Routing  = wire.ProtoRouting
	tcp      = wire.ProtoTCP
)

// Frame is a frame on a link, with what the tests ask of it.
type Frame struct {
	Bytes  []byte
	Link   string
	ToNode bool // from the router
	Ip     header
	List   []netip.Addr // the segments of the SRH, first to visit first; without SRH the one that is the destination; nil: not encapsulated
	inner  []byte       // the IPv6 packet that has the TCP header
	TCP    *segment     // nil: neither TCP nor TCP inside IPv6
}

// header is an IPv6 header.
type header struct {
	source, Destination netip.Addr
	Class, Next, hops   uint8
	label               uint32
}

// segment is a TCP header, and the addresses it is for.
type segment struct {
	From, To netip.AddrPort
	Header   header
	seq      uint32
	flags    uint8
	payload  int
}

// flow is a connection as its client sends it, in either direction.
type flow struct{ client, vip netip.AddrPort }

func (f flow) String() string { return fmt.Sprintf("%v → %v", f.client, f.vip) }

func (s *segment) flow(vip netip.Addr) flow {
	if s.From.Addr() == vip {
		return flow{s.To, s.From}
	}
	return flow{s.From, s.To}
}

func (s *segment) String() string {
	return fmt.Sprintf("%v → %v flags %#02x seq %d with %d bytes", s.From, s.To, s.flags, s.seq, s.payload)
}

func (h header) String() string {
	return fmt.Sprintf("%v → %v next %d class %#x label %#x hops %d", h.source, h.Destination, h.Next, h.Class, h.label, h.hops)
}

func (s *segment) Has(flags uint8) bool { return s.flags&flags == flags }

func parseHeader(b []byte) header {
	first := binary.BigEndian.Uint32(b)
	return header{
		source:      netip.AddrFrom16([16]byte(b[8:24])),
		Destination: netip.AddrFrom16([16]byte(b[24:40])),
		Class:       uint8(first >> 20),
		label:       first & 0xfffff,
		Next:        b[6],
		hops:        b[7],
	}
}

// parse reads a frame; what is no IPv6 keeps an empty header.
func parse(link string, toNode bool, b []byte) Frame {
	f := Frame{Bytes: b, Link: link, ToNode: toNode}
	if len(b) < Ethernet+IPv6 || binary.BigEndian.Uint16(b[12:]) != 0x86dd {
		return f
	}
	packet := b[Ethernet:]
	f.Ip = parseHeader(packet)
	f.inner = packet
	next, rest := f.Ip.Next, packet[IPv6:]
	if next == Routing {
		f.List, next, rest = segments(rest)
	}
	if next == wire.ProtoIPv6 {
		if f.List == nil {
			f.List = []netip.Addr{f.Ip.Destination}
		}
		f.inner, next = rest, rest[6]
	}
	if next == tcp {
		f.TCP = parseTCP(f.inner)
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
	h, b := parseHeader(packet), packet[IPv6:]
	return &segment{
		Header:  h,
		From:    netip.AddrPortFrom(h.source, binary.BigEndian.Uint16(b)),
		To:      netip.AddrPortFrom(h.Destination, binary.BigEndian.Uint16(b[2:])),
		seq:     binary.BigEndian.Uint32(b[4:]),
		flags:   b[13],
		payload: int(binary.BigEndian.Uint16(packet[4:])) - 4*int(b[12]>>4),
	}
}

// way is every segment of an encapsulated frame as it leaves the LB, where the
// first is only the destination: the SRH is reduced (RFC 8986 §5.2).
func (f *Frame) way() []netip.Addr {
	if f.Ip.Next != Routing {
		return f.List
	}
	return append([]netip.Addr{f.Ip.Destination}, f.List...)
}

// Encapsulated reports whether the frame has an outer header, with or without a
// list.
func (f *Frame) Encapsulated() bool { return f.List != nil }

// overhead is what is in front of the inner packet.
func (f *Frame) overhead() int { return len(f.Bytes) - Ethernet - len(f.inner) }

// Function is the function of a SID: 16 bits after the locator.
func Function(sid netip.Addr) wire.Function {
	b := sid.As16()
	return wire.Function(binary.BigEndian.Uint16(b[8:]))
}

func Locator(sid netip.Addr) netip.Prefix {
	p, _ := sid.Prefix(64)
	return p
}

// packet is the inner packet without its hop limit, and of a SYN-ACK without the
// MSS and the checksum over it: the same before and after the LB, which changes
// nothing else.
func (f *Frame) packet() string {
	b := slices.Clone(f.inner)
	b[7] = 0
	if f.TCP != nil && f.TCP.Has(wire.SYN|wire.ACK) {
		const checksum, mss = IPv6 + 16, IPv6 + 20 + 2 // Linux puts the MSS first
		clear(b[checksum : checksum+2])
		clear(b[mss : mss+2])
	}
	return string(b)
}
