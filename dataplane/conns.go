package dataplane

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
)

// The agent's table of flows (bpf/agent/conns.h).
const (
	lineSlots     = len(agentConnLine{}.Fingerprint)
	noDigest      = 1<<22 - 1 // the largest fingerprint without a digest
	isEstablished = 1 << 16   // in a fingerprint
)

// connLines is how many lines hold so many established flows and embryonic ones, with as
// many free slots as established flows, so that hardly any flow meets two full lines.
func connLines(flows, embryonic int) uint32 {
	return uint32((2*flows + embryonic + lineSlots - 1) / lineSlots)
}

// connKey makes the digests' key part of the programs: the one of the table that
// is adopted, or a new one.
func connKey(spec *ebpf.CollectionSpec, adopted map[string]*ebpf.Map) (key agentDigestKey, err error) {
	if m := adopted[agentMapConnKey]; m != nil {
		err = m.Lookup(uint32(0), &key)
	} else {
		err = binary.Read(rand.Reader, binary.NativeEndian, &key)
	}
	for i := range key.Odd {
		key.Odd[i] |= 1
	}
	if err == nil {
		err = spec.Variables["flow_key"].Set(key)
	}
	if err != nil {
		return key, fmt.Errorf("set the key of the table of flows: %w", err)
	}
	return key, nil
}

// dumpConns returns the flows of an agent, sorted: of each, whether it is established, and
// its entry without the date.
func dumpConns(m *ebpf.Map) (all [][]byte, err error) {
	var line agentConnLine
	for i := range m.MaxEntries() {
		if err := m.Lookup(i, &line); err != nil {
			return nil, err
		}
		for k, fingerprint := range line.Fingerprint {
			if fingerprint <= noDigest {
				continue
			}
			slot := line.Slot[k]
			slot.C.SeenNs = 0
			entry, err := binary.Append([]byte{byte(fingerprint & isEstablished >> 16)}, binary.NativeEndian, slot)
			if err != nil {
				return nil, err
			}
			all = append(all, entry)
		}
	}
	slices.SortFunc(all, bytes.Compare)
	return all, nil
}
