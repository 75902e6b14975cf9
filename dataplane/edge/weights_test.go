package edge_test

import (
	"math"
	"net/netip"
	"testing"
	"time"

	"proffer/proof/rig"
	"proffer/topo"
	"proffer/weights"
)

// testWeights: new flows meet the instances in turn by their weights, so that they are a few off, and
// none with weight 0.
func testWeights(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen, func(cfg *topo.EdgeLB) { cfg.Flows.Entries = 40000 })
	var before [3]float64
	for _, shares := range [][]float64{{1, 1, 1}, {.7, 0, .3}, {0, 0, 5}, {10, 1, .5}} {
		must(t, b.SetWeights(service, shares))
		const n = 6000
		for i := range n {
			f := from4("udp", 1+i)
			f.to = netip.AddrPortFrom(remote4, uint16(100*shares[2]))
			if out := b.fromClient(t, f.packet()); out.Action != redirect {
				t.Fatalf("action %d for %v", out.Action, out.Reasons)
			}
		}
		counts, err := b.Counts(service)
		must(t, err)
		sum := shares[0] + shares[1] + shares[2]
		for i, c := range counts {
			want, got := n*shares[i]/sum, float64(c.Flows)-before[i]
			if math.Abs(got-want) > 6 || shares[i] == 0 && got != 0 { // at random, 40 are usual
				t.Errorf("weights %v: instance %d has %v new flows, want %v", shares, i, got, want)
			}
			before[i] = float64(c.Flows)
		}
	}
	for _, bad := range [][]float64{{1, -1, 1}, {1, math.NaN(), 1}, {1, math.Inf(1), 1}, {1, 1}} {
		if err := b.SetWeights(service, bad); err == nil {
			t.Errorf("weights %v are taken", bad)
		}
	}
}

// testAges: packets are counted by the age of their flow, in both directions and after a change, and
// once whichever number of days old; a flow that moves to another instance keeps its age.
func testAges(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen, func(cfg *topo.EdgeLB) { cfg.Flows.Idle = 100 * 24 * time.Hour })
	must(t, b.SetWeights(service, []float64{1, 0, 0}))
	b.at(t, rig.Start.Truncate(weights.AgeUnit))
	begun := b.now
	f := from4("udp", 3000)
	changed := natted(f, 40000)
	to := b.tunnelled(t, "begun", b.fromClient(t, f.packet()), f.packet(), "flow_begun", "steer")
	b.fromNode(t, back(to), changed.packet()).Is(t, "change", redirect, nil, "update_learned")
	moves := from4("udp", 3001)
	b.tunnelled(t, "begun", b.fromClient(t, moves.packet()), moves.packet(), "flow_begun", "steer")
	want := [3]weights.Packets{{2}}
	check := func(age time.Duration) {
		t.Helper()
		counts, err := b.Counts(service)
		must(t, err)
		for i, c := range counts {
			if c.Packets != want[i] {
				t.Errorf("after %v instance %d counts %v, want %v", age, i, c.Packets, want[i])
			}
		}
	}
	for units := range 1100 {
		age := time.Duration(units)*weights.AgeUnit + weights.AgeUnit*time.Duration(units%2)/2
		b.at(t, begun+age)
		b.fromClient(t, f.packet())
		b.fromWorld(t, changed.reversed().packet())
		want[0][weights.AgeClass(age)] += 2
	}
	check(1100 * weights.AgeUnit)
	const sixDays = 1<<25 - 1 // in units; then the age is 0 again
	b.at(t, begun+sixDays*weights.AgeUnit)
	b.fromClient(t, f.packet())
	want[0][weights.Ages-1]++
	check(sixDays * weights.AgeUnit)
	b.at(t, begun+100*weights.AgeUnit)
	must(t, b.SetWeights(service, []float64{0, 0, 1}))
	must(t, b.SetNextHop(1, topo.MAC{}))
	asked := b.asks(t, "moved", b.fromClient(t, moves.packet()), moves.packet(), 200)
	b.fromNode(t, notMine(asked), moves.packet()).Is(t, "moved", redirect, nil, "flow_moved", "steer", "unowned")
	want[2][weights.AgeClass(100*weights.AgeUnit)]++
	check(100 * weights.AgeUnit)
}
