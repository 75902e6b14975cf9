package dataplane

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"proffer/topo"
)

// writeKeys fills a node's maps of auth.h: what LBs sign with, by id, then what
// this node signs with, and only then takes back what is no longer valid, so
// that a rotation loses no signal. sign picks a node's own key.
func writeKeys(signing, farm *ebpf.Map, keys []topo.SignalKey, sign func(topo.SignalKey) topo.Key) error {
	var valid, others []uint32
	var values []lbSignalKey
	for _, k := range keys {
		valid = append(valid, uint32(k.ID))
		values = append(values, lbSignalKey{Key: bpfKey(k.Farm), Id: uint32(k.ID)})
	}
	for id := range farm.MaxEntries() {
		if !slices.Contains(valid, id) {
			others = append(others, id)
		}
	}
	if _, err := putAll(farm, valid, values); err != nil {
		return fmt.Errorf("write the signal keys: %w", err)
	}
	mine := lbSignalKey{}
	if len(keys) > 0 {
		mine = lbSignalKey{Key: bpfKey(sign(keys[0])), Id: uint32(keys[0].ID)}
	}
	if err := signing.Put(uint32(0), mine); err != nil {
		return fmt.Errorf("write the signing key: %w", err)
	}
	if _, err := putAll(farm, others, make([]lbSignalKey, len(others))); err != nil {
		return fmt.Errorf("drop signal keys: %w", err)
	}
	return nil
}
