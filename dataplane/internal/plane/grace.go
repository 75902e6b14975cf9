package plane

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// Grace waits for packets in progress: an update of an outer map returns after the programs
// that ran before it have ended (a grace period of RCU). The wait takes 10 ms and no CPU
// time.
type Grace struct{ outer, inner *ebpf.Map }

// NewGrace makes the maps.
func NewGrace() (_ *Grace, err error) {
	inner := &ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1}
	g := &Grace{}
	if g.inner, err = ebpf.NewMap(inner); err == nil {
		g.outer, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.ArrayOfMaps, KeySize: 4, ValueSize: 4, MaxEntries: 1, InnerMap: inner})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a map to wait for packets: %w", err), g.Close())
	}
	return g, nil
}

// Wait returns after the packets in progress have ended.
func (g *Grace) Wait() error {
	if err := g.outer.Put(uint32(0), g.inner); err != nil {
		return fmt.Errorf("wait for the packets on their way: %w", err)
	}
	return nil
}

// Close frees the maps; nil has none.
func (g *Grace) Close() error {
	if g == nil {
		return nil
	}
	return errors.Join(g.inner.Close(), g.outer.Close())
}
