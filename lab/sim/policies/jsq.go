package policies

import (
	"fmt"
	"math"

	"proffer/lab/sim"
)

var _ = sim.Register(sim.Family{
	Name: "jsq", Pairs: true, Sees: sim.Everything,
	Names: []sim.Spelling{
		{Name: "jsq", Means: "join the shortest queue, known to all LBs", Drawn: "blue dotted"},
		{Name: "jsq2", Means: "the same of two random servers", Drawn: ""},
	},
	New: func(e *sim.Engine, p sim.Policy) any { return newShortest(e, p.TwoChoices) },
})

var _ = sim.Register(sim.Family{
	Name: "gsq2", Sees: sim.Everything,
	Names: []sim.Spelling{{Name: "gsq2", Means: "fewest flows of all LBs, of two random servers; the same as jsq2", Drawn: "sky-blue dash-dot"}},
	Parse: func(p *sim.Policy, options string) error {
		p.TwoChoices = true
		if p.Refined() {
			return fmt.Errorf("%q: it takes no options", options)
		}
		return nil
	},
	New: func(e *sim.Engine, _ sim.Policy) any { return newShortest(e, true) },
})

// shortest is jsq: the fewest requests, those on their way included, whatever
// the server's power. With two choices it is gsq2.
type shortest struct {
	*sim.Engine
	pair bool
	load *sim.Least
}

func newShortest(e *sim.Engine, two bool) *shortest {
	p := &shortest{e, two, sim.NewLeast(len(e.Servers))}
	for s := range e.Servers {
		p.Changed(int32(s))
	}
	return p
}

func (p *shortest) Changed(server int32) {
	if !p.In(server) {
		p.load.Set(server, math.Inf(1))
		return
	}
	p.load.Set(server, float64(p.Servers[server].Assigned))
}

func (p *shortest) Choose(_ int32, r *sim.Request) int32 {
	if !p.pair {
		return p.load.Choose(p.Choice.At(uint64(r.Number)))
	}
	first, second := p.Two(r)
	if p.load.Key(second) < p.load.Key(first) {
		return second
	}
	return first
}
