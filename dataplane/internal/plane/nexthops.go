package plane

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"

	"proffer/dataplane/objects"
	"proffer/topo"
)

// SetNextHops makes the programs' table equal to want.
func (p *Plane) SetNextHops(want topo.NextHops) error {
	hops := make(map[objects.LBPrefix]objects.LBNextHop, len(want))
	for prefix, mac := range want {
		hop := objects.LBNextHop{Mac: mac}
		if mac != (topo.MAC{}) {
			hop.Ready = 1
		}
		hops[PrefixKey(prefix)] = hop
	}
	if p.hops == nil {
		p.hops = map[objects.LBPrefix]objects.LBNextHop{}
	}
	if p.defaults == nil {
		var err error
		if p.defaults, err = newDefaults(p.DefaultHops); err != nil {
			return err
		}
	}
	bits := bitsOfRoutes(want)
	p.defaults.cover(bits)
	if len(p.hops)+len(hops) > topo.MaxHops { // no room for both
		if _, err := Prune(p.HopMap, p.hops, hops); err != nil {
			return fmt.Errorf("delete next hops: %w", err)
		}
	}
	longer := maps.Clone(hops) // first, so that no packet takes a new default route meanwhile
	delete(longer, PrefixKey(ipv6))
	delete(longer, PrefixKey(ipv4))
	if err := errors.Join(Update(p.HopMap, p.hops, longer), Update(p.HopMap, p.hops, hops)); err != nil {
		return fmt.Errorf("write next hops: %w", err)
	}
	p.defaults.serve(want)
	if _, err := Prune(p.HopMap, p.hops, hops); err != nil {
		return fmt.Errorf("delete next hops: %w", err)
	}
	p.defaults.uncover(bits)
	p.CurrentHops = want
	return nil
}

// PrefixKey is a prefix as the programs look it up.
func PrefixKey(p netip.Prefix) objects.LBPrefix {
	key := objects.LBPrefix{Bits: uint32(p.Bits())}
	if p.Addr().Is4() {
		key.Bits += 96 // IPv4 addresses are mapped
	}
	key.Addr.In6U.U6Addr8 = p.Addr().As16()
	return key
}

// Unresolved waits for the next address that a packet had no next hop for. It
// fails once the plane is closed.
func (p *Plane) Unresolved() (netip.Addr, error) {
	record, err := p.Lost.Read()
	if err != nil {
		return netip.Addr{}, err
	}
	return netip.AddrFrom16([16]byte(record.RawSample)).Unmap(), nil
}
