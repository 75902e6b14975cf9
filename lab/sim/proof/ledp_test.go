package proof

import (
	"testing"
	"time"

	"proffer/lab/sim"
)

// TestNoHerdAtStart: ledp knows no server's service time when a run begins, and the first
// completions that it sees are the shortest requests. It does not take such servers for fast:
// its first seconds are like those of lsqp, which goes by the requests alone.
func TestNoHerdAtStart(t *testing.T) {
	farmB, err := sim.FarmB("c1:2")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		farm sim.Farm
		rho  float64
	}{{sim.FarmA(), 0.87}, {farmB, 0.9}} {
		w := c.farm.Load(c.rho)
		w.Requests, w.From, w.To, w.Until = 2000, 0, 1, 3*time.Second
		mean, refused := map[string]float64{}, 0
		for _, name := range []string{"ledp", "lsqp"} {
			for seed := uint64(1); seed <= 10; seed++ {
				r := mustRun(t, c.farm, mustParse(t, name), w, seed)
				mean[name] += r.Mean / 10
				refused += r.Refused
			}
		}
		if mean["ledp"] > 1.1*mean["lsqp"] || refused > 0 {
			t.Errorf("farm %s at %v: %d refused, means of %.0f ms with ledp and %.0f with lsqp (seeds 1 to 10)", c.farm.Name, c.rho, refused, mean["ledp"], mean["lsqp"])
		}
	}
}
