package learned

import "proffer/lab/sim"

var _ = sim.Register(sim.Family{
	Name: "sed", Pairs: true, Sees: sim.OwnFlows,
	Names: []sim.Spelling{
		{Name: "sed", Means: "shortest expected delay: (flows that this LB sees + 1) / power", Drawn: "orange solid"},
		{Name: "sed2", Means: "the same of two random servers", Drawn: ""},
	},
	New: func(e *sim.Engine, p sim.Policy) any {
		return newCounting(e, p.TwoChoices, func(s int) float64 { return e.Farm.Servers[s].Power() })
	},
})
