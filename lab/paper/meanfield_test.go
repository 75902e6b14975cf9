package paper

import (
	"math"
	"testing"
	"time"

	"proffer/lab/queue"
	"proffer/lab/sim"
)

// TestMeanFieldAgreesWithSimulation: equation (6) of 6LB is for infinitely many
// servers; 48 of one FIFO core behind one LB, without network, come within 3 %
// of it up to ρ = .9; SR_2 does up to .8 and is 3.8 % off at .9,
// where so low a threshold needs more servers to look like infinitely many.
func TestMeanFieldAgreesWithSimulation(t *testing.T) {
	t.Parallel()
	const seeds = 6
	service := 100 * time.Millisecond
	farm := sim.Farm{Name: "mean field", LBs: 1, Default: sim.Workload{
		Requests: 200_000, Service: sim.Exponential(service), From: 0.1, To: 1,
	}}
	for range 48 {
		farm.Servers = append(farm.Servers, sim.Server{Cores: 1, Discipline: sim.FIFO, Backlog: 100_000})
	}
	for _, c := range []struct {
		name   string
		policy queue.Policy
		upTo   float64
	}{{"single", queue.Single, 0.9}, {"hunt:static:2", 2, 0.8}, {"hunt:static:4", 4, 0.9}, {"hunt:static:8", 8, 0.9}} {
		p, err := sim.ParsePolicy(c.name)
		if err != nil {
			t.Fatal(err)
		}
		for _, rho := range []float64{0.3, 0.6, 0.8, 0.9} {
			if rho > c.upTo {
				break
			}
			model, err := queue.Solve(c.policy, rho, 0)
			if err != nil {
				t.Fatal(err)
			}
			mean := 0.0
			for seed := range uint64(seeds) {
				r, err := sim.Run(farm, p, farm.Load(rho), seed+1)
				if err != nil {
					t.Fatal(err)
				}
				mean += r.Mean / seeds
			}
			mean /= float64(service.Milliseconds())
			if off := mean/model.Mean() - 1; math.Abs(off) > 0.03 {
				t.Errorf("%s at %.1f: simulated %.4f, model %.4f: %+.1f %%", c.name, rho, mean, model.Mean(), 100*off)
			}
		}
	}
}
