package oracle

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"proffer/topo"
)

// link is an Ethernet header.
type link struct {
	to, from topo.MAC
	kind     uint16
}

const (
	kindIPv6 = 0x86dd
	kindIPv4 = 0x0800
)

func parseLink(b []byte) (l link, rest []byte, ok bool) {
	if len(b) < 14 {
		return l, nil, false
	}
	copy(l.to[:], b[0:6])
	copy(l.from[:], b[6:12])
	l.kind = binary.BigEndian.Uint16(b[12:])
	return l, b[14:], true
}

func (l link) append(b []byte) []byte {
	b = append(append(b, l.to[:]...), l.from[:]...)
	return binary.BigEndian.AppendUint16(b, l.kind)
}

// Next-header values (IANA).
const (
	nextICMP4   = 1
	nextIPv4    = 4
	nextTCP     = 6
	nextUDP     = 17
	nextIPv6    = 41
	nextRouting = 43
	nextICMP6   = 58
)

// ip is a packet of RFC 8200 §3 or RFC 791 §3.1.
type ip struct {
	six      bool
	class    byte
	label    uint32 // IPv6
	header   []byte // IPv4: as it came
	next     byte
	hop      byte
	src, dst netip.Addr
	fragment bool
	rest     int    // IPv4: bytes of options, which the payload begins with
	whole    bool   // the payload is all there
	payload  []byte // as much of it as there is
	trailer  []byte // bytes after the packet: the link's padding
}

// parseIP reads a packet of the version in its first byte; false: there is
// none.
func parseIP(b []byte) (p ip, ok bool) {
	switch {
	case len(b) > 0 && b[0]>>4 == 6:
		return parseIPv6(b)
	case len(b) > 0 && b[0]>>4 == 4:
		return parseIPv4(b)
	default:
		return p, false
	}
}

func parseIPv6(b []byte) (p ip, ok bool) {
	if len(b) < 40 || b[0]>>4 != 6 {
		return p, false
	}
	word := binary.BigEndian.Uint32(b)
	p = ip{
		six: true, class: byte(word >> 20), label: word & 0xfffff, next: b[6], hop: b[7],
		src: netip.AddrFrom16([16]byte(b[8:24])), dst: netip.AddrFrom16([16]byte(b[24:40])),
	}
	p.cut(b[40:], int(binary.BigEndian.Uint16(b[4:])))
	return p, true
}

func parseIPv4(b []byte) (p ip, ok bool) {
	if len(b) < 20 || b[0]>>4 != 4 {
		return p, false
	}
	words, length := int(b[0]&15), int(binary.BigEndian.Uint16(b[2:]))
	if words < 5 || length < 20 {
		return p, false
	}
	p = ip{
		class: b[1], header: slices.Clone(b[:20]), next: b[9], hop: b[8],
		src: netip.AddrFrom4([4]byte(b[12:16])), dst: netip.AddrFrom4([4]byte(b[16:20])),
		fragment: binary.BigEndian.Uint16(b[6:])&0x3fff != 0, rest: 4*words - 20,
	}
	p.cut(b[20:], length-20)
	return p, true
}

func (p *ip) cut(rest []byte, length int) {
	p.whole = length <= len(rest)
	p.payload = rest[:min(length, len(rest))]
	p.trailer = rest[len(p.payload):]
}

// bare is the packet without options, of which there are so many bytes, or the reason
// why its ports are not to be seen.
func (p ip) bare() (ip, int, Reason) {
	next, bytes, bad := behind(p.six, p.next, p.rest, p.payload, false)
	if bad == "" && p.fragment {
		bad = ExtHeader
	}
	if bad != "" {
		return p, 0, bad
	}
	p.next, p.rest, p.payload = next, 0, p.payload[bytes:]
	return p, bytes, ""
}

// length is that of header and payload.
func (p *ip) length() int {
	if p.six {
		return 40 + len(p.payload)
	}
	return 20 + len(p.payload)
}

