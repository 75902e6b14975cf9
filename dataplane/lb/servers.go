package lb

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"

	"proffer/dataplane/internal/plane"
	"proffer/dataplane/objects"
	"proffer/topo"
)

// numbers gives every server a number that it keeps while it has a record: entries of
// flows name servers by it, and outlive daemons and configurations.
type numbers struct {
	known map[uint64]uint32 // by identity, of most servers the locator
	m     *ebpf.Map
	near  *senders
}

// takeNumbers copies the numbers that an earlier daemon gave, or none, to m: its programs go
// on by its own map until they are replaced.
func takeNumbers(before, m *ebpf.Map, near *senders) (*numbers, error) {
	n, given := &numbers{known: map[uint64]uint32{}, m: m, near: near}, map[uint64]uint32{}
	if before != nil {
		var locator uint64
		var number uint32
		all := before.Iterate()
		for all.Next(&locator, &number) {
			given[locator] = number
		}
		if err := all.Err(); err != nil {
			return nil, fmt.Errorf("read the servers' numbers: %w", err)
		}
	}
	if err := plane.Update(m, n.known, given); err != nil {
		return nil, fmt.Errorf("copy the servers' numbers: %w", err)
	}
	return n, near.add(given)
}

// take gives numbers to servers that have none.
func (n *numbers) take(servers []topo.Server) error {
	taken := map[uint32]bool{}
	for _, number := range n.known {
		taken[number] = true
	}
	fresh, next := map[uint64]uint32{}, uint32(0)
	for i := range servers {
		id := objects.ServerBits(&servers[i])
		if _, ok := n.known[id]; ok {
			continue
		}
		for taken[next] {
			next++
		}
		fresh[id], taken[next] = next, true
	}
	if err := plane.Update(n.m, n.known, fresh); err != nil {
		return fmt.Errorf("number the servers: %w", err)
	}
	return n.near.add(fresh)
}

func (n *numbers) of(s topo.Server) uint32 { return n.known[objects.ServerBits(&s)] }

// noServer stands for a server without a number.
const noServer = 0xffff

// ofPool gives the numbers of a pool, as buckets hold them.
func (n *numbers) ofPool(pool []topo.Server) []uint16 {
	out := make([]uint16, len(pool))
	for i, s := range pool {
		out[i] = noServer
		if number, ok := n.known[objects.ServerBits(&s)]; ok {
			out[i] = uint16(number)
		}
	}
	return out
}

// drop frees the numbers of all other servers. A packet of an entry that still has such
// a number goes to a server that does not know the flow; its nm removes the entry.
func (n *numbers) drop(keep []topo.Server) (dropped map[uint64]uint32, err error) {
	kept := map[uint64]uint32{}
	for _, s := range keep {
		kept[objects.ServerBits(&s)] = n.of(s)
	}
	if dropped, err = plane.Prune(n.m, n.known, kept); err != nil {
		return dropped, fmt.Errorf("take the numbers of servers back: %w", err)
	}
	return dropped, n.near.drop(dropped)
}

// writeServers writes every server's record, with the next hop if it is known.
func (l *LB) writeServers(all []topo.Server) error {
	hops, source := byLength(l.CurrentHops), sourceOf(l.Dev.Load())
	if err := l.writeTunnels(all, source); err != nil {
		return err
	}
	want := make(map[uint32]objects.LBServer, len(all))
	for _, s := range all {
		record := objects.LBServer{LocatorBe: objects.ServerBits(&s)}
		if mac, ok := hops.to(&s); ok && (!s.Delivery.Tunnel() || s.Address.Is6() || source.IsValid()) {
			record.Mac, record.Ready = mac, readiness(s.Delivery.Row())
		}
		record.Ready |= l.health.marks[record.LocatorBe]
		want[l.numbers.of(s)] = record
	}
	if err := plane.Update(l.objs.Servers, l.written, want); err != nil {
		return fmt.Errorf("write the servers: %w", err)
	}
	l.servers = all
	return nil
}

// readiness is the way to a server with a next hop (enum delivery).
func readiness(d topo.DeliveryRow) uint16 {
	switch {
	case d.Seg6:
		return objects.DeliverySeg6
	case d.SRv6:
		return objects.DeliveryAgent
	case d.Tunnel:
		return objects.DeliveryVxlan
	default:
		return objects.DeliveryL2
	}
}

// dropServers removes all servers except these.
func (l *LB) dropServers(all []topo.Server) error {
	l.servers = all
	dropped, err := l.numbers.drop(all)
	none := map[uint32]objects.LBServer{}
	for _, number := range dropped {
		none[number] = objects.LBServer{}
	}
	if e := plane.Update(l.objs.Servers, l.written, none); e != nil {
		err = errors.Join(err, fmt.Errorf("drop servers: %w", e))
	}
	return errors.Join(err, l.dropTunnels(all))
}

// Reach is SetNextHops.
func (l *LB) Reach(_ string, hops topo.NextHops) error { return l.SetNextHops(hops) }

// SetNextHops gives the programs the neighbours towards clients and servers.
func (l *LB) SetNextHops(hops topo.NextHops) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.Plane.SetNextHops(hops); err != nil {
		return err
	}
	return l.writeServers(l.servers)
}

// Resolved counts the servers, and lists those without a next hop.
func (l *LB) Resolved() (without []topo.Server, all int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.servers {
		if !l.reaches(s) {
			without = append(without, s)
		}
	}
	return without, len(l.servers)
}

// reaches reports whether a server has a next hop.
func (l *LB) reaches(s topo.Server) bool {
	return l.written[l.numbers.of(s)].Ready&objects.DeliveryWays != 0
}

// hopsByLength are next hops with the lengths of their prefixes, longest first:
// topo.NextHops.Lookup tries 128 for each of a thousand servers.
type hopsByLength struct {
	hops    topo.NextHops
	lengths []int
}

func byLength(hops topo.NextHops) hopsByLength {
	var there [129]bool
	for p := range hops {
		there[p.Bits()] = true
	}
	h := hopsByLength{hops: hops}
	for bits := 128; bits >= 0; bits-- {
		if there[bits] {
			h.lengths = append(h.lengths, bits)
		}
	}
	return h
}

// to is the next hop to a server. A server that gets packets at its link address is a neighbour itself:
// a gateway would send them back.
func (h hopsByLength) to(s *topo.Server) (topo.MAC, bool) {
	if !s.Delivery.Row().Neighbour {
		return h.lookup(s.At())
	}
	mac := h.hops[netip.PrefixFrom(s.Address, s.Address.BitLen())]
	return mac, mac != topo.MAC{}
}

// lookup is topo.NextHops.Lookup.
func (h hopsByLength) lookup(addr netip.Addr) (topo.MAC, bool) {
	for _, bits := range h.lengths {
		p, err := addr.Prefix(bits)
		if err != nil {
			continue // an IPv4 address has 32
		}
		if mac, ok := h.hops[p]; ok {
			return mac, mac != topo.MAC{}
		}
	}
	return topo.MAC{}, false
}
