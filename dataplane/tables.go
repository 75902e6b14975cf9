package dataplane

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"proffer/table"
	"proffer/topo"
)

// tables remembers those that were built last: a change of the pool makes the
// table of today one of the history, and only one is new.
type tables struct {
	built, before map[string]*table.Table
}

// of builds the table of one pool, or remembers it.
func (t *tables) of(svc *topo.Service, pool []topo.Server) (*table.Table, error) {
	key := fmt.Sprint(svc.Dispatch, svc.Select, svc.Buckets, svc.Choices)
	for _, s := range pool {
		key += fmt.Sprint(" ", s.Locator.Addr(), "=", s.Weight)
	}
	known := t.before[key]
	if known == nil {
		known = t.built[key]
	}
	if known == nil {
		var err error
		if known, err = table.Of(svc, pool); err != nil {
			return nil, err
		}
	}
	if t.built == nil {
		t.built = map[string]*table.Table{}
	}
	t.built[key] = known
	return known, nil
}

// forget drops the tables that the last configuration did not need.
func (t *tables) forget() { t.before, t.built = t.built, nil }

// buckets lists the servers of each bucket: the candidates of today, then those
// that earlier tables had there, the latest first: a flow is recovered from the
// union. Who is no longer in the pool is gone and is asked nothing: a question
// ends where its host is down. (One that shall finish its flows drains.)
func (t *tables) buckets(svc *topo.Service, n *numbers) ([]lbBucket, error) {
	today, err := t.of(svc, svc.Servers)
	if err != nil {
		return nil, err
	}
	out := make([]lbBucket, today.Buckets())
	pool := n.ofPool(svc.Servers)
	for i := range out {
		out[i].add(today.Bucket(i), pool)
		out[i].Choices = out[i].Members
	}
	if svc.Dispatch == topo.Single {
		return out, nil
	}
	for _, v := range svc.History {
		past, err := t.of(svc, v.Servers)
		if err != nil {
			return nil, fmt.Errorf("version %d: %w", v.Version, err)
		}
		members := n.ofPool(v.Servers)
		for i, number := range members {
			if !slices.Contains(pool, number) {
				members[i] = nobody
			}
		}
		for i := range out {
			out[i].add(past.Bucket(i), members)
		}
	}
	return out, nil
}

// add appends the servers of a list that are not there yet, while there is room.
func (b *lbBucket) add(list []uint16, numbers []uint16) {
	for _, at := range list {
		number := numbers[at]
		full := int(b.Members) == len(b.Server)
		if number != nobody && !full && !slices.Contains(b.Server[:b.Members], number) {
			b.Server[b.Members] = number
			b.Members++
		}
	}
}

// putTable makes a map of the buckets and puts it into a slot.
func putTable(all *ebpf.Map, slot uint32, buckets []lbBucket) error {
	m, err := ebpf.NewMap(&ebpf.MapSpec{
		Type:       ebpf.Array,
		KeySize:    4,
		ValueSize:  bucketBytes,
		MaxEntries: uint32(len(buckets)),
		Flags:      innerMap,
	})
	if err != nil {
		return fmt.Errorf("make a table: %w", err)
	}
	defer m.Close() // the slot holds it
	keys := make([]uint32, len(buckets))
	for i := range keys {
		keys[i] = uint32(i)
	}
	if _, err := m.BatchUpdate(keys, buckets, nil); err != nil {
		return fmt.Errorf("fill a table: %w", err)
	}
	if err := all.Put(slot, m); err != nil {
		return fmt.Errorf("put a table: %w", err)
	}
	return nil
}

const (
	bucketBytes = 32     // sizeof(struct bucket), held equal by a test
	innerMap    = 0x1000 // BPF_F_INNER_MAP
)

func deleteTable(all *ebpf.Map, slot uint32) error {
	if err := all.Delete(slot); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("delete a table: %w", err)
	}
	return nil
}
