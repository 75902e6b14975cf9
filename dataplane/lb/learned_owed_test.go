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

// TestLearnedOwed: servers that are owed a flow get the next ones, one each, whatever they weigh and
// how many they have; one that drains gets none. Of two random servers, the one that is owed is the
// better until the next step.
func TestLearnedOwed(t *testing.T) {
	for _, n := range []int{4, 17, 129, topo.MaxSeats} {
		r := learner(t, rig.Hits{}, learned(n))
		svc, slow := &r.Cfg.Services[0], n-1
		spread := dataplane.Spread{Inverses: slices.Repeat([]uint32{policy.InverseOne}, n)}
		spread.Inverses[slow], spread.Inverses[1], spread.Inverses[2] = policy.MostInverse, policy.MostInverse, policy.NoInverse
		for round := range 3 {
			spread.Owed = []int{1, 2, slow}
			if err := r.Spread(svc, spread); err != nil {
				t.Fatal(err)
			}
			got := map[int]int{}
			for i := range 8 {
				server := serverIn(r.Run(t, client(round*8+i, wire.SYN).Frame()).Frame)
				got[server]++
				if i < 2 && server != 1 && server != slow {
					t.Errorf("%d servers: new flow %d at server %d", n, i, server)
				}
			}
			if got[1] != 1 || got[2] != 0 || got[slow] != 1 {
				t.Errorf("%d servers: flows at %v; servers 1 and %d were owed one each, 2 drains", n, got, slow)
			}
			wantTree(t, r)
		}
	}
	r := learner(t, rig.Hits{}, learned(3, mode(topo.Learned2)))
	spread := dataplane.Spread{Inverses: []uint32{policy.InverseOne, policy.InverseOne, policy.MostInverse}, Shares: []float64{1, 1, 1}}
	for _, owed := range [][]int{nil, {2}, nil} {
		spread.Owed = owed
		if err := r.Spread(&r.Cfg.Services[0], spread); err != nil {
			t.Fatal(err)
		}
		got := 0
		for i := range 100 {
			if serverIn(r.Run(t, client(1000*(len(owed)+1)+i, wire.SYN).Frame()).Frame) == 2 {
				got++
			}
		}
		if len(owed) == 0 && got > 0 || len(owed) > 0 && (got < 50 || got > 85) {
			t.Errorf("servers %v are owed a flow: %d of 100 flows are at the slow one of three", owed, got)
		}
	}
}
