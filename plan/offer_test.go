package plan

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"proffer/topo"
)

// TestOffers: the steps in an operator's words.
func TestOffers(t *testing.T) {
	at := func(host, port int) topo.VIP {
		return topo.VIP{Addr: netip.MustParseAddr(fmt.Sprint("2001:db8::", host)), Port: uint16(port)}
	}
	have := Offered{
		Loads:  map[topo.VIP]uint32{at(1, 80): 3, at(1, 81): 0, at(2, 80): 1},
		Marked: []netip.Addr{at(1, 0).Addr, at(2, 0).Addr},
	}
	var b strings.Builder
	for _, s := range Offers(have, []topo.Offering{{Name: "new", VIP: at(3, 80)}, {Name: "web", VIP: at(1, 80)}, {Name: "other", VIP: at(1, 443)}}) {
		fmt.Fprintln(&b, s)
	}
	want := `offer new at [2001:db8::3]:80 with load 2
offer web at [2001:db8::1]:80 with load 3, as it is
offer other at [2001:db8::1]:443 with load 4
leave fragments to 2001:db8::2 to the kernel
offer no service at [2001:db8::1]:81
offer no service at [2001:db8::2]:80
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// TestOffersKeepLoads: through any sequence of agents no two services share a load, a
// service that stays keeps its own, and the maps hold the wanted services.
func TestOffersKeepLoads(t *testing.T) {
	rng, have := rand.New(rand.NewPCG(3, 4)), Offered{Loads: map[topo.VIP]uint32{}}
	for i := range 1000 {
		var want []topo.Offering
		for port := range 6 {
			if rng.IntN(2) == 0 {
				want = append(want, topo.Offering{VIP: topo.VIP{Addr: netip.MustParseAddr(fmt.Sprint("2001:db8::", port%3+1)), Port: uint16(80 + port)}})
			}
		}
		next, used := Offered{Loads: map[topo.VIP]uint32{}}, map[uint32]bool{}
		for vip, n := range have.Loads {
			used[n], next.Loads[vip] = true, n
		}
		marks := map[netip.Addr]bool{}
		for _, addr := range have.Marked {
			marks[addr] = true
		}
		for _, s := range Offers(have, want) {
			n := uint32(s.Count)
			switch old, known := have.Loads[s.VIP]; {
			case s.Verb == RemoveOffering:
				delete(next.Loads, s.VIP)
			case s.Verb == UnmarkVIP:
				delete(marks, s.VIP.Addr)
			case known != (s.Verb == KeepOffering) || known && old != n || !known && used[n]:
				t.Fatalf("plan %d: %s: had load %d, %v", i, s, old, known)
			default:
				used[n], next.Loads[s.VIP], marks[s.VIP.Addr] = true, n, true
			}
		}
		addrs := map[netip.Addr]bool{}
		for _, s := range want {
			addrs[s.VIP.Addr] = true
		}
		if len(next.Loads) != len(want) || !maps.Equal(marks, addrs) {
			t.Fatalf("plan %d: %d services of %d, addresses %v, want %v", i, len(next.Loads), len(want), marks, addrs)
		}
		for addr := range marks {
			next.Marked = append(next.Marked, addr)
		}
		have = next
	}
}
