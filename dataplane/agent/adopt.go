package agent

import (
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"

	"proffer/dataplane/objects"
	"proffer/plan"
	"proffer/topo"
)

// State that outlives an agent that was killed: its flows, and the loads that count
// some of them, by the numbers that the services had.

// adopt returns an earlier agent's state: the flows with their hints, the key of their digests
// and the loads and services that they number. Flows of another size or layout of the table are
// restored later (restore.go).
func (a *Agent) adopt(spec *ebpf.CollectionSpec) map[string]*ebpf.Map {
	names := []string{objects.AgentMapConns, objects.AgentMapConnHints, objects.AgentMapConnKey, objects.AgentMapLoads, objects.AgentMapOfferings}
	found := a.Pins.Adopt(spec, names...)
	if len(found) == len(names) {
		a.before = found[objects.AgentMapOfferings] // this agent's are in a map of its own
		delete(found, objects.AgentMapOfferings)
		return found
	}
	kept := map[string]*ebpf.Map{}
	if loads, offerings := found[objects.AgentMapLoads], found[objects.AgentMapOfferings]; loads != nil && offerings != nil {
		kept[objects.AgentMapLoads], a.before = loads, offerings
	}
	for name, m := range found {
		if kept[name] == nil && m != a.before {
			m.Close()
		}
	}
	a.earlier = a.Pins.AdoptConns(len(kept) > 0)
	return kept
}

func (a *Agent) lasting() map[string]*ebpf.Map {
	maps := a.lastingFlows()
	if a.work != nil {
		for _, name := range workMaps {
			maps[name] = a.work.coll.Maps[name]
		}
	}
	return maps
}

func (a *Agent) lastingFlows() map[string]*ebpf.Map {
	return map[string]*ebpf.Map{
		objects.AgentMapConns: a.objs.Conns, objects.AgentMapConnHints: a.objs.ConnHints, objects.AgentMapConnKey: a.objs.ConnKey,
		objects.AgentMapLoads: a.objs.Loads, objects.AgentMapOfferings: a.objs.Offerings,
		objects.AgentMapPrograms: a.objs.Programs,
	}
}

// offeredIn reads the services in a map of offerings; nil has none.
func offeredIn(m *ebpf.Map) (have plan.Offered, err error) {
	have.Loads = map[topo.VIP]uint32{}
	if m == nil {
		return have, nil
	}
	var key objects.LBServiceKey
	var number uint32
	it := m.Iterate()
	for it.Next(&key, &number) {
		vip := vipOf(key)
		if key == vipKey(vip) {
			have.Marked = append(have.Marked, vip.Addr)
		} else {
			have.Loads[vip] = number
		}
	}
	if err := it.Err(); err != nil {
		return have, fmt.Errorf("read the services: %w", err)
	}
	return have, nil
}

// vipOf undoes objects.ServiceKey and vipKey.
func vipOf(key objects.LBServiceKey) topo.VIP {
	vip := topo.VIP{Addr: netip.AddrFrom16(key.Vip.In6U.U6Addr8).Unmap(), Port: objects.PortBits(key.PortBe)}
	if key.Protocol == topo.UDP.Number() {
		vip.Protocol = topo.UDP
	}
	return vip
}
