package edge

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"proffer/dataplane/internal/plane"
	"proffer/dataplane/objects"
	"proffer/topo"
	"proffer/wire"
)

// notes are for the next daemon.
type notes struct {
	Key      uint64 // a mark of the flow_key, by which digests are comparable
	Prefixes uint32 // the last version of the prefixes, which entries bear
}

// markOf tells keys apart, and tells no key.
func markOf(key topo.Key) uint64 {
	sum := sha256.Sum256(append([]byte("flow_key"), key[:]...))
	return binary.NativeEndian.Uint64(sum[:])
}

// adopt finds the flows of an earlier daemon: a table of this size is used as it is, and the entries of a table
// of another size are copied.
func (l *LB) adopt(spec *ebpf.CollectionSpec) map[string]*ebpf.Map {
	const name = objects.EdgeMapEdgeFlows
	flows := l.Left(name)
	if flows == nil {
		return nil
	}
	was, found := plane.ReadNotes[notes](&l.Lasting)
	if !found || was.Key != markOf(l.cfg.Key) {
		l.Forget(name, flows, "their digests are by another flow_key")
		return nil
	}
	l.prefixes = int(was.Prefixes) // the next version is another layout
	if spec.Maps[name].Compatible(flows) == nil {
		return map[string]*ebpf.Map{name: flows}
	}
	l.before = flows
	return nil
}

// adoptNumbers takes over the numbers of instances that have flows, or are in the configuration: packets are
// counted by them.
func (l *LB) adoptNumbers(cfg *topo.EdgeLB) error {
	numbers := l.Left(objects.EdgeMapEdgeNumbers)
	if numbers == nil || !l.hasFlows() {
		return numbers.Close()
	}
	defer numbers.Close()
	needed, err := l.numbersOfFlows()
	if err != nil {
		return err
	}
	for _, s := range cfg.Services {
		for _, i := range s.Instances {
			needed[vniOf(s, i)] = true
		}
	}
	var vni, number uint32
	it := numbers.Iterate()
	for it.Next(&vni, &number) {
		if !needed[vni] {
			continue
		}
		if err := l.giveNumber(vni, number); err != nil {
			return err
		}
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("read the numbers of instances: %w", err)
	}
	return nil
}

// hasFlows reports whether flows of an earlier daemon are, or will be, in the table.
func (l *LB) hasFlows() bool { return l.Adopted() && l.Forgotten() == "" }

// numbersOfFlows are the instances of all flows.
func (l *LB) numbersOfFlows() (instances map[uint32]bool, err error) {
	table := l.objs.EdgeFlows
	if l.before != nil {
		table = l.before
	}
	instances = map[uint32]bool{}
	err = eachFlow(table, func(_ []uint64, flows []objects.EdgeEdgeFlow) error {
		for i := range flows {
			instances[uint32(flows[i].Word&wire.EdgeInstance)] = true
		}
		return nil
	})
	return instances, err
}

// eachFlow calls f with the flows of a table, some at a time.
func eachFlow(table *ebpf.Map, f func(hashes []uint64, flows []objects.EdgeEdgeFlow) error) error {
	var cursor ebpf.MapBatchCursor
	keys, values := make([]uint64, sweptAtOnce), make([]objects.EdgeEdgeFlow, sweptAtOnce)
	for {
		n, err := table.BatchLookup(&cursor, keys, values, nil)
		last := errors.Is(err, ebpf.ErrKeyNotExist)
		if err != nil && !last {
			return fmt.Errorf("read the flows: %w", err)
		}
		if err := f(keys[:n], values[:n]); err != nil || last {
			return err
		}
	}
}

// copyFlows gives the table the flows of a table of another size that it has not. Those for which there is no
// room are forgotten.
func (l *LB) copyFlows() error {
	if l.before == nil {
		return nil
	}
	lost := 0
	err := eachFlow(l.before, func(hashes []uint64, flows []objects.EdgeEdgeFlow) error {
		for i, hash := range hashes {
			err := l.objs.EdgeFlows.Update(hash, &flows[i], ebpf.UpdateNoExist)
			switch {
			case errors.Is(err, ebpf.ErrKeyExist):
			case err != nil: // full
				lost++
			}
		}
		return nil
	})
	if lost > 0 {
		l.Pins.Forgotten = fmt.Sprintf("%d flows: the table has %d elements now, it had %d", lost, l.objs.EdgeFlows.MaxEntries(), l.before.MaxEntries())
	}
	return err
}

// state is the maps that outlive the daemon.
func (l *LB) state() map[string]*ebpf.Map {
	return map[string]*ebpf.Map{
		objects.EdgeMapEdgeFlows: l.objs.EdgeFlows, objects.EdgeMapEdgeNumbers: l.objs.EdgeNumbers,
		objects.EdgeMapEdgePrograms: l.objs.EdgeMaps.EdgePrograms, plane.NotesMap: l.notes.Map(),
	}
}
