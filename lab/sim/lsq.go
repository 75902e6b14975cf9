package sim

var _ = Register(Family{
	Name: "lsq", Pairs: true, Sees: OwnFlows,
	Names: []Spelling{
		{"lsq", "fewest flows that this LB sees", "sky-blue solid"},
		{"lsq2", "the same of two random servers", ""},
	},
	New: func(e *Engine, p Policy) any {
		return newCounting(e, p.TwoChoices, func(int) float64 { return 1 })
	},
})