// append writes the header and the payload. An IPv4 header is the one that came,
// with TOS, TTL and, by RFC 1624, the checksum changed: a wrong one stays wrong.
func (p ip) append(b []byte) []byte {
	if !p.six {
		h := slices.Clone(p.header)
		check := binary.BigEndian.Uint16(h[10:])
		for _, c := range []struct {
			at int
			to byte
		}{{1, p.class}, {8, p.hop}} {
			at := c.at &^ 1
			old := binary.BigEndian.Uint16(h[at:])
			h[c.at] = c.to
			check = ^add(^check, ^old, binary.BigEndian.Uint16(h[at:]))
		}
		binary.BigEndian.PutUint16(h[10:], check)
		return append(append(b, h...), p.payload...)
	}
	b = binary.BigEndian.AppendUint32(b, 6<<28|uint32(p.class)<<20|p.label)
	b = binary.BigEndian.AppendUint16(b, uint16(len(p.payload)))
	b = append(b, p.next, p.hop)
	b = append(append(b, p.src.AsSlice()...), p.dst.AsSlice()...)
	return append(b, p.payload...)
}

// add adds words in one's complement (RFC 1071).
func add(words ...uint16) uint16 {
	total := uint32(0)
	for _, w := range words {
		total += uint32(w)
	}
	for total > 0xffff {
		total = total>>16 + total&0xffff
	}
	return uint16(total)
}

// checksum is the Internet checksum of all parts together, each an even number of
// bytes but the last.
func checksum(parts ...[]byte) uint16 {
	b := slices.Concat(parts...)
	if len(b)%2 == 1 {
		b = append(b, 0)
	}
	total := uint16(0)
	for i := 0; i < len(b); i += 2 {
		total = add(total, binary.BigEndian.Uint16(b[i:]))
	}
	return ^total
}

// pseudo is the pseudo-header that upper-layer checksums cover (RFC 8200 §8.1, RFC 9293
// §3.1).
func pseudo(src, dst netip.Addr, protocol byte, length int) []byte {
	b := append(src.AsSlice(), dst.AsSlice()...)
	b = binary.BigEndian.AppendUint32(b, uint32(length))
	return append(b, 0, 0, 0, protocol)
}

// segments is a segment routing header (RFC 8754 §2).
type segments struct {
	next  byte
	left  int
	last  int
	flags byte
	tag   uint16
	list  []netip.Addr // as on the wire: last segment first
	tlvs  []byte
}

const routingTypeSegment = 4

// parseSegments reads b, which starts with a routing header, and returns how
// long that is. RFC 8754 §4.3.1.1 looks at Last Entry only when segments are
// left; a header shorter than its list is dropped here in any case.
func parseSegments(b []byte) (*segments, int, Reason) {
	if len(b) < 8 || b[2] != routingTypeSegment {
		return nil, 0, BadSRH
	}
	length := int(b[1])
	total := 8 + 8*length
	if total > len(b) {
		return nil, 0, BadSRH
	}
	s := &segments{next: b[0], left: int(b[3]), last: int(b[4]), flags: b[5], tag: binary.BigEndian.Uint16(b[6:])}
	maxLastEntry := length/2 - 1
	if s.last > maxLastEntry || s.left > s.last+1 {
		return nil, 0, BadSRH
	}
	rest := b[8:total]
	for range s.last + 1 {
		s.list = append(s.list, netip.AddrFrom16([16]byte(rest[:16])))
		rest = rest[16:]
	}
	s.tlvs = rest
	return s, total, ""
}

func (s *segments) append(b []byte) []byte {
	length := (16*len(s.list) + len(s.tlvs)) / 8
	b = append(b, s.next, byte(length), routingTypeSegment, byte(s.left), byte(s.last), s.flags)
	b = binary.BigEndian.AppendUint16(b, s.tag)
	for _, a := range s.list {
		b = append(b, a.AsSlice()...)
	}
	return append(b, s.tlvs...)
}
