package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"proffer/policy"
	"proffer/topo"
)

// Packet is an IPv6 packet with segments, as Encap and Insert make it.
type Packet struct {
	IP    IP
	Wire  topo.Wire
	List  []netip.Addr // of the SRH, first to last; nil: there is none
	Left  int          // segments left
	Inner []byte       // Insert: the packet as it was without segments
}

var (
	errShort      = errors.New("it is shorter than its headers say")
	errNoSegments = errors.New("it has no segments")
)

// Parse reads a packet from its IPv6 header on. An error means that it is malformed, or
// carries no segments.
func Parse(packet []byte) (Packet, error) {
	ip, protocol, rest, err := ParseIP(packet)
	if err != nil {
		return Packet{}, err
	}
	p := Packet{IP: ip}
	header := rest
	if protocol == ProtoRouting {
		if p.List, p.Left, protocol, rest, err = parseSRH(rest); err != nil {
			return Packet{}, fmt.Errorf("segment routing header: %w", err)
		}
	}
	switch {
	case protocol == ProtoIPv6 || protocol == ProtoIPv4:
		p.Inner = rest
	case len(p.List) < 3: // sender, segment, destination
		return Packet{}, errNoSegments
	default:
		p.Wire = topo.Insert
		p.Inner = withoutSegments(packet, header, rest)
	}
	return p, nil
}

// withoutSegments is a packet before a header was inserted, which begins at header and
// ends at rest.
func withoutSegments(packet, header, rest []byte) []byte {
	b := slices.Concat(packet[:IPv6Bytes], rest)
	binary.BigEndian.PutUint16(b[4:], uint16(len(rest)))
	b[6] = header[0]
	copy(b[24:IPv6Bytes], header[SRHBytes:][:SegmentBytes])
	return b
}

func parseSRH(b []byte) (list []netip.Addr, left int, next uint8, rest []byte, err error) {
	if len(b) < SRHBytes || len(b) < 8+8*int(b[1]) {
		return nil, 0, 0, nil, errShort
	}
	left, segments, length := int(b[3]), int(b[4])+1, 8+8*int(b[1])
	if b[2] != 4 {
		return nil, 0, 0, nil, fmt.Errorf("routing type %d, want 4", b[2])
	}
	if length < SRHBytes+segments*SegmentBytes || left > segments {
		return nil, 0, 0, nil, fmt.Errorf("%d segments, %d left, in %d bytes", segments, left, length)
	}
	for i := range segments {
		list = append(list, netip.AddrFrom16([16]byte(b[SRHBytes+i*SegmentBytes:][:SegmentBytes])))
	}
	slices.Reverse(list)
	return list, left, b[0], b[length:], nil
}

// Segments are all that the packet was sent through, first to last, as far as it tells:
// a reduced SRH lacks the first (RFC 8986 §5.2), which is the destination until there.
func (p Packet) Segments() []netip.Addr {
	switch {
	case p.Wire == topo.Insert:
		return p.List[1 : len(p.List)-1]
	case p.Left == len(p.List):
		return append([]netip.Addr{p.IP.Destination}, p.List...)
	}
	return p.List
}

// Sender is the address that may carry a tag.
func (p Packet) Sender() netip.Addr {
	if p.Wire == topo.Insert {
		return p.List[0]
	}
	return p.IP.Source
}

// Tag is the interface identifier of the sender.
func (p Packet) Tag() [8]byte {
	a := p.Sender().As16()
	return [8]byte(a[8:])
}

// Authentic reports whether the tag is that of a key, about a flow.
func (p Packet) Authentic(key topo.Key, f policy.Flow) bool {
	covered := p.List
	switch {
	case p.Wire == topo.Insert:
		covered = covered[1:]
	case covered == nil:
		covered = []netip.Addr{p.IP.Destination}
	}
	return p.Tag() == Tag(key, f, ParseSID(p.Sender()).Locator, lastFirst(covered))
}

// ParseIP reads a header of either family, and returns the protocol and the bytes
// behind it. IPv6 extension headers are not read.
func ParseIP(packet []byte) (h IP, protocol uint8, payload []byte, err error) {
	switch {
	case len(packet) >= IPv6Bytes && packet[0]>>4 == 6:
		return parseIPv6(packet)
	case len(packet) >= IPv4Bytes && packet[0]>>4 == 4:
		return parseIPv4(packet)
	}
	return IP{}, 0, nil, errors.New("it is no IP packet")
}

func parseIPv6(b []byte) (h IP, protocol uint8, payload []byte, err error) {
	end := IPv6Bytes + int(binary.BigEndian.Uint16(b[4:]))
	if end > len(b) {
		return IP{}, 0, nil, errShort
	}
	first := binary.BigEndian.Uint32(b)
	h = IP{
		Source: netip.AddrFrom16([16]byte(b[8:24])), Destination: destination(b),
		Class: uint8(first >> 20), Label: first & 0xfffff, HopLimit: b[7],
	}
	return h, b[6], b[IPv6Bytes:end], nil
}

func parseIPv4(b []byte) (h IP, protocol uint8, payload []byte, err error) {
	header, end := int(b[0]&0xf)*4, int(binary.BigEndian.Uint16(b[2:]))
	if header < IPv4Bytes || end < header || end > len(b) {
		return IP{}, 0, nil, errShort
	}
	h = IP{
		Source: netip.AddrFrom4([4]byte(b[12:16])), Destination: netip.AddrFrom4([4]byte(b[16:20])),
		Class: b[1], ID: binary.BigEndian.Uint16(b[4:]), HopLimit: b[8],
	}
	return h, b[9], b[header:end], nil
}

// ParseTCP reads a packet with a segment.
func ParseTCP(packet []byte) (h IP, t TCP, payload []byte, err error) {
	h, protocol, b, err := ParseIP(packet)
	if err != nil {
		return IP{}, TCP{}, nil, err
	}
	if protocol != ProtoTCP {
		return IP{}, TCP{}, nil, fmt.Errorf("it is of protocol %d", protocol)
	}
	if len(b) < TCPBytes || len(b) < int(b[12]>>4)*4 || b[12]>>4 < TCPBytes/4 {
		return IP{}, TCP{}, nil, errShort
	}
	length := int(b[12]>>4) * 4
	return h, TCP{
		From: binary.BigEndian.Uint16(b), To: binary.BigEndian.Uint16(b[2:]),
		Seq: binary.BigEndian.Uint32(b[4:]), Ack: binary.BigEndian.Uint32(b[8:]),
		Flags: b[13], Window: binary.BigEndian.Uint16(b[14:]), Options: b[TCPBytes:length],
	}, b[length:], nil
}
