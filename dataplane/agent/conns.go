package agent

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf"

	"proffer/dataplane/internal/plane"
	"proffer/dataplane/objects"
)

// connLines is the number of lines that hold so many established and embryonic flows,
// with as many free slots as established flows, so that hardly any flow meets two full
// lines.
func connLines(flows, embryonic int) uint32 {
	return uint32((2*flows + embryonic + objects.LineSlots - 1) / objects.LineSlots)
}

// setClock sets the programs' clock, as each sweep does.
func (a *Agent) setClock() error {
	if err := plane.RunRecord(a.Sweeper, &objects.LBSweep{}); err != nil {
		return fmt.Errorf("set the programs' clock: %w", err)
	}
	return nil
}

// connKey makes the digests' key part of the programs: the key of an adopted table, the key that a
// caller of NewOf has set, or a new key.
func connKey(spec *ebpf.CollectionSpec, adopted map[string]*ebpf.Map) (key objects.AgentDigestKey, err error) {
	if m := adopted[objects.AgentMapConnKey]; m != nil {
		err = m.Lookup(uint32(0), &key)
	} else if err = spec.Variables["flow_key"].Get(&key); err == nil && key == (objects.AgentDigestKey{}) {
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
