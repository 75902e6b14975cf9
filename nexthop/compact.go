package nexthop

import (
	"cmp"
	"net/netip"
	"slices"
)

// best returns for each prefix the route of a table that the kernel prefers, by the lowest metric. Prefixes are in
// order, shorter prefixes before longer prefixes inside. Of routes that are alike but for their gateways, such as those that
// several routers advertise, the gateways are joined.
func best(table []route) (kept []route) {
	slices.SortFunc(table, func(a, b route) int {
		return cmp.Or(a.compare(b), cmp.Compare(a.metric, b.metric), cmp.Compare(a.order, b.order))
	})
	for _, r := range table {
		if len(kept) == 0 || kept[len(kept)-1].prefix != r.prefix {
			kept = append(kept, r)
			continue
		}
		first := &kept[len(kept)-1]
		if r.metric == first.metric && !r.dead && !first.dead && first.gateway.IsValid() {
			for _, g := range r.gateways() {
				if !slices.Contains(first.gateways(), g) {
					first.others = append(first.others, g)
				}
			}
		}
	}
	return kept
}

// compare is by prefix.
func (r route) compare(other route) int {
	return cmp.Or(r.prefix.Addr().Compare(other.prefix.Addr()), cmp.Compare(r.prefix.Bits(), other.prefix.Bits()))
}

// compact leaves routes out that send packets where the next shorter prefix sends them: a full table of one gateway
// is its default route. Each prefix has one route, and they are in order.
func compact(all []route) (kept []route) {
	around := []int{} // the kept routes with prefixes around the present one, the longest last
	for _, r := range all {
		for len(around) > 0 && !kept[around[len(around)-1]].contains(r) {
			around = around[:len(around)-1]
		}
		if r.around = -1; len(around) > 0 {
			r.around = around[len(around)-1]
		}
		if r.around >= 0 && kept[r.around].sameHop(r) || r.around < 0 && r.dead {
			continue
		}
		around, kept = append(around, len(kept)), append(kept, r)
	}
	return kept
}

// longest is the route of an address among those that compact kept.
func longest(kept []route, addr netip.Addr) (r route, found bool) {
	at, is := slices.BinarySearchFunc(kept, route{prefix: alone(addr)}, route.compare)
	if !is {
		at-- // the last route before the address, or a route around that one
	}
	for at >= 0 && !kept[at].prefix.Contains(addr) {
		at = kept[at].around
	}
	if at < 0 {
		return r, false
	}
	return kept[at], true
}

// outside drops those of a stack of routes, each inside the route before, that are not around r.
func outside(around []route, r route) []route {
	for len(around) > 0 && !around[len(around)-1].contains(r) {
		around = around[:len(around)-1]
	}
	return around
}

func (r route) contains(other route) bool {
	return r.prefix.Bits() <= other.prefix.Bits() && r.prefix.Contains(other.prefix.Addr())
}

func (r route) sameHop(other route) bool {
	return r.dead == other.dead && (r.dead || r.gateway == other.gateway && slices.Equal(r.others, other.others))
}
