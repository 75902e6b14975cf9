package nexthop

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"proffer/topo"
)

// drawRoutes draws n routes of a small space by a few gateways, some dead, some on the link.
func drawRoutes(rng *rand.Rand, n, longest int, gateways []netip.Addr) (all []route) {
	for range n {
		var a [16]byte
		a[0], a[1] = 0x20, byte(rng.IntN(256))
		r := route{metric: rng.Uint32N(3)}
		r.prefix = netip.PrefixFrom(netip.AddrFrom16(a), rng.IntN(longest+1)).Masked()
		switch k := rng.IntN(len(gateways) + 2); {
		case k < len(gateways):
			r.gateway = gateways[k]
		case k == len(gateways):
			r.dead = true
		}
		all = append(all, r)
	}
	return all
}

// slowest is the route of an address by the definition: the longest prefix, the lowest
// metric, the first of equal ones.
func slowest(all []route, addr netip.Addr) (best route, found bool) {
	for _, r := range all {
		if !r.prefix.Contains(addr) || found && (r.prefix.Bits() < best.prefix.Bits() || r.prefix.Bits() == best.prefix.Bits() && r.metric >= best.metric) {
			continue
		}
		best, found = r, true
	}
	return best, found
}

// TestCompact: random routes against the definition. A dropped route changes no packet's
// next hop.
func TestCompact(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 300 {
		all := drawRoutes(rng, 1+rng.IntN(60), 16, []netip.Addr{gateway, near})
		distinct := map[netip.Prefix]map[uint32]bool{}
		unique := all[:0]
		for _, r := range all { // equal metrics: the kernel's order, which compact keeps no better
			if distinct[r.prefix] == nil {
				distinct[r.prefix] = map[uint32]bool{}
			}
			if !distinct[r.prefix][r.metric] {
				distinct[r.prefix][r.metric] = true
				unique = append(unique, r)
			}
		}
		kept := compact(best(append([]route(nil), unique...)))
		for b := range 256 {
			addr := netip.AddrFrom16([16]byte{0x20, byte(b), 9})
			want, is := slowest(unique, addr)
			got, has := longest(kept, addr)
			if lost := is && !want.dead; has && !got.dead != lost || lost && got.gateway != want.gateway {
				t.Fatalf("routes %d, %v: by %+v, %v; want %+v, %v", i, addr, got, has, want, is)
			}
		}
		for k, r := range kept {
			if cover, covered := slowest(append(append([]route(nil), kept[:k]...), kept[k+1:]...), r.prefix.Addr()); covered && cover.prefix.Bits() < r.prefix.Bits() && cover.sameHop(r) {
				t.Fatalf("routes %d: %v is kept beside %v", i, r, cover)
			}
		}
	}
}

// fullTable is a table as of an edge router of the Internet: a million routes by two
// gateways in runs, without a default route or with one.
func fullTable(n int) (all []route) {
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range n {
		a := [4]byte{byte(1 + i>>16), byte(i >> 8), byte(i)}
		all = append(all, route{prefix: netip.PrefixFrom(netip.AddrFrom4(a), 24), gateway: []netip.Addr{gateway4, near4}[rng.IntN(2)]})
	}
	return all
}

// TestFullTable: a million routes become no more next hops than there is room for: by one
// gateway a single one, by two the shortest prefixes, and every neighbour.
func TestFullTable(t *testing.T) {
	const routes = 1_000_000
	one := []route{{prefix: default4, gateway: gateway4}}
	for _, r := range fullTable(routes) {
		r.gateway = gateway4
		one = append(one, r)
	}
	if kept := compact(best(one)); len(kept) != 1 {
		t.Errorf("%d routes are kept of a full table by the default gateway", len(kept))
	}
	two := append(fullTable(routes), route{prefix: default4, gateway: gateway4}, route{prefix: netip.MustParsePrefix("192.0.2.0/24")})
	neighbours := topo.NextHops{}
	for i := range 1000 {
		neighbours[alone(netip.AddrFrom4([4]byte{192, 0, byte(2 + i>>8), byte(i)}))] = topo.MAC{2, byte(i >> 8), byte(i)}
	}
	neighbours[alone(gateway4)], neighbours[alone(near4)] = topo.MAC{2}, topo.MAC{4}
	hops, waiting, leftOut := nextHops(compact(best(two)), neighbours, topo.MaxHops)
	if len(hops) != topo.MaxHops || leftOut == 0 || len(waiting) != 0 {
		t.Errorf("%d next hops, %d left out, %d waiting", len(hops), leftOut, len(waiting))
	}
	if hops[default4] != (topo.MAC{2}) {
		t.Errorf("the default route is left out")
	}
	for prefix, mac := range neighbours {
		if hops[prefix] != mac {
			t.Fatalf("neighbour %v is left out", prefix)
		}
	}
}

// TestRoomForRoutes: neighbours leave half of the room.
func TestRoomForRoutes(t *testing.T) {
	neighbours := topo.NextHops{}
	for i := range 100 {
		neighbours[alone(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}))] = topo.MAC{2}
	}
	routes := fullTable(100)
	hops, _, leftOut := nextHops(routes, neighbours, 64)
	if len(hops) != 64 || leftOut != 136 {
		t.Errorf("%d next hops, %d left out", len(hops), leftOut)
	}
}
