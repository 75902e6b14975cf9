// Package objects holds the compiled programs of ../../bpf and the layouts of their maps:
// bpf2go's copies of the structs, and here the numbers and conversions that BTF does not
// have.
package objects

import (
	"encoding/binary"
	"net/netip"
	"unsafe"

	"proffer/topo"
)

// ServiceKey is the key of a service's record.
func ServiceKey(v topo.VIP) LBServiceKey {
	key := LBServiceKey{PortBe: PortBits(v.Port), Protocol: v.Protocol.Number()}
	key.Vip.In6U.U6Addr8 = v.Addr.As16()
	return key
}

// LocatorBits is a locator as the programs compare it: 8 bytes as they stand in
// an address, read in this machine's order.
func LocatorBits(p netip.Prefix) uint64 {
	a := p.Addr().As16()
	return binary.NativeEndian.Uint64(a[:8])
}

// ServerBits is a server's identity as the programs compare it.
func ServerBits(s *topo.Server) uint64 {
	id := s.ID()
	return binary.NativeEndian.Uint64(id[:])
}

// PortBits is a port as it stands in a packet, read in this machine's order.
func PortBits(port uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, port))
}

// KeyOf is a key of SipHash in the machine's order.
func KeyOf(k topo.Key) LBKey {
	return LBKey{K0: binary.LittleEndian.Uint64(k[:8]), K1: binary.LittleEndian.Uint64(k[8:])}
}

// Expected counts the offers that were accepted in the last second before epoch and have
// not arrived.
func Expected(l *AgentLoad, epoch uint32) (n uint32) {
	for _, p := range l.Pending {
		if epoch-p.Epoch < uint32(len(l.Pending)) {
			n += p.Count
		}
	}
	return n
}

// Asking is the number of requests in progress. An error makes it 0 at worst, until the next
// recount.
func Asking(l *AgentLoad) uint32 { return uint32(max(0, int32(l.Asking[0]+l.Asking[1]))) }

// AliasRow is the word of a row of an alias table (bpf/table/alias.h): the number that has a part of
// the row, policy.Row's, and the number that has the rest.
func AliasRow(own, other uint16, part uint32) uint64 {
	return uint64(part)<<AliasPart | uint64(other)<<AliasOther | uint64(own)
}

// BucketBytes is the size of an element of a table.
const BucketBytes = 8

// The LB's table of flows (bpf/lb/flow_table.h).
const (
	LineEntries = len(LBLine{}.Word)
	LineBytes   = int(unsafe.Sizeof(LBLine{}))
)

// TableElements is the size of the map of a table of so many lines, and their hints.
func TableElements(lines uint32) uint32 { return lines + (lines+HintedLines-1)/HintedLines }

// TableLines undoes TableElements.
func TableLines(elements uint32) uint32 {
	return uint32(uint64(elements) * HintedLines / (HintedLines + 1))
}

// The agent's table of flows (bpf/agent/flow_table.h).
const (
	LineSlots     = len(AgentConnLine{}.Fingerprint)
	NoDigest      = 1<<22 - 1 // the largest fingerprint without a digest
	IsEstablished = 1 << 21   // in a fingerprint
)
