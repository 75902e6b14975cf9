package sim

var _ = Register(Family{
	Name:  "rr",
	Names: []Spelling{{Name: "rr", Means: "servers in turn", Drawn: "orange dashed"}},
	New:   func(e *Engine, _ Policy) any { return newInTurn(e) },
})

// inTurn is rr: every LB deals its flows to all servers in the same order.
type inTurn struct {
	*Engine
	next []int32 // per LB
}

func newInTurn(e *Engine) *inTurn {
	p := &inTurn{e, make([]int32, e.farm.LBs)}
	for lb := range p.next { // LBs do not walk in step
		p.next[lb] = int32(below(e.choice.at(uint64(lb)), len(e.servers)))
	}
	return p
}

func (p *inTurn) Choose(lb int32, _ *Request) int32 {
	for {
		server := p.next[lb]
		p.next[lb]++
		if int(p.next[lb]) == len(p.servers) {
			p.next[lb] = 0
		}
		if p.in(server) {
			return server
		}
	}
}
