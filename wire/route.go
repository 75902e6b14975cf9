package wire

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"proffer/policy"
	"proffer/topo"
)

// Route is how a packet carries segments.
type Route struct {
	From     netip.Addr   // of the sender: Own, or Tagged
	Segments []netip.Addr // first to last; at least one

	// Of the outer header; not used by Insert.
	Class    uint8
	Label    uint32
	HopLimit uint8
}

// Put returns the packet on its route, whichever way a service wants it.
func (r Route) Put(w topo.Wire, packet []byte) []byte {
	if w == topo.Insert {
		return r.Insert(packet)
	}
	return r.Encap(packet)
}

// Encap puts a packet of either family behind an outer header and, for more than one
// segment, a reduced SRH: H.Encaps.Red (RFC 8986 §5.2).
func (r Route) Encap(packet []byte) []byte {
	next, header := uint8(ProtoIPv6), []byte(nil)
	if packet[0]>>4 == 4 {
		next = ProtoIPv4
	}
	if rest := r.Segments[1:]; len(rest) > 0 {
		next, header = ProtoRouting, SRH(next, len(rest), rest...)
	}
	h := IP{Source: r.From, Destination: r.Segments[0], Class: r.Class, Label: r.Label, HopLimit: r.HopLimit}
	return h.Around(next, slices.Concat(header, packet))
}

// Insert puts (sender, segments…, destination) into an IPv6 packet itself, behind its
// header (6LB §II).
func (r Route) Insert(packet []byte) []byte {
	list := append(append([]netip.Addr{r.From}, r.Segments...), destination(packet))
	header := SRH(packet[6], len(r.Segments), list...)
	b := slices.Concat(packet[:IPv6Bytes], header, packet[IPv6Bytes:])
	binary.BigEndian.PutUint16(b[4:], uint16(len(b)-IPv6Bytes))
	b[6] = ProtoRouting
	copy(b[24:IPv6Bytes], r.Segments[0].AsSlice())
	return b
}

// Signed is the route with the sender's tag about a flow, for a packet that travels by w.
func (r Route) Signed(key topo.Key, f policy.Flow, sender netip.Prefix, w topo.Wire, packet []byte) Route {
	r.From = Tagged(sender, Tag(key, f, sender, r.covered(w, packet)))
	return r
}

// covered is the text of the tag, in the order of the SRH.
func (r Route) covered(w topo.Wire, packet []byte) []netip.Addr {
	switch {
	case w == topo.Insert:
		return lastFirst(append(slices.Clone(r.Segments), destination(packet)))
	case len(r.Segments) == 1:
		return r.Segments
	}
	return lastFirst(r.Segments[1:])
}

// SRH is a segment routing header (RFC 8754 §2) without TLVs: the protocol behind it,
// how many segments are left, and the list, first to last.
func SRH(next uint8, left int, list ...netip.Addr) []byte {
	const kind = 4
	b := []byte{next, uint8(2 * len(list)), kind, uint8(left), uint8(len(list) - 1), 0, 0, 0}
	for _, segment := range slices.Backward(list) {
		b = append(b, segment.AsSlice()...)
	}
	return b
}

func destination(packet []byte) netip.Addr { return netip.AddrFrom16([16]byte(packet[24:IPv6Bytes])) }

func lastFirst(list []netip.Addr) []netip.Addr {
	list = slices.Clone(list)
	slices.Reverse(list)
	return list
}
