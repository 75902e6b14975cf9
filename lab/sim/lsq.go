package sim

var _ = Register(Family{
	Name: "lsq", Pairs: true, Sees: OwnFlows,
	Names: []Spelling{
		{Name: "lsq", Means: "fewest flows that this LB sees", Drawn: "sky-blue solid"},
		{Name: "lsq2", Means: "the same of two random servers", Drawn: ""},
	},
	New: func(e *Engine, p Policy) any {
		return newCounting(e, p.TwoChoices, func(int) float64 { return 1 })
	},
})
