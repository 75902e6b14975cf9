package plane_test

import (
	"maps"
	"testing"

	"github.com/cilium/ebpf"

	"proffer/dataplane/internal/plane"
	"proffer/proof/rig"
)

// TestUpdate: the remembered elements are those in the kernel, also where a call
// ends half-way: a map that is full, an element that is gone already.
func TestUpdate(t *testing.T) {
	rig.NeedRoot(t)
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 4, ValueSize: 4, MaxEntries: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	have := map[uint32]uint32{}
	same := func(label string) {
		t.Helper()
		held := map[uint32]uint32{}
		var k, v uint32
		for all := m.Iterate(); all.Next(&k, &v); {
			held[k] = v
		}
		if !maps.Equal(held, have) {
			t.Errorf("%s: the kernel has %v, remembered %v", label, held, have)
		}
	}
	if err := plane.Update(m, have, map[uint32]uint32{1: 10, 2: 20}); err != nil || len(have) != 2 {
		t.Fatal(err, have)
	}
	same("new elements")
	if err := plane.Update(m, have, map[uint32]uint32{2: 21}); err != nil || have[2] != 21 {
		t.Fatal(err, have)
	}
	same("a changed one")
	if err := plane.Update(m, have, map[uint32]uint32{2: 22, 3: 30, 4: 40, 5: 50}); err == nil || len(have) != 3 {
		t.Errorf("a full map: %v, %v", err, have)
	}
	same("a full map")
	if err := m.Delete(uint32(1)); err != nil {
		t.Fatal(err)
	}
	gone, err := plane.Prune(m, have, map[uint32]uint32{2: 0})
	if err != nil || len(gone) != 2 || gone[1] != 10 || len(have) != 1 {
		t.Errorf("pruned %v, %v", gone, err)
	}
	same("after that")
	if gone, err := plane.Prune(m, have, have); err != nil || len(gone) != 0 {
		t.Errorf("pruned %v, %v", gone, err)
	}
}
