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
	setPlaces = len(agentConnSet{}.Mark)
	noDigest  = 1<<22 - 1 // the largest mark of nobody
	isProved  = 1 << 16   // in a mark: the flow's client has proved to be there
)

// connSets is how many sets hold so many established flows, with as many free places so
// that hardly one meets two full sets, and the openings.
func connSets(flows, openings int) uint32 {
	return uint32((2*flows + openings + setPlaces - 1) / setPlaces)
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

// dumpConns returns the flows of an agent: of each, whether its client has proved to be
// there, and all but when it was last seen.
func dumpConns(m *ebpf.Map) (all [][]byte, err error) {
	var set agentConnSet
	for i := range m.MaxEntries() {
		if err := m.Lookup(i, &set); err != nil {
			return nil, err
		}
		for k, mark := range set.Mark {
			if mark <= noDigest {
				continue
			}
			place := set.Place[k]
			place.C.SeenNs = 0
			entry, err := binary.Append([]byte{byte(mark & isProved >> 16)}, binary.NativeEndian, place)
			if err != nil {
				return nil, err
			}
			all = append(all, entry)
		}
	}
	slices.SortFunc(all, bytes.Compare)
	return all, nil
}
