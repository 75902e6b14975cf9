package nexthop

import (
	"net/netip"
	"slices"
)

// layer is a rule of routing: where its table has no route for an address, the next layer decides.
type layer struct {
	table    uint32
	dead     bool         // no table: no packet leaves
	all      netip.Prefix // of its family
	region                // its destinations
	suppress int          // prefixes of so many bits and shorter decide nothing; -1: all decide
}

// region are the addresses of a prefix but for those of some prefixes inside it.
type region struct {
	to  netip.Prefix
	but []netip.Prefix
}

// within is the part of a region in a prefix.
func (g region) within(p netip.Prefix) (part region, any bool) {
	if part = g; p.Bits() > g.to.Bits() {
		part.to, p = p, g.to
	}
	outside := func(b netip.Prefix) bool { return b.Bits() <= part.to.Bits() && b.Contains(part.to.Addr()) }
	if !p.Contains(part.to.Addr()) || slices.ContainsFunc(g.but, outside) {
		return part, false
	}
	part.but = slices.DeleteFunc(slices.Clone(g.but), func(b netip.Prefix) bool { return !part.to.Contains(b.Addr()) })
	return part, true
}

// without are the parts of regions outside another region.
func without(all []region, h region) (parts []region) {
	for _, g := range all {
		switch _, touches := g.within(h.to); {
		case !touches:
			parts = append(parts, g)
		case h.to.Bits() > g.to.Bits():
			parts = append(parts, region{g.to, append(slices.Clone(g.but), h.to)})
		}
		for _, b := range h.but {
			if part, any := g.within(b); any {
				parts = append(parts, part)
			}
		}
	}
	return parts
}

// has reports whether a route is for addresses of the region alone, or for such as lie in a hole of it.
func (g region) has(r route) (is, inHole bool) {
	is = g.to.Bits() <= r.prefix.Bits() && g.to.Contains(r.prefix.Addr())
	hole := func(b netip.Prefix) bool { return b.Bits() <= r.prefix.Bits() && b.Contains(r.prefix.Addr()) }
	return is, is && slices.ContainsFunc(g.but, hole)
}

// tableOf is a table of routes of one family.
type tableOf struct {
	all netip.Prefix // of the family
	id  uint32
}

// overlay are the routes of several layers as one table: an address has the route of the first layer that decides.
func overlay(layers []layer, tables map[tableOf][]route) []route {
	var parts [][]route
	for _, l := range layers {
		if part := l.part(tables[tableOf{l.all, l.table}]); len(part) > 0 {
			parts = append(parts, part)
		}
	}
	if len(parts) == 1 && !slices.ContainsFunc(parts[0], func(r route) bool { return r.through && !r.dead }) {
		return parts[0]
	}
	var prefixes []route
	for _, part := range parts {
		prefixes = append(prefixes, part...)
	}
	slices.SortFunc(prefixes, route.compare)
	prefixes = slices.CompactFunc(prefixes, func(a, b route) bool { return a.prefix == b.prefix })
	around := make([][]route, len(parts)) // of each part, those around the present prefix, the longest last
	for i, p := range prefixes {
		decided := route{dead: true}
		for k := len(parts) - 1; k >= 0; k-- {
			around[k] = outside(around[k], p)
			if len(parts[k]) > 0 && parts[k][0].prefix == p.prefix {
				around[k], parts[k] = append(around[k], parts[k][0]), parts[k][1:]
			}
			if n := len(around[k]); n > 0 && !around[k][n-1].through {
				decided = around[k][n-1]
			}
		}
		decided.prefix = p.prefix
		prefixes[i] = decided
	}
	return prefixes
}

// part are the routes of a layer for its destinations.
func (l layer) part(table []route) (part []route) {
	if l.dead {
		table = []route{{prefix: l.all, dead: true}}
	}
	around, begins := route{prefix: l.to, through: true}, false // begins: a route begins at l.to
	for _, r := range best(table) {
		r.through = r.through || !r.dead && r.prefix.Bits() <= l.suppress
		if is, inHole := l.has(r); is && !inHole {
			part = append(part, r)
			begins = begins || r.prefix == l.to
		} else if !is && r.contains(around) {
			around = r
			around.prefix = l.to
		}
	}
	if !begins && !around.through {
		part = append(part, around)
	}
	if len(part) == 0 {
		return nil
	}
	for _, b := range l.but {
		part = append(part, route{prefix: b, through: true})
	}
	slices.SortFunc(part, route.compare)
	return slices.CompactFunc(part, func(a, b route) bool { return a.prefix == b.prefix })
}
