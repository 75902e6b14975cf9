package policies

import (
	"math"

	"proffer/lab/sim"
)

var _ = sim.Register(sim.Family{
	Name: "lsqp", Pairs: true, Sees: sim.Reports,
	Names: []sim.Spelling{
		{Name: "lsqp", Means: "fewest requests in its LB's view, which each SYN-ACK and FIN of a server refreshes", Drawn: ""},
		{Name: "lsqp2", Means: "the same of two random servers (RackSched, Charon)", Drawn: ""},
	},
	New: func(e *sim.Engine, p sim.Policy) any {
		v := newViewed(e, p.TwoChoices)
		v.begin(func(lb, server int32) float64 { return v.views[lb][server] })
		return v
	},
})

// viewed is a policy on an LB's view of the servers: each signal that passes the
// LB carries the requests of its server, and in between the LB counts the requests
// that it sends.
type viewed struct {
	*sim.Engine
	two    bool
	score  func(lb, server int32) float64
	views  [][]float64  // per LB and server: requests at the last signal, and sent since
	scores []*sim.Least // per LB
}

func newViewed(e *sim.Engine, two bool) *viewed {
	p := &viewed{Engine: e, two: two}
	for range e.Farm.LBs {
		p.views = append(p.views, make([]float64, len(e.Servers)))
		p.scores = append(p.scores, sim.NewLeast(len(e.Servers)))
	}
	return p
}

// begin gives every server its first score.
func (p *viewed) begin(score func(lb, server int32) float64) {
	p.score = score
	for s := range p.Servers {
		p.Member(int32(s))
	}
}

func (p *viewed) update(lb, server int32) { p.scores[lb].Set(server, p.key(lb, server)) }

func (p *viewed) key(lb, server int32) float64 {
	if !p.In(server) {
		return math.Inf(1)
	}
	return p.score(lb, server)
}

func (p *viewed) Choose(lb int32, r *sim.Request) int32 {
	server := p.pick(lb, r)
	p.views[lb][server]++
	p.update(lb, server)
	return server
}

func (p *viewed) pick(lb int32, r *sim.Request) int32 {
	if !p.two {
		return p.scores[lb].Choose(p.Choice.At(uint64(r.Number)))
	}
	first, second := p.Engine.Two(r)
	if p.key(lb, second) < p.key(lb, first) {
		return second
	}
	return first
}

func (p *viewed) Report(r *sim.Request) { r.Tag = p.Servers[r.Server].Taken }

func (p *viewed) Signalled(r *sim.Request) {
	p.views[r.LB][r.Server] = float64(r.Tag)
	p.update(r.LB, r.Server)
}

func (p *viewed) Member(server int32) {
	for lb := range p.scores {
		p.update(int32(lb), server)
	}
}
