package topo

import "net/netip"

// MAC is a link-layer address; the zero MAC means "not resolved yet".
type MAC [6]byte

// NextHops maps a prefix to the neighbour that takes its packets. A prefix that
// is on the link itself has the zero MAC, each resolved neighbour a /128.
type NextHops map[netip.Prefix]MAC

// Lookup returns the neighbour of the longest prefix around addr. Returns
// false if there is none, or it is not resolved yet.
func (n NextHops) Lookup(addr netip.Addr) (MAC, bool) {
	for bits := addr.BitLen(); bits >= 0; bits-- {
		p, err := addr.Prefix(bits)
		if err != nil {
			return MAC{}, false
		}
		if mac, ok := n[p]; ok {
			return mac, mac != MAC{}
		}
	}
	return MAC{}, false
}
