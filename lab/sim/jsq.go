package sim

import (
	"fmt"
	"math"
)

var _ = Register(Family{
	Name: "jsq", Pairs: true, Sees: Everything,
	Names: []Spelling{
		{Name: "jsq", Means: "join the shortest queue, known to all LBs", Drawn: "blue dotted"},
		{Name: "jsq2", Means: "the same of two random servers", Drawn: ""},
	},
	New: func(e *Engine, p Policy) any { return newShortest(e, p.TwoChoices) },
})

var _ = Register(Family{
	Name: "gsq2", Sees: Everything,
	Names: []Spelling{{Name: "gsq2", Means: "fewest flows of all LBs, of two random servers; the same as jsq2", Drawn: "sky-blue dash-dot"}},
	Parse: func(p *Policy, options string) error {
		p.TwoChoices = true
		if p.Refined() {
			return fmt.Errorf("%q: it takes no options", options)
		}
		return nil
	},
	New: func(e *Engine, _ Policy) any { return newShortest(e, true) },
})

// shortest is jsq: the fewest requests, those on their way included, whatever
// the server's power. With two choices it is gsq2.
type shortest struct {
	*Engine
	pair bool
	load *least
}

func newShortest(e *Engine, two bool) *shortest {
	p := &shortest{e, two, newLeast(len(e.servers))}
	for s := range e.servers {
		p.Changed(int32(s))
	}
	return p
}

func (p *shortest) Changed(server int32) {
	if !p.in(server) {
		p.load.set(server, math.Inf(1))
		return
	}
	p.load.set(server, float64(p.servers[server].assigned))
}

func (p *shortest) Choose(_ int32, r *Request) int32 {
	if !p.pair {
		return p.load.choose(p.choice.at(uint64(r.number)))
	}
	first, second := p.two(r)
	if p.load.key(second) < p.load.key(first) {
		return second
	}
	return first
}
