package dataplane

import (
	"fmt"

	"github.com/cilium/ebpf"

	"proffer/topo"
)

// writeKeys fills a node's maps of auth.h: what LBs sign with, by id, then what
// this node signs with, and only then takes back what is no longer valid, so
// that a rotation loses no signal. sign picks a node's own key.
func writeKeys(signing, farm *ebpf.Map, keys []topo.SignalKey, sign func(topo.SignalKey) topo.Key) error {
	valid := map[uint32]bool{}
	for _, k := range keys {
		id := uint32(k.ID)
		valid[id] = true
		if err := farm.Put(id, lbSignalKey{Key: bpfKey(k.Farm), Id: id}); err != nil {
			return fmt.Errorf("write signal key %d: %w", id, err)
		}
	}
	mine := lbSignalKey{}
	if len(keys) > 0 {
		mine = lbSignalKey{Key: bpfKey(sign(keys[0])), Id: uint32(keys[0].ID)}
	}
	if err := signing.Put(uint32(0), mine); err != nil {
		return fmt.Errorf("write the signing key: %w", err)
	}
	for id := range farm.MaxEntries() {
		if valid[id] {
			continue
		}
		if err := farm.Put(id, lbSignalKey{}); err != nil {
			return fmt.Errorf("drop signal key %d: %w", id, err)
		}
	}
	return nil
}
