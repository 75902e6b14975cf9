package wire

import (
	"encoding/binary"
	"net/netip"

	"proffer/policy"
	"proffer/topo"
)

// Tag authenticates a signal about a flow. Its sender, a node with that
// 64-bit locator, writes it into the interface identifier of its own address.
// Segments are those that the signature covers, in the order of the SRH (the last
// first; RFC 8754 §2), or the destination of a packet without an SRH. Twin of
// bpf/packet/auth.h.
func Tag(key topo.Key, f policy.Flow, sender netip.Prefix, segments []netip.Addr) (tag [8]byte) {
	data := make([]byte, 0, 40+8+16*len(segments))
	flow, locator := f.Bytes(), sender.Addr().As16()
	data = append(append(data, flow[:]...), locator[:8]...)
	for _, s := range segments {
		a := s.As16()
		data = append(data, a[:]...)
	}
	binary.LittleEndian.PutUint64(tag[:], policy.SipHash(key, data))
	return tag
}

// Generation tells the connections of a five-tuple apart: 16 bits of the
// client's initial sequence number, never 0.
func Generation(isn uint32) uint16 {
	return max(uint16(isn*0x9e3779b1>>16), 1)
}

// FlowLabel is the label of the flow's outer headers, never 0 (RFC 6437).
func FlowLabel(f policy.Flow) uint32 {
	data := f.Bytes()
	h := uint64(0)
	for i := 0; i < len(data); i += 8 {
		h += binary.LittleEndian.Uint64(data[i:])
	}
	return max(uint32(h*0x9e3779b97f4a7c15>>44), 1)
}
