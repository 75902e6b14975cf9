package sim

var _ = Register(Family{
	Name: "sed", Pairs: true, Sees: OwnFlows,
	Names: []Spelling{
		{Name: "sed", Means: "shortest expected delay: (flows that this LB sees + 1) / power", Drawn: "orange solid"},
		{Name: "sed2", Means: "the same of two random servers", Drawn: ""},
	},
	New: func(e *Engine, p Policy) any {
		return newCounting(e, p.TwoChoices, func(s int) float64 { return e.farm.Servers[s].Power() })
	},
})
