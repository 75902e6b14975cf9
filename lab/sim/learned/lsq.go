package learned

import "proffer/lab/sim"

var _ = sim.Register(sim.Family{
	Name: "lsq", Pairs: true, Sees: sim.OwnFlows,
	Names: []sim.Spelling{
		{Name: "lsq", Means: "fewest flows that this LB sees", Drawn: "sky-blue solid"},
		{Name: "lsq2", Means: "the same of two random servers", Drawn: ""},
	},
	New: func(e *sim.Engine, p sim.Policy) any {
		return newCounting(e, p.TwoChoices, func(int) float64 { return 1 })
	},
})
