package plane

import (
	"errors"

	"github.com/cilium/ebpf"
)

// Update gives the elements of a map the values of want. have holds the values
// written last: only differences are written, in one system call.
func Update[K, V comparable](m *ebpf.Map, have, want map[K]V) error {
	var keys []K
	var values []V
	for k, v := range want {
		if old, ok := have[k]; !ok || old != v {
			keys, values = append(keys, k), append(values, v)
		}
	}
	n, err := PutAll(m, keys, values)
	for i := range n {
		have[keys[i]] = values[i]
	}
	return err
}

// Prune deletes the elements that want does not have, and returns them.
func Prune[K, V comparable](m *ebpf.Map, have, want map[K]V) (map[K]V, error) {
	var keys []K
	for k := range have {
		if _, ok := want[k]; !ok {
			keys = append(keys, k)
		}
	}
	n, err := deleteAll(m, keys)
	gone := map[K]V{}
	for _, k := range keys[:n] {
		gone[k] = have[k]
		delete(have, k)
	}
	return gone, err
}

// PutAll writes elements and returns how many, from the first on. A batch that fails
// does not report reliably how many it wrote, so the elements are then written one by
// one.
func PutAll[K, V any](m *ebpf.Map, keys []K, values []V) (int, error) {
	if len(keys) == 0 {
		return 0, nil
	}
	if _, err := m.BatchUpdate(keys, values, nil); err == nil {
		return len(keys), nil
	}
	for i := range keys {
		if err := m.Put(keys[i], values[i]); err != nil {
			return i, err
		}
	}
	return len(keys), nil
}

// deleteAll is putAll for elements to remove.
func deleteAll[K any](m *ebpf.Map, keys []K) (int, error) {
	if len(keys) == 0 {
		return 0, nil
	}
	if _, err := m.BatchDelete(keys, nil); err == nil {
		return len(keys), nil
	}
	for i := range keys {
		if err := m.Delete(keys[i]); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return i, err
		}
	}
	return len(keys), nil
}
