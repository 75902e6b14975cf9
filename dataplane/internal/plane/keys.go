package plane

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"proffer/dataplane/objects"
	"proffer/topo"
)

// WriteKeys fills a node's maps of auth.h: the keys that LBs sign with, by id, then the key
// that this node signs with, and only then removes keys that are no longer valid, so
// that a rotation loses no signal. sign picks a node's own key.
func WriteKeys(signing, farm *ebpf.Map, keys []topo.SignalKey, sign func(topo.SignalKey) topo.Key) error {
	var valid, others []uint32
	var values []objects.LBSignalKey
	for _, k := range keys {
		valid = append(valid, uint32(k.ID))
		values = append(values, objects.LBSignalKey{Key: objects.KeyOf(k.Farm), Id: uint32(k.ID)})
	}
	for id := range farm.MaxEntries() {
		if !slices.Contains(valid, id) {
			others = append(others, id)
		}
	}
	if _, err := PutAll(farm, valid, values); err != nil {
		return fmt.Errorf("write the signal keys: %w", err)
	}
	mine := objects.LBSignalKey{}
	if len(keys) > 0 {
		mine = objects.LBSignalKey{Key: objects.KeyOf(sign(keys[0])), Id: uint32(keys[0].ID)}
	}
	if err := signing.Put(uint32(0), mine); err != nil {
		return fmt.Errorf("write the signing key: %w", err)
	}
	if _, err := PutAll(farm, others, make([]objects.LBSignalKey, len(others))); err != nil {
		return fmt.Errorf("drop signal keys: %w", err)
	}
	return nil
}
