package lb_test

import (
	"slices"
	"testing"

	"proffer/dataplane"
	"proffer/policy"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// orderOf sends the SYNs of as many new flows as there are servers, the first of them numbered, and returns
// the servers in their order: each once, as all are alike.
func orderOf(t *testing.T, r *rig.LB, first int) (order []int) {
	t.Helper()
	n := len(r.Cfg.Services[0].Servers)
	for i := range n {
		order = append(order, serverIn(r.Run(t, client(first+i, wire.SYN).Frame()).Frame))
	}
	for server := range n {
		if !slices.Contains(order, server) {
			t.Fatalf("the first %d flows go to %v, and none to server %d", n, order, server)
		}
	}
	return order
}

// sameNext counts the servers that have the same one after them in two orders.
func sameNext(a, b []int) (same int) {
	next := map[int]int{}
	for i, server := range a {
		next[server] = a[(i+1)%len(a)]
	}
	for i, server := range b {
		if next[server] == b[(i+1)%len(b)] {
			same++
		}
	}
	return same
}

// TestTurnsApart: LBs send their first flows to servers that are alike in orders of their own, so that they
// do not follow each other; so does an LB that begins its turns again.
func TestTurnsApart(t *testing.T) {
	const lbs, servers = 6, 24
	var orders [][]int
	for range lbs {
		r := learner(t, rig.Hits{}, learned(servers, mode(topo.Lsq)))
		orders = append(orders, orderOf(t, r, 0))
		again := tallyOf(t, r, 0)
		again.Turn = 1<<15 + 1
		if err := r.Objects().Tallies.Put(uint32(1), again); err != nil {
			t.Fatal(err)
		}
		alike := dataplane.Spread{Inverses: slices.Repeat([]uint32{policy.InverseOne}, servers), Shares: slices.Repeat([]float64{1}, servers)}
		if err := r.Spread(&r.Cfg.Services[0], alike); err != nil {
			t.Fatal(err)
		}
		orders = append(orders, orderOf(t, r, 1000))
	}
	same, pairs := 0, 0
	for i := range orders {
		for j := range i {
			same += sameNext(orders[i], orders[j])
			pairs++
		}
	}
	if same*4 > pairs*servers {
		t.Errorf("of %d servers in %d pairs of orders %d have the same one after them: %v", servers, pairs, same, orders)
	}
	t.Logf("of %d servers in %d pairs of orders %d have the same one after them", servers, pairs, same)
}
