package policy

import (
	"encoding/binary"
	"net/netip"

	"proffer/topo"
)

// Tag authenticates a signal about a flow. Its sender, a node with that
// 64-bit locator, writes it into the interface identifier of its own address.
// Segments are those that the signature covers, in the order of the SRH (the last
// first; RFC 8754 §2), or the one destination of a packet without an SRH. Twin of
// bpf/packet/auth.h.
func Tag(key topo.Key, f Flow, sender netip.Prefix, segments []netip.Addr) (tag [8]byte) {
	data := make([]byte, 0, 40+8+16*len(segments))
	flow, locator := f.bytes(), sender.Addr().As16()
	data = append(append(data, flow[:]...), locator[:8]...)
	for _, s := range segments {
		a := s.As16()
		data = append(data, a[:]...)
	}
	binary.LittleEndian.PutUint64(tag[:], sipHash24(key, data))
	return tag
}
