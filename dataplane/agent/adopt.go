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

// offered reads the services of an earlier agent.
func (a *Agent) offered() (have plan.Offered, err error) {
	have.Loads = map[topo.VIP]uint32{}
	var key objects.LBServiceKey
	var o objects.AgentOffering
	it := a.objs.Offerings.Iterate()
	for it.Next(&key, &o) {
		vip := vipOf(key)
		if key == vipKey(vip) {
			have.Marked = append(have.Marked, vip.Addr)
		} else {
			have.Loads[vip] = o.Index
		}
	}
	if err := it.Err(); err != nil {
		return have, fmt.Errorf("read the services of an earlier agent: %w", err)
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

// writeLoad starts a service's load. If an earlier agent left it, its threshold and the
// counts of its flows stay; open sockets are counted again.
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
