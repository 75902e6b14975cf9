package topo

import "net/netip"

// MAC is a link-layer address; the zero MAC means "not resolved yet".
type MAC [6]byte

// NextHops maps a prefix to the neighbour that takes its packets. A prefix that
// is on the link itself has the zero MAC, each resolved neighbour a /128.
type NextHops map[netip.Prefix]MAC

// Waiting are the gateways of routes that have no next hop because no gateway answers, by prefix.
type Waiting map[netip.Prefix][]netip.Addr

// Lookup returns the neighbour of the longest prefix around addr. Returns
// false if there is none, or it is not resolved yet.
func (n NextHops) Lookup(addr netip.Addr) (MAC, bool) {
	mac := n[n.Around(addr)]
	return mac, mac != MAC{}
}

// By lists the gateways of the route to an address, if none answers.
func (n NextHops) By(addr netip.Addr, waiting Waiting) []netip.Addr { return waiting[n.Around(addr)] }

// Around is the longest prefix around an address, invalid without.
func (n NextHops) Around(addr netip.Addr) netip.Prefix {
	for bits := addr.BitLen(); bits >= 0; bits-- {
		p, err := addr.Prefix(bits)
		if err != nil {
			break
		}
		if _, ok := n[p]; ok {
			return p
		}
	}
	return netip.Prefix{}
}
