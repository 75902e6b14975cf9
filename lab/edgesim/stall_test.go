package edgesim

import (
	"testing"
	"time"
)

// pauses are those of a generator on a busy machine: every 300 ms one of up to 100 ms, or all the
// time some of a few ms.
var pauses = []Stalls{{300 * time.Millisecond, 100 * time.Millisecond}, {10 * time.Millisecond, 30 * time.Millisecond}}

// TestStalls: pauses that all cores share move no weights, though the LB sees twice the load after
// each. Figure 4 as the testbed plays it: mice a hundred times dearer, evenly begun, after half a
// second without a packet.
func TestStalls(t *testing.T) {
	for _, share := range []float64{0.07, 0.27, 0.47} {
		f := Farm{Servers: nodes(2, 100*chain), Ring: ring}
		traffic := HeterogeneousTraffic(share, 100*chain)
		for i := range traffic.Classes {
			traffic.Classes[i].Even, traffic.Classes[i].From = true, 500*time.Millisecond
		}
		traffic.For, traffic.WarmUp = 10*time.Second, 2*time.Second
		calm := run(t, f, levelled, traffic, seed)
		for _, traffic.Stalls = range pauses {
			got := run(t, f, levelled, traffic, seed)
			if got.Apart > calm.Apart+0.01 || got.Unrest > 0.02 || float64(got.Latency) > 1.2*float64(calm.Latency) {
				t.Errorf("elephant of %v, pauses %v: %.3f apart, weights move by %.3f, latency %v; without pauses %.3f, %.3f, %v",
					share, traffic.Stalls, got.Apart, got.Unrest, got.Latency, calm.Apart, calm.Unrest, calm.Latency)
			}
		}
	}
}

// TestElephantAmongStalls: an elephant is seen all the same, half a second after it came.
func TestElephantAmongStalls(t *testing.T) {
	for _, stalls := range pauses {
		for seed := uint64(1); seed <= 4; seed++ {
			f, traffic, comes := Arrival(2, 20*time.Millisecond, 0)
			traffic.Stalls = stalls
			if s := Settle(run(t, f, levelled, traffic, seed).Samples, comes, 0.03); s.Level > 0.5 || s.Apart > 0.04 {
				t.Errorf("seed %d, pauses %v: level after %.2f s, then %.3f apart", seed, stalls, s.Level, s.Apart)
			}
		}
	}
}

// TestStalledPacketsAreCounted: an LB sees each packet once, at its time or at a stall's end.
func TestStalledPacketsAreCounted(t *testing.T) {
	f, traffic := mixed()
	want := run(t, f, Policy{}, traffic, seed).Offered
	traffic.Stalls = pauses[1]
	if got := run(t, f, Policy{}, traffic, seed).Offered; got != want {
		t.Errorf("LBs count %d packets of %d", got, want)
	}
}
