package dataplane

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
)

// pinned makes a hash map with values of 16 bytes and pins it.
func pinned(t *testing.T, path string) *ebpf.Map {
	t.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 4, ValueSize: 16, MaxEntries: 100})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	if err := m.Pin(path); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestDumpPinned: what counts is what is known of flows, not when they were last
// seen, nor in which order a map gives its entries.
func TestDumpPinned(t *testing.T) {
	needRoot(t)
	dir := fmt.Sprintf("/sys/fs/bpf/proffer-dump-%d", os.Getpid())
	node := filepath.Join(dir, "node", "1-eth0")
	if err := os.MkdirAll(node, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if _, _, err := DumpPinned(dir); err == nil {
		t.Error("a folder without flow tables has a sum")
	}
	flows, waits, other := pinned(t, filepath.Join(node, "flows")), pinned(t, filepath.Join(node, "waits")), pinned(t, filepath.Join(node, "loads"))
	put := func(m *ebpf.Map, key uint32, seen, rest uint64) {
		t.Helper()
		value := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, seen), rest)
		if err := m.Put(key, value); err != nil {
			t.Fatal(err)
		}
	}
	sum := func(want int) string {
		t.Helper()
		sha, entries, err := DumpPinned(dir)
		if err != nil {
			t.Fatal(err)
		}
		if entries != want {
			t.Errorf("%d entries, want %d", entries, want)
		}
		return sha
	}
	for key := range uint32(40) {
		put(flows, key, 1, uint64(key))
	}
	full := sum(40)
	put(flows, 7, 99, 7)
	put(other, 1, 1, 1)
	if sum(40) != full {
		t.Error("when a flow was last seen counts, or a map that is no flow table")
	}
	for key := range uint32(40) { // again, the other way round
		if err := flows.Delete(39 - key); err != nil {
			t.Fatal(err)
		}
		put(flows, 39-key, 5, uint64(39-key))
	}
	if sum(40) != full {
		t.Error("the order of entries counts")
	}
	put(flows, 7, 1, 8)
	if sum(40) == full {
		t.Error("what is known of a flow does not count")
	}
	put(flows, 7, 1, 7)
	if err := flows.Delete(uint32(39)); err != nil {
		t.Fatal(err)
	}
	put(waits, 39, 1, 39)
	if sum(40) == full {
		t.Error("it does not count which table an entry is in")
	}
}
