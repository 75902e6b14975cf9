package table

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"proffer/topo"
)

// pool is n servers with locators of their own.
func pool(n int) (servers []topo.Server) {
	for i := range n {
		a := netip.MustParseAddr("fd00:0:0:100::").As16()
		a[6], a[7] = byte(i>>8)+1, byte(i)
		servers = append(servers, topo.Server{Name: fmt.Sprint(i), Locator: netip.PrefixFrom(netip.AddrFrom16(a), 64), Weight: 1})
	}
	return servers
}

func mustOf(t *testing.T, svc *topo.Service, pool []topo.Server) *Table {
	t.Helper()
	tab, err := Of(svc, pool)
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

// TestOfIsBuild: a service's table is Algorithm 3 over its servers' locators.
func TestOfIsBuild(t *testing.T) {
	for _, c := range []struct{ servers, buckets, choices int }{{1, 7, 2}, {2, 7, 3}, {12, 251, 2}, {12, 251, 4}} {
		servers := pool(c.servers)
		var same []Server
		for i := range servers {
			servers[i].Weight = i % 3
			same = append(same, Server{ID: servers[i].Locator.Addr().String(), Weight: uint16(i % 3)})
		}
		svc := &topo.Service{Dispatch: topo.Hunt, Buckets: c.buckets, Choices: c.choices}
		got, want := mustOf(t, svc, servers), mustBuild(t, same, c.buckets, c.choices)
		for b := range c.buckets {
			if !slices.Equal(got.Bucket(b), want.Bucket(b)) {
				t.Fatalf("%+v, bucket %d: %v, want %v", c, b, got.Bucket(b), want.Bucket(b))
			}
		}
	}
}

// TestOfDefaults: as many buckets as the paper has, and one choice for a service
// with packets that are not offered.
func TestOfDefaults(t *testing.T) {
	for _, c := range []struct {
		svc     topo.Service
		choices int
	}{
		{topo.Service{Dispatch: topo.Hunt, Choices: 3}, 3},
		{topo.Service{Dispatch: topo.Hunt}, 1},
		{topo.Service{Dispatch: topo.Single, Choices: 3}, 1},
		{topo.Service{Dispatch: topo.Single, Choices: 3, Select: topo.Random}, 1},
	} {
		tab := mustOf(t, &c.svc, pool(5))
		if tab.Buckets() != DefaultBuckets || tab.Choices() != c.choices {
			t.Errorf("%+v: %d buckets of %d", c.svc, tab.Buckets(), tab.Choices())
		}
	}
}

// TestOfRandom: every ordered list of different servers equally often (χ²), the
// same at every LB; a server that drains has no position, and weights are alike.
func TestOfRandom(t *testing.T) {
	servers := pool(6)
	servers[2].Weight, servers[4].Weight = 0, 7
	svc := &topo.Service{Dispatch: topo.Hunt, Select: topo.Random, Choices: 2, Buckets: 200_000}
	tab, again := mustOf(t, svc, servers), mustOf(t, svc, servers)
	counts := map[string]float64{}
	for b := range tab.Buckets() {
		list := tab.Bucket(b)
		if len(list) != 2 || list[0] == list[1] || slices.Contains(list, 2) || !slices.Equal(list, again.Bucket(b)) {
			t.Fatalf("bucket %d: %v, then %v", b, list, again.Bucket(b))
		}
		counts[fmt.Sprint(list)]++
	}
	const lists = 5 * 4
	expect, chi := float64(tab.Buckets())/lists, 0.0
	for _, n := range counts {
		chi += (n - expect) * (n - expect) / expect
	}
	if len(counts) != lists || chi > 19+6*math.Sqrt(2*19) {
		t.Errorf("%d lists, χ² %.1f with 19 degrees of freedom: %v", len(counts), chi, counts)
	}
}

// TestOfSmall: pools smaller than the choices, and an empty pool.
func TestOfSmall(t *testing.T) {
	for n := range 4 {
		for _, s := range []topo.Select{topo.Hash, topo.Random} {
			tab := mustOf(t, &topo.Service{Dispatch: topo.Hunt, Select: s, Choices: 3, Buckets: 11}, pool(n))
			for b := range 11 {
				list := slices.Clone(tab.Bucket(b))
				slices.Sort(list)
				if len(slices.Compact(list)) != min(n, 3) {
					t.Errorf("%d servers, %v, bucket %d: %v", n, s, b, tab.Bucket(b))
				}
			}
		}
	}
}

// TestOfOrder: the order of a pool changes the numbers, never the positions of servers;
// so two LBs with differently sorted configurations agree.
func TestOfOrder(t *testing.T) {
	svc := &topo.Service{Dispatch: topo.Hunt, Choices: 2, Buckets: 251}
	one, two := pool(9), pool(9)
	slices.Reverse(two)
	a, b := mustOf(t, svc, one), mustOf(t, svc, two)
	for i := range 251 {
		for j, at := range a.Bucket(i) {
			if one[at].Name != two[b.Bucket(i)[j]].Name {
				t.Fatalf("bucket %d: %v and %v", i, a.Bucket(i), b.Bucket(i))
			}
		}
	}
}

// TestOfRefuses: pools that no table can hold.
func TestOfRefuses(t *testing.T) {
	heavy, light := pool(2), pool(2)
	heavy[1].Weight, light[1].Weight = 65536, -1
	for _, c := range []struct {
		svc  topo.Service
		pool []topo.Server
		want string
	}{
		{topo.Service{Dispatch: topo.Hunt, Choices: 2}, heavy, "server 1 has weight 65536"},
		{topo.Service{Dispatch: topo.Hunt, Choices: 2}, light, "server 1 has weight -1"},
		{topo.Service{Dispatch: topo.Hunt, Choices: 9}, pool(2), "9 choices"},
		{topo.Service{Dispatch: topo.Hunt, Choices: 9, Select: topo.Random}, pool(2), "9 choices"},
		{topo.Service{Dispatch: topo.Hunt, Choices: 2, Buckets: MaxBuckets + 1}, pool(2), "buckets"},
		{topo.Service{Dispatch: topo.Hunt, Choices: 2, Select: topo.Random}, pool(MaxServers + 1), "4097 servers"},
	} {
		if _, err := Of(&c.svc, c.pool); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.svc, err, c.want)
		}
	}
}
