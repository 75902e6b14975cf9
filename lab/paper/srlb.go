package paper

import (
	"time"

	"proffer/lab/sim"
)

// Figures of the SRLB paper (§V): 12 servers, one LB, 20,000 requests of 100 ms.
// Its RR is a random server, our single.

func srlbFigures() []Figure {
	const simulated = "simulated, not the testbed; ρ is of the cores' capacity; the paper's RR is single"
	return []Figure{
		{"srlb-2", "12 servers: mean response time against load", simulated, srlbResponses},
		{"srlb-3", "12 servers: distribution of the response time at ρ = .88", simulated, func(o Options) plan {
			return distributions(o, srlbFarm(), []float64{0.88}, 1.6, "SRLB Figure 3: distribution of the response time, 12 servers, ρ = 0.88")
		}},
		{"srlb-4", "12 servers: busy workers and their fairness over time at ρ = .88", simulated, func(o Options) plan {
			return overTime(o, srlbFarm(), 0.88, hunting[:2], "SRLB Figure 4: busy workers of the servers, 12 servers, ρ = 0.88, one run")
		}},
		{"srlb-5", "12 servers: distribution of the response time at ρ = .61", simulated, func(o Options) plan {
			return distributions(o, srlbFarm(), []float64{0.61}, 1, "SRLB Figure 5: distribution of the response time, 12 servers, ρ = 0.61")
		}},
	}
}

func srlbFarm() sim.Farm {
	f := sim.FarmA()
	f.Name, f.Servers, f.LBs = "SRLB", f.Servers[:12], 1
	f.Default.Requests, f.Default.Service = 20_000, sim.Exponential(100*time.Millisecond)
	return f
}

func srlbResponses(o Options) plan {
	text := overLoadText{
		title: "SRLB Figure 2: mean response time, 12 servers", runs: "20,000 requests a run",
		ratio: 2.3, at: 0.88, top: 0.8,
	}
	rhos := o.with(0.88, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.61, 0.65, 0.69, 0.73, 0.77, 0.8, 0.83, 0.86, 0.88, 0.9, 0.92, 0.94, 0.96)
	return overLoad(o, srlbFarm(), text, rhos)
}
