package rig

import (
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// resettable is a map that can be made what it was after loading.
type resettable struct {
	*ebpf.Map
	memory *ebpf.Memory // of an array; or nil
}

// findMaps finds the maps of a set's programs.
func (s *loaded) findMaps() error {
	found := map[ebpf.MapID]bool{}
	for _, leaf := range leaves(s.objects) {
		prog, ok := leaf.Interface().(*ebpf.Program)
		if !ok {
			continue
		}
		info, err := prog.Info()
		if err != nil {
			return err
		}
		ids, _ := info.MapIDs()
		for _, id := range ids {
			if found[id] {
				continue
			}
			found[id] = true
			if err := s.addMap(id); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *loaded) addMap(id ebpf.MapID) error {
	m, err := ebpf.NewMapFromID(id)
	if err != nil {
		return err
	}
	info, err := m.Info()
	if err != nil {
		return err
	}
	r := resettable{Map: m}
	if info.Frozen() {
		return m.Close()
	}
	if m.Type() == ebpf.Array {
		r.memory, _ = m.Memory() // none where values have locks
	}
	s.maps = append(s.maps, r)
	return nil
}

// reset makes the maps what they were, and variables what a specification has.
func (s *loaded) reset(spec *ebpf.CollectionSpec) error {
	for _, m := range s.maps {
		if err := m.reset(); err != nil {
			return fmt.Errorf("reset %v: %w", m.Map, err)
		}
	}
	for _, leaf := range leaves(s.objects) {
		if v, ok := leaf.Interface().(*ebpf.Variable); ok && !v.ReadOnly() {
			if err := v.Set(spec.Variables[leaf.name].Value); err != nil {
				return fmt.Errorf("reset %s: %w", leaf.name, err)
			}
		}
	}
	return nil
}

// zeros is as much as any batch of values has.
var zeros = make([]byte, 4<<20)

func (m *resettable) reset() error {
	switch m.Type() {
	case ebpf.Array:
		if m.memory == nil {
			return m.zero()
		}
		return clearMemory(m.memory)
	case ebpf.PerCPUArray:
		return m.zero()
	case ebpf.Hash, ebpf.LRUHash, ebpf.LPMTrie:
		return m.empty()
	case ebpf.ArrayOfMaps:
		return m.forget()
	case ebpf.RingBuf:
		return m.drain()
	case ebpf.ProgramArray, ebpf.SkStorage: // no test changes it; it goes with the socket
		return nil
	}
	return errors.ErrUnsupported
}

func clearMemory(memory *ebpf.Memory) error {
	size := int64(memory.Size())
	for at := int64(0); at < size; at += int64(len(zeros)) {
		if _, err := memory.WriteAt(zeros[:min(int64(len(zeros)), size-at)], at); err != nil {
			return err
		}
	}
	return nil
}

// zero writes 0 to all values of an array, of all CPUs, by one call. ebpf.Map.BatchUpdate would marshal
// each value.
func (m *resettable) zero() error {
	keys := make([]uint32, m.MaxEntries())
	for i := range keys {
		keys[i] = uint32(i)
	}
	batch := struct { // of union bpf_attr (linux/bpf.h)
		_, _         uint64
		keys, values unsafe.Pointer
		count, fd    uint32
		_, _         uint64
	}{keys: unsafe.Pointer(&keys[0]), values: unsafe.Pointer(&zeros[0]), count: uint32(len(keys)), fd: uint32(m.FD())}
	_, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_MAP_UPDATE_BATCH, uintptr(unsafe.Pointer(&batch)), unsafe.Sizeof(batch))
	if errno != 0 {
		return errno
	}
	return nil
}

// empty deletes all entries. The kernel looks for a first key from the table's beginning, which takes long in a large
// table: so the next key is asked for before its predecessor goes.
func (m *resettable) empty() error {
	key, err := m.NextKeyBytes(nil)
	for err == nil && key != nil {
		var next []byte
		if next, err = m.NextKeyBytes(key); err == nil {
			err = m.Delete(key)
		}
		key = next
	}
	return err
}

// forget removes each map from an array of maps. A removal waits for a grace period: so the slots are asked first, and
// many removals wait for one.
func (m *resettable) forget() error {
	var group errgroup.Group
	group.SetLimit(256)
	for i := range m.MaxEntries() {
		var id ebpf.MapID
		if err := m.Lookup(i, &id); errors.Is(err, ebpf.ErrKeyNotExist) {
			continue
		} else if err != nil {
			return err
		}
		group.Go(func() error { return m.Delete(i) })
	}
	return group.Wait()
}

// drain reads a ring until it is empty.
func (m *resettable) drain() error {
	r, err := ringbuf.NewReader(m.Map)
	if err != nil {
		return err
	}
	defer r.Close()
	r.SetDeadline(time.Unix(1, 0))
	for err == nil {
		_, err = r.Read()
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return err
}
