package oracle

import (
	"encoding/binary"
	"net/netip"

	"proffer/topo"
)

// link is an Ethernet header.
type link struct {
	to, from topo.MAC
	kind     uint16
}

const kindIPv6 = 0x86dd

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

// ipv6 is a packet of RFC 8200 §3.
type ipv6 struct {
	class    byte
	label    uint32
	length   int // of the payload, as the header states it
	next     byte
	hop      byte
	src, dst netip.Addr
	whole    bool   // the payload is all there
	payload  []byte // as much of it as there is
	trailer  []byte // bytes after the packet: the link's padding
}

// parseIPv6 returns false if b holds no IPv6 header.
func parseIPv6(b []byte) (p ipv6, ok bool) {
	if len(b) < 40 || b[0]>>4 != 6 {
		return p, false
	}
	word := binary.BigEndian.Uint32(b)
	p.class, p.label = byte(word>>20), word&0xfffff
	p.length = int(binary.BigEndian.Uint16(b[4:]))
	p.next, p.hop = b[6], b[7]
	p.src, p.dst = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
	rest := b[40:]
	p.whole = p.length <= len(rest)
	p.payload = rest[:min(p.length, len(rest))]
	p.trailer = rest[len(p.payload):]
	return p, true
}

// append writes the header and the payload; the length is the payload's.
func (p ipv6) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, 6<<28|uint32(p.class)<<20|p.label)
	b = binary.BigEndian.AppendUint16(b, uint16(len(p.payload)))
	b = append(b, p.next, p.hop)
	b = append(append(b, p.src.AsSlice()...), p.dst.AsSlice()...)
	return append(b, p.payload...)
}

// mayHideTCP: the extension headers of IANA's list behind which an upper-layer
// header can follow and be read (not ESP).
func mayHideTCP(next byte) bool {
	switch next {
	case 0, 43, 44, 51, 60, 135, 139, 140:
		return true
	}
	return false
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

// parseSegments reads b, which starts with a routing header, and returns how
// long that is. RFC 8754 §4.3.1.1 looks at Last Entry only when segments are
// left; a header whose list does not fit is dropped here in any case.
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

// fits: every TLV ends inside the header (RFC 8754 §2.1).
func fits(tlvs []byte) bool {
	const pad1 = 0
	for len(tlvs) > 0 {
		if tlvs[0] == pad1 {
			tlvs = tlvs[1:]
			continue
		}
		if len(tlvs) < 2 || len(tlvs) < 2+int(tlvs[1]) {
			return false
		}
		tlvs = tlvs[2+int(tlvs[1]):]
	}
	return true
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

// tcp is what matters of a TCP header (RFC 9293 §3.1).
type tcp struct {
	src, dst           uint16
	seq                uint32
	syn, ack, rst, fin bool
}

func parseTCP(b []byte) (t tcp, ok bool) {
	if len(b) < 20 {
		return t, false
	}
	offset := int(b[12]>>4) * 4
	if offset < 20 || offset > len(b) {
		return t, false
	}
	t.src, t.dst = binary.BigEndian.Uint16(b[0:]), binary.BigEndian.Uint16(b[2:])
	t.seq = binary.BigEndian.Uint32(b[4:])
	t.fin, t.syn, t.rst, t.ack = b[13]&1 != 0, b[13]&2 != 0, b[13]&4 != 0, b[13]&16 != 0
	return t, true
}

// opens: a SYN that asks for a connection.
func (t tcp) opens() bool { return t.syn && !t.ack && !t.rst && !t.fin }
