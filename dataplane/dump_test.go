package dataplane_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"

	"proffer/dataplane"
	"proffer/dataplane/objects"
	"proffer/proof/rig"
)

// pinned makes an array with such values and pins it.
func pinned(t *testing.T, path string, value any) *ebpf.Map {
	t.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: uint32(binary.Size(value)), MaxEntries: 11})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	if err := m.Pin(path); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestDumpPinned: the entries of flows count, not when they were last
// seen, nor where in a table they are.
func TestDumpPinned(t *testing.T) {
	rig.NeedRoot(t)
	dir := fmt.Sprintf("/sys/fs/bpf/proffer-dump-%d", os.Getpid())
	node := filepath.Join(dir, "node", "1-eth0")
	if err := os.MkdirAll(node, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if _, _, err := dataplane.DumpPinned(dir); err == nil {
		t.Error("a folder without flow tables has a sum")
	}
	flows := pinned(t, filepath.Join(node, "flows"), objects.LBLine{})
	conns := pinned(t, filepath.Join(node, "conns"), objects.AgentConnLine{})
	other := pinned(t, filepath.Join(node, "loads"), objects.AgentLoad{})
	write := func(m *ebpf.Map, key uint32, value any) {
		t.Helper()
		if err := m.Put(key, value); err != nil {
			t.Fatal(err)
		}
	}
	put := func(place, flow uint32, seen, word uint64) {
		t.Helper()
		var l objects.LBLine
		if err := flows.Lookup(place/4, &l); err != nil {
			t.Fatal(err)
		}
		l.Fingerprint[place%4], l.Word[place%4] = uint64(flow+1)<<21|seen, word
		write(flows, place/4, &l)
	}
	sum := func(want int) string {
		t.Helper()
		sha, entries, err := dataplane.DumpPinned(dir)
		if err != nil {
			t.Fatal(err)
		}
		if entries != want {
			t.Errorf("%d entries, want %d", entries, want)
		}
		return sha
	}
	for flow := range uint32(40) {
		put(flow, flow, 1, uint64(flow+1))
	}
	full := sum(40)
	put(7, 7, 99, 8)
	write(other, 1, objects.AgentLoad{Asking: [2]uint32{1}})
	if sum(40) != full {
		t.Error("when a flow was last seen counts, or a map that is no flow table")
	}
	for flow := range uint32(40) { // the other way round
		put(39-flow, flow, 5, uint64(flow+1))
	}
	if sum(40) != full {
		t.Error("the order of entries counts")
	}
	put(32, 7, 1, 9)
	if sum(40) == full {
		t.Error("a flow's entry does not count")
	}
	put(32, 7, 1, 8)
	put(0, 39, 1, 0)
	var line objects.AgentConnLine
	line.Fingerprint[3] = objects.NoDigest + 1 | 1
	line.Slot[3] = objects.AgentConn{Seen: 1, Generation: 3}
	write(conns, 1, &line)
	waiting := sum(40)
	if waiting == full {
		t.Error("it does not count which table an entry is in")
	}
	line.Fingerprint[5], line.Fingerprint[3], line.Slot[5], line.Slot[3] = line.Fingerprint[3]|2, 0, line.Slot[3], line.Slot[5]
	line.Slot[5].Seen = 2
	write(conns, 7, &line)
	write(conns, 1, &objects.AgentConnLine{})
	if sum(40) != waiting {
		t.Error("where an agent's flow is counts, or when it was last seen")
	}
	line.Fingerprint[5] |= objects.IsEstablished
	write(conns, 7, &line)
	if sum(40) == waiting {
		t.Error("that a flow is established does not count")
	}
}
