package wire

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"proffer/topo"
)

// Numbers of RFC 8200 §4 and IANA's registry of protocols.
const (
	ProtoICMP    = 1
	ProtoIPv4    = 4
	ProtoTCP     = 6
	ProtoUDP     = 17
	ProtoIPv6    = 41
	ProtoRouting = 43
	ProtoICMPv6  = 58
)

// Lengths of headers without options, in bytes.
const (
	EthernetBytes = 14
	IPv4Bytes     = 20
	IPv6Bytes     = 40
	TCPBytes      = 20
	UDPBytes      = 8
	SRHBytes      = 8 // without segments
	SegmentBytes  = 16
)

// TCP's flags (RFC 9293 §3.1).
const (
	FIN = 0x01
	SYN = 0x02
	RST = 0x04
	PSH = 0x08
	ACK = 0x10
)

// DefaultHopLimit is that of packets from their source (IANA's recommendation for the
// TTL), and of outer headers.
const DefaultHopLimit = 64

// IP is an IP header of the family of its addresses. Fields of the other family do
// not count.
type IP struct {
	Source, Destination netip.Addr
	Class               uint8
	HopLimit            uint8
	Label               uint32 // IPv6: 20 bits
	ID                  uint16 // IPv4; the packet must not be fragmented
}

// Around returns a packet: the header, without options, and payload of a protocol.
func (h IP) Around(protocol uint8, payload []byte) []byte {
	if h.Source.Is4() {
		return append(h.ipv4(protocol, len(payload)), payload...)
	}
	b := make([]byte, 8, IPv6Bytes+len(payload)) // RFC 8200 §3
	binary.BigEndian.PutUint32(b, 6<<28|uint32(h.Class)<<20|h.Label)
	binary.BigEndian.PutUint16(b[4:], uint16(len(payload)))
	b[6], b[7] = protocol, h.HopLimit
	return append(append(append(b, h.Source.AsSlice()...), h.Destination.AsSlice()...), payload...)
}

// ipv4 is a header of RFC 791 §3.1.
func (h IP) ipv4(protocol uint8, payload int) []byte {
	const dontFragment = 0x40
	b := make([]byte, 12, IPv4Bytes+payload)
	b[0], b[1] = 4<<4|IPv4Bytes/4, h.Class
	binary.BigEndian.PutUint16(b[2:], uint16(IPv4Bytes+payload))
	binary.BigEndian.PutUint16(b[4:], h.ID)
	b[6], b[8], b[9] = dontFragment, h.HopLimit, protocol
	b = append(append(b, h.Source.AsSlice()...), h.Destination.AsSlice()...)
	binary.BigEndian.PutUint16(b[10:], Checksum(b))
	return b
}

// Checksum is that of an upper-layer packet with zero in its own field. It covers the
// addresses, too (RFC 8200 §8.1); IPv4's pseudo-header adds up to the same.
func (h IP) Checksum(protocol uint8, upper []byte) uint16 {
	pseudo := append(h.Source.AsSlice(), h.Destination.AsSlice()...)
	pseudo = binary.BigEndian.AppendUint32(pseudo, uint32(len(upper)))
	return Checksum(append(pseudo, 0, 0, 0, protocol), upper)
}

// TCP is a TCP header.
type TCP struct {
	From, To uint16
	Seq, Ack uint32
	Flags    uint8
	Window   uint16 // 0: 65535
	Options  []byte // a multiple of 4
}

// TCP returns a packet with a segment (RFC 9293 §3.1).
func (h IP) TCP(t TCP, payload []byte) []byte {
	b := make([]byte, TCPBytes, TCPBytes+len(t.Options)+len(payload))
	binary.BigEndian.PutUint16(b[0:], t.From)
	binary.BigEndian.PutUint16(b[2:], t.To)
	binary.BigEndian.PutUint32(b[4:], t.Seq)
	binary.BigEndian.PutUint32(b[8:], t.Ack)
	b[12], b[13] = uint8((TCPBytes+len(t.Options))/4<<4), t.Flags
	window := t.Window
	if window == 0 {
		window = 65535
	}
	binary.BigEndian.PutUint16(b[14:], window)
	b = append(append(b, t.Options...), payload...)
	binary.BigEndian.PutUint16(b[16:], h.Checksum(ProtoTCP, b))
	return h.Around(ProtoTCP, b)
}

// UDP returns a packet with a datagram between two ports (RFC 768).
func (h IP) UDP(from, to uint16, payload []byte) []byte {
	b := make([]byte, UDPBytes, UDPBytes+len(payload))
	binary.BigEndian.PutUint16(b[0:], from)
	binary.BigEndian.PutUint16(b[2:], to)
	binary.BigEndian.PutUint16(b[4:], uint16(UDPBytes+len(payload)))
	b = append(b, payload...)
	sum := h.Checksum(ProtoUDP, b)
	if sum == 0 {
		sum = 0xffff // 0 would be "none"
	}
	binary.BigEndian.PutUint16(b[6:], sum)
	return h.Around(ProtoUDP, b)
}

// ICMP returns a packet with a message: type, code, the 32 bits behind the checksum,
// and a body (RFC 792, RFC 4443 §2.1).
func (h IP) ICMP(kind, code uint8, rest uint32, body []byte) []byte {
	b := append([]byte{kind, code, 0, 0}, binary.BigEndian.AppendUint32(nil, rest)...)
	b = append(b, body...)
	if h.Source.Is4() {
		binary.BigEndian.PutUint16(b[2:], Checksum(b))
		return h.Around(ProtoICMP, b)
	}
	binary.BigEndian.PutUint16(b[2:], h.Checksum(ProtoICMPv6, b))
	return h.Around(ProtoICMPv6, b)
}

// TooBig returns the error of a router about a packet that is too big for a link of
// that MTU (RFC 4443 §3.2, RFC 1191 §4), with as much of the packet as is given.
func (h IP) TooBig(mtu int, packet []byte) []byte {
	if h.Source.Is4() {
		return h.ICMP(3, 4, uint32(mtu), packet)
	}
	return h.ICMP(2, 0, uint32(mtu), packet)
}

// Checksum is the Internet checksum (RFC 1071) over all parts; only the last may be
// of odd length. Of parts with a right checksum it is 0.
func Checksum(parts ...[]byte) uint16 {
	sum := uint32(0)
	for _, part := range parts {
		for ; len(part) > 1; part = part[2:] {
			sum += uint32(part[0])<<8 | uint32(part[1])
		}
		if len(part) == 1 {
			sum += uint32(part[0]) << 8
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// Frame puts an Ethernet header before a packet of either family.
func Frame(to, from topo.MAC, packet []byte) []byte {
	return slices.Concat(to[:], from[:], etherType(packet), packet)
}

// etherType is the type of a frame with a packet of either family.
func etherType(packet []byte) []byte {
	if packet[0]>>4 == 4 {
		return []byte{0x08, 0x00}
	}
	return []byte{0x86, 0xdd}
}
