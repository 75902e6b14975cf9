package oracle

import (
	"encoding/binary"
	"net/netip"

	"proffer/policy"
	"proffer/topo"
)

// The hashes of docs/design/wire.md, without package wire: the judge shares no code with
// those it judges but SipHash and the layout of a flow.

// tagOf is the tag by a node with that locator; segments in the order of the SRH.
func tagOf(key topo.Key, f policy.Flow, sender netip.Prefix, segments []netip.Addr) []byte {
	flow := f.Bytes()
	data := append(flow[:], sender.Addr().AsSlice()[:8]...)
	for _, s := range segments {
		data = append(data, s.AsSlice()...)
	}
	return binary.LittleEndian.AppendUint64(nil, policy.SipHash(key, data))
}

// generationOf is a connection's, by the client's initial sequence number.
func generationOf(isn uint32) uint16 {
	if g := uint16(uint64(isn) * 0x9e3779b1 >> 16); g != 0 {
		return g
	}
	return 1
}

// labelOf is a flow's: 20 bits of the sum of its words, multiplied, and never 0.
func labelOf(f policy.Flow) uint32 {
	flow, sum := f.Bytes(), uint64(0)
	for word := flow[:]; len(word) > 0; word = word[8:] {
		sum += binary.LittleEndian.Uint64(word)
	}
	if label := uint32(sum * 0x9e3779b97f4a7c15 >> 44); label != 0 {
		return label
	}
	return 1
}
