package nexthop

import (
	"cmp"
	"maps"
	"slices"

	"proffer/topo"
)

// nextHops joins routes and neighbours to at most `room` next hops. Neighbours have up to
// half of the room. Of routes, short prefixes come first: a packet of a route that is left
// out goes by the route around it.
func nextHops(routes []route, neighbours topo.NextHops, room int) (hops topo.NextHops, waiting topo.Waiting, leftOut int) {
	hops, waiting = topo.NextHops{}, topo.Waiting{}
	at := maps.Clone(neighbours)
	for prefix := range neighbours {
		if len(neighbours) > room/2 && len(hops) == room/2 {
			break
		}
		hops[prefix] = neighbours[prefix]
	}
	leftOut = len(neighbours) - len(hops)
	if over := len(hops) + len(routes) - room; over > 0 {
		routes = slices.Clone(routes)
		slices.SortStableFunc(routes, func(a, b route) int { return cmp.Compare(a.prefix.Bits(), b.prefix.Bits()) })
		routes = routes[:len(routes)-over]
		leftOut += over
	}
	for _, r := range routes {
		if !r.addTo(hops, at) {
			waiting[r.prefix] = r.gateways()
		}
	}
	return hops, waiting, leftOut
}

// addTo adds the route: the address of its first gateway that is known, or a mark without an address for a prefix
// that is on the link itself or unreachable. False: no gateway is resolved.
func (r route) addTo(hops, neighbours topo.NextHops) (resolved bool) {
	if r.dead {
		hops[r.prefix] = topo.MAC{}
		return true
	}
	if !r.gateway.IsValid() {
		if _, known := hops[r.prefix]; !known {
			hops[r.prefix] = topo.MAC{}
		}
		return true
	}
	mac, known := neighbours[alone(r.gateway)]
	for i := 0; i < len(r.others) && !known; i++ {
		mac, known = neighbours[alone(r.others[i])]
	}
	hops[r.prefix] = mac
	return known
}
