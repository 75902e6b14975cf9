package sim

import "math"

var _ = Register(Family{
	Name: "lsqp", Pairs: true, Sees: Reports,
	Names: []Spelling{
		{Name: "lsqp", Means: "fewest requests in its LB's view, which each SYN-ACK and FIN of a server refreshes", Drawn: ""},
		{Name: "lsqp2", Means: "the same of two random servers (RackSched, Charon)", Drawn: ""},
	},
	New: func(e *Engine, p Policy) any {
		v := newViewed(e, p.TwoChoices)
		v.begin(func(lb, server int32) float64 { return v.views[lb][server] })
		return v
	},
})

// viewed is a policy on an LB's view of the servers: each signal that passes the
// LB carries the requests of its server, and in between the LB counts the requests
// that it sends.
type viewed struct {
	*Engine
	two    bool
	score  func(lb, server int32) float64
	views  [][]float64 // per LB and server: requests at the last signal, and sent since
	scores []*least    // per LB
}

func newViewed(e *Engine, two bool) *viewed {
	p := &viewed{Engine: e, two: two}
	for range e.farm.LBs {
		p.views = append(p.views, make([]float64, len(e.servers)))
		p.scores = append(p.scores, newLeast(len(e.servers)))
	}
	return p
}

// begin gives every server its first score.
func (p *viewed) begin(score func(lb, server int32) float64) {
	p.score = score
	for s := range p.servers {
		p.Member(int32(s))
	}
}

func (p *viewed) update(lb, server int32) { p.scores[lb].set(server, p.key(lb, server)) }

func (p *viewed) key(lb, server int32) float64 {
	if !p.in(server) {
		return math.Inf(1)
	}
	return p.score(lb, server)
}

func (p *viewed) Choose(lb int32, r *Request) int32 {
	server := p.pick(lb, r)
	p.views[lb][server]++
	p.update(lb, server)
	return server
}

func (p *viewed) pick(lb int32, r *Request) int32 {
	if !p.two {
		return p.scores[lb].choose(p.choice.at(uint64(r.number)))
	}
	first, second := p.Engine.two(r)
	if p.key(lb, second) < p.key(lb, first) {
		return second
	}
	return first
}

func (p *viewed) Report(r *Request) { r.tag = p.servers[r.server].taken }

func (p *viewed) Signalled(r *Request) {
	p.views[r.lb][r.server] = float64(r.tag)
	p.update(r.lb, r.server)
}

func (p *viewed) Member(server int32) {
	for lb := range p.scores {
		p.update(int32(lb), server)
	}
}
