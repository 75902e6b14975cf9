package study

import (
	"math"
	"testing"

	"proffer/lab/sim"
)

// onA is one row of farm A.
func onA(t *testing.T, policy string, rho float64, requests int, from *Bound) Row {
	t.Helper()
	setting, err := Named("A")
	if err != nil {
		t.Fatal(err)
	}
	if err := setting.SetRequests(requests); err != nil {
		t.Fatal(err)
	}
	if err := setting.Count(from, nil); err != nil {
		t.Fatal(err)
	}
	p, err := sim.ParsePolicy(policy)
	if err != nil {
		t.Fatal(err)
	}
	s := &Study{Setting: setting, Seeds: 10, Policies: []sim.Policy{p}, Loads: []Load{at(t, setting, rho)}}
	return runAll(t, s)[0]
}

// TestUnsettled: 80,000 requests do not warm farm A up under single at .95, where the
// mean is 1951 ms; ten times as many without the first tenth come to it.
func TestUnsettled(t *testing.T) {
	const truth = 1951
	short := onA(t, "single", 0.95, 80_000, nil)
	if !short.Unsettled {
		t.Errorf("%v ± %v ms passes for settled, want %v", short.Mean, short.MeanCI, truth)
	}
	long := onA(t, "single", 0.95, 800_000, &Bound{Share: 0.1})
	if long.Unsettled || math.Abs(float64(long.Mean)-truth) > float64(long.MeanCI) {
		t.Errorf("a long run has %v ± %v ms, unsettled: %v; want %v", long.Mean, long.MeanCI, long.Unsettled, truth)
	}
	for _, policy := range []string{"jsq", "guided", "hunt:static:4"} {
		if row := onA(t, policy, 0.87, 80_000, nil); row.Unsettled {
			t.Errorf("%s at .87, %v ± %v ms, passes for unsettled", policy, row.Mean, row.MeanCI)
		}
	}
}
