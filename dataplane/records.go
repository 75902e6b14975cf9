package dataplane

import (
	"fmt"

	"github.com/cilium/ebpf"
)

// records are the elements of the map `services`. A hash map of the kernel gives
// the memory of an element that was replaced or deleted to the next one at once,
// under the eyes of the packets that read it: such a packet would go on with
// another service's table. So between the two all packets on their way must end.
type records struct {
	m     *ebpf.Map
	have  map[lbServiceKey]lbService
	freed bool // an element, after which nobody has waited
	wait  func() error
}

func (r *records) put(key lbServiceKey, value lbService) error {
	old, known := r.have[key]
	if known && old == value {
		return nil
	}
	if err := r.settle(); err != nil {
		return err
	}
	if err := r.m.Put(key, value); err != nil {
		return fmt.Errorf("write a service's record: %w", err)
	}
	r.have[key], r.freed = value, known
	return nil
}

func (r *records) delete(key lbServiceKey) error {
	if err := r.m.Delete(key); err != nil {
		return fmt.Errorf("delete a service's record: %w", err)
	}
	delete(r.have, key)
	r.freed = true
	return nil
}

// settle returns when nobody reads a record any more that was replaced or deleted.
func (r *records) settle() error {
	if !r.freed {
		return nil
	}
	err := r.wait()
	r.freed = err != nil
	return err
}
