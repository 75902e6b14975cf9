package sim

var _ = Register(Family{
	Name:  "single",
	Names: []Spelling{{Name: "single", Means: "one server by consistent hashing (SC)", Drawn: "black dashed"}},
	New:   func(e *Engine, _ Policy) any { return byHash{e} },
})

var _ = Register(Family{
	Name:  "ecmp",
	Names: []Spelling{{Name: "ecmp", Means: "one server by hash, all alike", Drawn: "sky-blue dotted"}},
	New:   func(e *Engine, _ Policy) any { return byHash{e} },
})

// byHash is single and ecmp: every server equally likely, by the flow's hash.
type byHash struct{ *Engine }

func (p byHash) Choose(_ int32, r *Request) int32 {
	return p.one(r)
}
