package dataplane

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cilium/ebpf"

	"proffer/topo"
)

// allServers is everybody that a flow of cfg may be with, each once.
func allServers(cfg *topo.LB) []topo.Server {
	var all []topo.Server
	seen := map[uint64]bool{}
	for _, svc := range cfg.Services {
		for _, s := range svc.Servers {
			if bits := locatorBits(s.Locator); !seen[bits] {
				seen[bits] = true
				all = append(all, s)
			}
		}
	}
	return all
}

// numbers gives every server a number that stays its own while it is known:
// entries of flows name servers by it, and outlive daemons and configurations.
type numbers struct {
	known map[uint64]uint32 // by locator
	by    map[uint32]bool
	m     *ebpf.Map
}

// readNumbers takes over what an earlier daemon gave.
func readNumbers(m *ebpf.Map) (*numbers, error) {
	n := &numbers{known: map[uint64]uint32{}, by: map[uint32]bool{}, m: m}
	var locator uint64
	var number uint32
	all := m.Iterate()
	for all.Next(&locator, &number) {
		n.known[locator], n.by[number] = number, true
	}
	if err := all.Err(); err != nil {
		return nil, fmt.Errorf("read the servers' numbers: %w", err)
	}
	return n, nil
}

// take gives numbers to those who have none.
func (n *numbers) take(servers []topo.Server) error {
	next := uint32(0)
	for _, s := range servers {
		locator := locatorBits(s.Locator)
		if _, ok := n.known[locator]; ok {
			continue
		}
		for n.by[next] {
			next++
		}
		if err := n.m.Put(locator, next); err != nil {
			return fmt.Errorf("number server %s: %w", s.Name, err)
		}
		n.known[locator], n.by[next] = next, true
	}
	return nil
}

func (n *numbers) of(s topo.Server) uint32 { return n.known[locatorBits(s.Locator)] }

// nobody is the number of a server that has none.
const nobody = 0xffff

// ofPool gives the numbers of a pool, as buckets hold them.
func (n *numbers) ofPool(pool []topo.Server) []uint16 {
	out := make([]uint16, len(pool))
	for i, s := range pool {
		out[i] = nobody
		if number, ok := n.known[locatorBits(s.Locator)]; ok {
			out[i] = uint16(number)
		}
	}
	return out
}

// drop takes the numbers of all others back; an entry that still names one of
// them meets a server that does not know the flow, and is dropped then.
func (n *numbers) drop(keep []topo.Server) (dropped []uint32, err error) {
	kept := map[uint64]bool{}
	for _, s := range keep {
		kept[locatorBits(s.Locator)] = true
	}
	for _, locator := range slices.Collect(maps.Keys(n.known)) {
		if kept[locator] {
			continue
		}
		if err := n.m.Delete(locator); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return dropped, fmt.Errorf("drop a server: %w", err)
		}
		dropped = append(dropped, n.known[locator])
		delete(n.by, n.known[locator])
		delete(n.known, locator)
	}
	return dropped, nil
}

// writeServers writes everybody's record, with the next hop if it is known.
func (l *LB) writeServers(all []topo.Server) error {
	for _, s := range all {
		record := lbServer{LocatorBe: locatorBits(s.Locator)}
		if mac, ok := l.have.Lookup(s.Locator.Addr()); ok {
			record.Mac, record.Ready = mac, 1
		}
		if err := l.objs.Servers.Put(l.numbers.of(s), record); err != nil {
			return fmt.Errorf("write server %s: %w", s.Name, err)
		}
	}
	l.servers = all
	return nil
}

// dropServers forgets everybody but all.
func (l *LB) dropServers(all []topo.Server) error {
	dropped, err := l.numbers.drop(all)
	for _, number := range dropped {
		err = errors.Join(err, l.objs.Servers.Put(number, lbServer{}))
	}
	return err
}

// SetNextHops gives the programs the neighbours towards clients and servers.
func (l *LB) SetNextHops(hops topo.NextHops) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.plane.SetNextHops(hops); err != nil {
		return err
	}
	return l.writeServers(l.servers)
}

// Resolved says how many of the servers have a next hop.
func (l *LB) Resolved() (ready, all int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.servers {
		if _, ok := l.have.Lookup(s.Locator.Addr()); ok {
			ready++
		}
	}
	return ready, len(l.servers)
}
