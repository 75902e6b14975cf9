package dataplane

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
)

// The agent's table of flows that wait for their clients (bpf/waits.h).
const (
	waitPlaces = len(agentWaitSet{}.Mark) // of a set
	freeMark   = 1<<16 - 1                // the largest mark of nobody
)

// waitSets is how many sets hold so many flows.
func waitSets(flows int) uint32 { return uint32((flows + waitPlaces - 1) / waitPlaces) }

// waitKey makes the digests' key part of the programs: the one of the table that
// is adopted, or a new one.
func waitKey(spec *ebpf.CollectionSpec, adopted map[string]*ebpf.Map) (key agentDigestKey, err error) {
	if m := adopted[agentMapWaitKey]; m != nil {
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
		return key, fmt.Errorf("set the key of the flows that wait: %w", err)
	}
	return key, nil
}

// dumpWaits returns the flows that wait: of each, all but when it was last seen.
func dumpWaits(m *ebpf.Map) (all [][]byte, err error) {
	var set agentWaitSet
	for i := range m.MaxEntries() {
		if err := m.Lookup(i, &set); err != nil {
			return nil, err
		}
		for k, mark := range set.Mark {
			if mark <= freeMark {
				continue
			}
			place := set.Place[k]
			place.C.SeenNs = 0
			entry, err := binary.Append(nil, binary.NativeEndian, place)
			if err != nil {
				return nil, err
			}
			all = append(all, entry)
		}
	}
	slices.SortFunc(all, bytes.Compare)
	return all, nil
}
