package lb_test

import (
	"slices"
	"testing"

	"proffer/dataplane"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// TestLearnedCounting: literally, an embryonic flow does not count; in a flood, the best of a few
// servers gets a flow.
func TestLearnedCounting(t *testing.T) {
	const n = 100
	r := learner(t, rig.Hits{}, learned(n, func(s *topo.Service) { s.Dispatch = topo.LearnedLiteral }))
	herd := map[int]bool{}
	for i := range 50 {
		herd[serverIn(r.Run(t, client(i, wire.SYN).Frame()).Frame)] = true
	}
	if len(herd) != 1 {
		t.Errorf("50 SYNs at %d servers, want a herd", len(herd))
	}
	for i := range 50 {
		r.Run(t, client(i, wire.ACK).Frame())
	}
	if next := serverIn(r.Run(t, client(60, wire.SYN).Frame()).Frame); herd[next] {
		t.Errorf("the next SYN goes to server %d with 50 flows", next)
	}
	r = learner(t, rig.Hits{}, learned(n))
	svc := &r.Cfg.Services[0]
	inverses := slices.Repeat([]uint32{1 << 16}, n)
	for i := range 8 { // slow ones, which are in no sample's best
		inverses[i] = 1 << 20
	}
	if err := r.Spread(svc, dataplane.Spread{Inverses: inverses, Counting: topo.FloodCounting}); err != nil {
		t.Fatal(err)
	}
	got := map[int]int{}
	for i := range 1000 {
		got[serverIn(r.Run(t, client(i, wire.SYN).Frame()).Frame)]++
	}
	if len(got) < 60 {
		t.Errorf("in a flood, SYNs at %d of %d servers", len(got), n)
	}
	for i := range 8 {
		if got[i] > 0 {
			t.Errorf("in a flood, %d SYNs at server %d, which is slow", got[i], i)
		}
	}
}

// TestLearnedFloodOfFew: in a flood of a small farm, four of twelve servers are looked at, of slow ones
// and of others alike, although the slow ones have seats side by side.
func TestLearnedFloodOfFew(t *testing.T) {
	const n, slow = 12, 6
	r := learner(t, rig.Hits{}, learned(n))
	inverses := slices.Repeat([]uint32{1 << 16}, n)
	for i := range slow {
		inverses[i] = 1 << 20
	}
	if err := r.Spread(&r.Cfg.Services[0], dataplane.Spread{Inverses: inverses, Counting: topo.FloodCounting}); err != nil {
		t.Fatal(err)
	}
	got := make([]int, n)
	for i := range 600 {
		got[serverIn(r.Run(t, client(i, wire.SYN).Frame()).Frame)]++
	}
	for i, syns := range got {
		switch {
		case i < slow && syns > 0:
			t.Errorf("in a flood, %d SYNs at server %d, which is slow", syns, i)
		case i >= slow && syns < 600/slow/3:
			t.Errorf("in a flood, %d SYNs at server %d: they herd at others", syns, i)
		}
	}
	only := make([]uint32, n) // all but one drain
	only[7] = 1 << 16
	if err := r.Spread(&r.Cfg.Services[0], dataplane.Spread{Inverses: only, Counting: topo.FloodCounting}); err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		if at := serverIn(r.Run(t, client(1000+i, wire.SYN).Frame()).Frame); at != 7 {
			t.Fatalf("in a flood, a SYN at server %d, which drains", at)
		}
	}
}
