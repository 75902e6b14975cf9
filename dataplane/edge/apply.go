package edge

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"

	"proffer/dataplane/internal/plane"
	"proffer/dataplane/objects"
	"proffer/topo"
)

// Apply goes to another configuration while packets flow: nodes, services, prefixes and weights change,
// the links to clients and world, key and table of flows do not. All that can be wrong is found before
// the first change. Flows stay where they are; those of a node that is gone get another instance with
// their next packet.
//
//	new nodes, without a next hop -> numbers of new instances -> weights -> prefixes -> old nodes
func (l *LB) Apply(next *topo.EdgeLB) (err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() { err = errors.Join(err, l.leaveUnused()) }()
	own, err := plane.ReadAddresses()
	if err != nil {
		return err
	}
	if err := errors.Join(l.fillOwn(own), l.fillSpeakers(own)); err != nil {
		return err
	}
	fresh, err := l.freshNodes(next, own)
	if err != nil {
		return err
	}
	if err := l.check(next); err != nil {
		return err
	}
	if err := l.attachAll(); err != nil {
		return err
	}
	for server, e := range fresh {
		if err := l.objs.EdgeNodes.Put(uint32(server), e); err != nil {
			return fmt.Errorf("write node %d: %w", server, err)
		}
		l.ends[server] = e
	}
	if err := l.number(next); err != nil {
		return err
	}
	was := l.cfg
	l.cfg = next
	return errors.Join(l.applyServices(was), l.applyPrefixes(was), l.applyNodes(was))
}

// check finds numbers and weights that the maps cannot hold.
func (l *LB) check(next *topo.EdgeLB) error {
	fresh := 0
	for _, s := range next.Services {
		if s.Number < 1 || s.Number >= topo.MaxEdgeServices {
			return fmt.Errorf("service %d: want 1 to %d", s.Number, topo.MaxEdgeServices-1)
		}
		for _, i := range s.Instances {
			if l.numbers[vniOf(s, i)] == 0 {
				fresh++
			}
		}
		if _, err := aliasRows(make([]uint32, len(s.Instances)), weightsOf(s)); err != nil {
			return fmt.Errorf("service %d: %w", s.Number, err)
		}
	}
	if len(l.numbers)+fresh >= topo.MaxInstances {
		return fmt.Errorf("more than %d instances since the start: restart", topo.MaxInstances-1)
	}
	return nil
}

// freshNodes are the ends of nodes that are not as they were: not ready, unless the tunnel is the same. Their
// links are known then.
func (l *LB) freshNodes(next *topo.EdgeLB, own plane.Addresses) (map[int]objects.EdgeEdgeEnd, error) {
	fresh := map[int]objects.EdgeEdgeEnd{}
	for _, n := range next.Nodes {
		if slices.ContainsFunc(l.cfg.Nodes, func(was topo.EdgeNode) bool { return same(was, n) }) {
			continue
		}
		if n.Server < 0 || n.Server >= topo.MaxEdgeServers || n.Cores < 1 || n.Cores > topo.MaxEdgeCores {
			return nil, fmt.Errorf("node %d with %d cores: want a number up to %d, and 1 to %d cores", n.Server, n.Cores, topo.MaxEdgeServers-1, topo.MaxEdgeCores)
		}
		if err := l.findLink(n.Link); err != nil {
			return nil, err
		}
		on := l.links[n.Link]
		if on == l.links[l.cfg.Clients] || on == l.links[l.cfg.World] {
			return nil, fmt.Errorf("link %s: nodes have links of their own, apart from clients and world", n.Link)
		}
		e, err := plane.NewEnd(on.Interface, own, n.Addr)
		if err != nil {
			return nil, fmt.Errorf("node %d: %w", n.Server, err)
		}
		e.Cores = uint16(n.Cores)
		if was := l.ends[n.Server]; was.To == e.To && was.From == e.From && was.Link == e.Link {
			e.Mac, e.Ready = was.Mac, was.Ready // the cores alone are others
		} else {
			e = plane.Toward(e, l.hopTo(n))
		}
		fresh[n.Server] = e
	}
	return fresh, nil
}

// same reports whether a node is at the end of the same tunnel with as many cores.
func same(a, b topo.EdgeNode) bool {
	return a.Server == b.Server && a.Addr == b.Addr && a.Link == b.Link && a.Cores == b.Cores
}

