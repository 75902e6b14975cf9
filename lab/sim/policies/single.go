package policies

import "proffer/lab/sim"

var _ = sim.Register(sim.Family{
	Name:  "single",
	Names: []sim.Spelling{{Name: "single", Means: "one server by consistent hashing (SC)", Drawn: "black dashed"}},
	New:   func(e *sim.Engine, _ sim.Policy) any { return byHash{e} },
})

var _ = sim.Register(sim.Family{
	Name:  "ecmp",
	Names: []sim.Spelling{{Name: "ecmp", Means: "one server by hash, all alike", Drawn: "sky-blue dotted"}},
	New:   func(e *sim.Engine, _ sim.Policy) any { return byHash{e} },
})

// byHash is single and ecmp: every server equally likely, by the flow's hash.
type byHash struct{ *sim.Engine }

func (p byHash) Choose(_ int32, r *sim.Request) int32 {
	return p.One(r)
}
