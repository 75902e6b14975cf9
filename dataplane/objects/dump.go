package objects

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/cilium/ebpf"
)

// Conns returns the flows of an agent, sorted: of each, whether it is established, and
// its entry without the date.
func Conns(m *ebpf.Map) (all [][]byte, err error) {
	var line AgentConnLine
	for i := range m.MaxEntries() {
		if err := m.Lookup(i, &line); err != nil {
			return nil, err
		}
		for k, fingerprint := range line.Fingerprint {
			if fingerprint <= NoDigest {
				continue
			}
			slot := line.Slot[k]
			slot.Seen = 0
			entry, err := binary.Append([]byte{byte(fingerprint & IsEstablished >> 21)}, binary.NativeEndian, slot)
			if err != nil {
				return nil, err
			}
			all = append(all, entry)
		}
	}
	slices.SortFunc(all, bytes.Compare)
	return all, nil
}

// Lines returns the entries of an LB's table: the digest and the word of each.
func Lines(m *ebpf.Map) (all [][]byte, err error) { return LinesIn(m, TableLines(m.MaxEntries())) }

// LinesIn is Lines of a table with so many lines.
func LinesIn(m *ebpf.Map, lines uint32) (all [][]byte, err error) {
	var l LBLine
	for i := range lines {
		if err := m.Lookup(i, &l); err != nil {
			return nil, err
		}
		for k, word := range l.Word {
			if word != 0 {
				all = append(all, binary.NativeEndian.AppendUint64(binary.NativeEndian.AppendUint64(nil, l.Fingerprint[k]>>16), word))
			}
		}
	}
	slices.SortFunc(all, bytes.Compare)
	return all, nil
}