// number gives new instances numbers. None is given twice: a flow may still bear it.
func (l *LB) number(next *topo.EdgeLB) error {
	for _, s := range next.Services {
		for _, i := range s.Instances {
			vni := vniOf(s, i)
			if l.numbers[vni] != 0 {
				continue
			}
			number := l.freeNumber()
			if err := l.giveNumber(vni, number); err != nil {
				return err
			}
		}
	}
	return nil
}

// giveNumber gives an instance a number.
func (l *LB) giveNumber(vni, number uint32) error {
	if err := errors.Join(l.objs.EdgeInstances.Put(number, vni), l.objs.EdgeNumbers.Put(vni, number)); err != nil {
		return fmt.Errorf("write instance %#x: %w", vni, err)
	}
	l.numbers[vni] = number
	return nil
}

// freeNumber is the lowest number that no instance has.
func (l *LB) freeNumber() uint32 {
	taken := map[uint32]bool{}
	for _, n := range l.numbers {
		taken[n] = true
	}
	number := uint32(1)
	for taken[number] {
		number++
	}
	return number
}

// applyServices sets the weights of all services. A service that is gone takes no new flows.
func (l *LB) applyServices(was *topo.EdgeLB) error {
	gone := map[int]bool{}
	for _, s := range was.Services {
		gone[s.Number] = true
	}
	for _, s := range l.cfg.Services {
		if !gone[s.Number] {
			if err := l.objs.EdgeTurns.Put(uint32(s.Number), rand.Uint32()); err != nil { // LBs do not walk in step
				return fmt.Errorf("begin the turns of service %d: %w", s.Number, err)
			}
		}
		delete(gone, s.Number)
		if err := l.SetWeights(s.Number, weightsOf(s)); err != nil {
			return err
		}
	}
	for service := range gone {
		if err := l.setRows(service, nil); err != nil {
			return err
		}
	}
	return nil
}

// prefixesOf are the prefixes of a configuration with their services, 0 for public prefixes.
func prefixesOf(cfg *topo.EdgeLB) map[netip.Prefix]uint32 {
	all := map[netip.Prefix]uint32{}
	for _, p := range cfg.Public {
		all[p] = 0
	}
	for _, s := range cfg.Services {
		for _, p := range s.Prefixes {
			all[p] = uint32(s.Number)
		}
	}
	return all
}

func (l *LB) applyPrefixes(was *topo.EdgeLB) error {
	wanted := prefixesOf(l.cfg)
	for p, service := range wanted {
		if err := l.objs.EdgePrefixes.Put(plane.PrefixKey(p), service); err != nil {
			return fmt.Errorf("write prefix %v of service %d: %w", p, service, err)
		}
	}
	for p := range prefixesOf(was) {
		if _, stays := wanted[p]; !stays {
			if err := l.objs.EdgePrefixes.Delete(plane.PrefixKey(p)); err != nil {
				return fmt.Errorf("remove prefix %v: %w", p, err)
			}
		}
	}
	l.prefixes = l.prefixes%math.MaxUint16 + 1
	if err := l.objs.EdgePrefixVersion.Set(uint32(l.prefixes)); err != nil { // the sources of known flows are looked at again
		return fmt.Errorf("write the version of the prefixes: %w", err)
	}
	return l.notes.Write(notes{markOf(l.cfg.Key), uint32(l.prefixes)})
}

// applyNodes takes packets of the nodes of now alone, and forgets the nodes that are gone.
func (l *LB) applyNodes(was *topo.EdgeLB) error {
	senders, servers := map[netip.Addr]bool{}, map[int]bool{}
	for _, n := range l.cfg.Nodes {
		senders[n.Addr], servers[n.Server] = true, true
		if err := l.objs.EdgeSenders.Put(n.Addr.As16(), uint32(n.Server)); err != nil {
			return fmt.Errorf("write the address of node %d: %w", n.Server, err)
		}
	}
	var errs []error
	for _, n := range was.Nodes {
		if !senders[n.Addr] {
			errs = append(errs, l.objs.EdgeSenders.Delete(n.Addr.As16()))
		}
		if !servers[n.Server] {
			delete(l.ends, n.Server)
			errs = append(errs, l.objs.EdgeNodes.Put(uint32(n.Server), objects.EdgeEdgeEnd{}))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("forget nodes that are gone: %w", err)
	}
	return nil
}
