package sim

var _ = Register(Family{
	Name: "sed", Pairs: true, Sees: OwnFlows,
	Names: []Spelling{
		{"sed", "shortest expected delay: (flows that this LB sees + 1) / power", "orange solid"},
		{"sed2", "the same of two random servers", ""},
	},
	New: func(e *Engine, p Policy) any {
		return newCounting(e, p.TwoChoices, func(s int) float64 { return e.farm.Servers[s].Power() })
	},
})
