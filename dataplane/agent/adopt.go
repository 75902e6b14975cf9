package agent

import (
	"fmt"

	"github.com/cilium/ebpf"

	"proffer/dataplane/objects"
	"proffer/topo"
)

// State that outlives an agent that was killed: its flows, and the loads that count
// some of them, by the numbers that the services had.

// adopt returns an earlier agent's state: the flows with the key of their digests and
// the loads and services that they number, all or nothing.
func (a *Agent) adopt(spec *ebpf.CollectionSpec) map[string]*ebpf.Map {
	names := []string{objects.AgentMapConns, objects.AgentMapConnKey, objects.AgentMapLoads, objects.AgentMapOfferings}
	found := a.Pins.Adopt(spec, names...)
	if len(found) == len(names) {
		return found
	}
	for _, m := range found {
		m.Close()
	}
	return nil
}

func (a *Agent) lasting() map[string]*ebpf.Map {
	return map[string]*ebpf.Map{
		objects.AgentMapConns: a.objs.Conns, objects.AgentMapConnKey: a.objs.ConnKey,
		objects.AgentMapLoads: a.objs.Loads, objects.AgentMapOfferings: a.objs.Offerings,
	}
}

// numbered reads the services of an earlier agent and their numbers.
func (a *Agent) numbered() (map[objects.LBServiceKey]uint32, error) {
	have := map[objects.LBServiceKey]uint32{}
	var key objects.LBServiceKey
	var o objects.AgentOffering
	it := a.objs.Offerings.Iterate()
	for it.Next(&key, &o) {
		have[key] = o.Index
	}
	if err := it.Err(); err != nil {
		return nil, fmt.Errorf("read the services of an earlier agent: %w", err)
	}
	return have, nil
}

// number gives each service the number it had, or a free one: the old flows of a
// service that is gone may still count in its load.
func number(services []topo.Offering, have map[objects.LBServiceKey]uint32) []uint32 {
	taken := map[uint32]bool{}
	for _, n := range have {
		taken[n] = true
	}
	numbers, next := make([]uint32, len(services)), uint32(0)
	for i, s := range services {
		n, known := have[objects.ServiceKey(s.VIP)]
		if !known {
			for taken[next] {
				next++
			}
			n, taken[next] = next, true
		}
		numbers[i] = n
	}
	return numbers
}

// writeLoad starts a service's load. Where an earlier agent left
// it, its threshold and the counts of its flows stay; open sockets are counted again.
func (a *Agent) writeLoad(s *topo.Offering, number uint32, known bool) error {
	var l objects.AgentLoad
	if known {
		if err := a.objs.Loads.Lookup(number, &l); err != nil {
			return err
		}
	}
	l.Open = 0
	if !known || !s.Acceptance.Adapts() {
		l.Threshold = uint32(s.Threshold)
	}
	return a.objs.Loads.Put(number, l)
}

// forgetOthers removes the services that are no longer configured.
func (a *Agent) forgetOthers(have map[objects.LBServiceKey]uint32) error {
	for _, s := range a.services {
		delete(have, objects.ServiceKey(s.VIP))
		delete(have, vipKey(s.VIP))
	}
	for key := range have {
		if err := a.objs.Offerings.Delete(key); err != nil {
			return fmt.Errorf("forget a service of an earlier agent: %w", err)
		}
	}
	return nil
}
