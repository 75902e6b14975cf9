package nf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"proffer/dataplane"
	"proffer/dataplane/internal/plane"
	"proffer/dataplane/objects"
	"proffer/topo"
)

const sweptAtOnce = 4096 // entries that user space reads at a time

// SweepTurn forgets the flows that are over, and frees their ports; it counts those of the functions. User
// space looks for those that were quiet, and the programs remove them, some at a time: packets wait for
// no whole table.
func (n *Node) SweepTurn() (swept dataplane.Swept, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.letGo(); err != nil {
		return swept, err
	}
	nat := table[objects.NFTuple, objects.NFNatBinding]{
		n.objs.NatOut, n.objs.SweepNat,
		func(t objects.NFTuple, b objects.NFNatBinding) (objects.NFNodeFlow, uint64) {
			return objects.NFNodeFlow{T: t}, b.Seen
		},
	}
	firewall := table[objects.NFNodeFlow, objects.NFFirewallState]{
		n.objs.FirewallStates, n.objs.SweepFirewall,
		func(f objects.NFNodeFlow, s objects.NFFirewallState) (objects.NFNodeFlow, uint64) {
			return f, s.Seen
		},
	}
	shortest := uint64(min(n.cfg.Idle, n.cfg.Linger))
	for _, sweep := range []func(uint64) (dataplane.Swept, error){nat.sweep, firewall.sweep} {
		some, err := sweep(shortest)
		if err != nil {
			return swept, fmt.Errorf("sweep the functions' flows: %w", err)
		}
		swept.Kept += some.Kept
		swept.Removed += some.Removed
	}
	return swept, n.sweepKept()
}

// sweepKept removes the flows that are idle from those that the node can name to an LB. A flow that has a
// packet meanwhile gets its entry again with the next.
func (n *Node) sweepKept() error {
	var step objects.NFNodeExpiry
	if err := plane.RunRecord(n.objs.SweepNat, &step); err != nil { // for the programs' clock
		return fmt.Errorf("sweep the flows: %w", err)
	}
	const seenShift = 28 // KEPT_SEEN_SHIFT of bpf/edge/node_flows.h
	now, idle := uint32(step.Now>>seenShift), int32(n.cfg.Idle>>seenShift)
	var cursor ebpf.MapBatchCursor
	keys, values := make([]uint64, sweptAtOnce), make([]objects.NFKeptFlow, sweptAtOnce)
	var over []uint64
	for last := false; !last; {
		count, err := n.objs.NodeFlows.BatchLookup(&cursor, keys, values, nil)
		if last = errors.Is(err, ebpf.ErrKeyNotExist); err != nil && !last {
			return fmt.Errorf("read the flows: %w", err)
		}
		for i := range count {
			if age := int32(now - values[i].Seen); age >= idle { // below 0: seen since
				over = append(over, keys[i])
			}
		}
	}
	for _, key := range over {
		if err := n.objs.NodeFlows.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("remove a flow: %w", err)
		}
	}
	return nil
}

// table is the flows of a function: a map, the program that removes those that are over, and the flow
// of an entry with the time that it was seen.
type table[K, V any] struct {
	flows  *ebpf.Map
	expire *ebpf.Program
	entry  func(K, V) (flow objects.NFNodeFlow, seen uint64)
}

// sweep removes the flows that are over, none of which was seen in the last quiet ns.
func (t table[K, V]) sweep(quiet uint64) (swept dataplane.Swept, err error) {
	var step objects.NFNodeExpiry
	if err := plane.RunRecord(t.expire, &step); err != nil { // for the programs' clock
		return swept, err
	}
	var cursor ebpf.MapBatchCursor
	keys, values := make([]K, sweptAtOnce), make([]V, sweptAtOnce)
	for now, last := step.Now, false; !last; {
		count, err := t.flows.BatchLookup(&cursor, keys, values, nil)
		if last = errors.Is(err, ebpf.ErrKeyNotExist); err != nil && !last {
			return swept, fmt.Errorf("read %v: %w", t.flows, err)
		}
		var over []objects.NFNodeFlow
		for i := range count {
			if flow, seen := t.entry(keys[i], values[i]); now-seen >= quiet {
				over = append(over, flow)
			}
		}
		removed, err := t.remove(over)
		if err != nil {
			return swept, err
		}
		swept.Removed += removed
		swept.Kept += uint64(count) - removed
	}
	return swept, nil
}

// remove runs the program for all of these flows.
func (t table[K, V]) remove(flows []objects.NFNodeFlow) (removed uint64, err error) {
	for len(flows) > 0 {
		var step objects.NFNodeExpiry
		step.Count = uint32(copy(step.Flow[:], flows))
		flows = flows[step.Count:]
		if err := plane.RunRecord(t.expire, &step); err != nil {
			return removed, err
		}
		removed += uint64(step.Removed)
	}
	return removed, nil
}

var _ = [1]int{}[topo.MaxNodeExpiring-len(objects.NFNodeExpiry{}.Flow)] // the layout is the program's
