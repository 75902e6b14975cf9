package policies

import "proffer/lab/sim"

var _ = sim.Register(sim.Family{
	Name:  "rr",
	Names: []sim.Spelling{{Name: "rr", Means: "servers in turn", Drawn: "orange dashed"}},
	New:   func(e *sim.Engine, _ sim.Policy) any { return newInTurn(e) },
})

// inTurn is rr: every LB deals its flows to all servers in the same order.
type inTurn struct {
	*sim.Engine
	next []int32 // per LB
}

func newInTurn(e *sim.Engine) *inTurn {
	p := &inTurn{e, make([]int32, e.Farm.LBs)}
	for lb := range p.next { // LBs do not walk in step
		p.next[lb] = int32(sim.Below(e.Choice.At(uint64(lb)), len(e.Servers)))
	}
	return p
}

func (p *inTurn) Choose(lb int32, _ *sim.Request) int32 {
	for {
		server := p.next[lb]
		p.next[lb]++
		if int(p.next[lb]) == len(p.Servers) {
			p.next[lb] = 0
		}
		if p.In(server) {
			return server
		}
	}
}
