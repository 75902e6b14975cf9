package sim

import "math"

var _ = Register(Family{
	Name: "lsqp", Pairs: true, Sees: Reports,
	Names: []Spelling{
		{"lsqp", "fewest requests in its LB's view, which each SYN-ACK and FIN of a server refreshes", ""},
		{"lsqp2", "the same of two random servers (RackSched, Charon)", ""},
	},
	New: func(e *Engine, p Policy) any {
		return newViewed(e, p.TwoChoices, func(v view, _ *Server) float64 { return v.requests })
	},
})

// viewed is a policy on an LB's view of the servers: each signal that passes the
// LB carries the requests of its server and their mean service time, and in between
// the LB counts the requests that it sends.
type viewed struct {
	*Engine
	two    bool
	score  func(view, *Server) float64
	means  []gauge  // one a server
	views  [][]view // per LB and server
	scores []*least // per LB
}

// view is an LB's knowledge of a server.
type view struct {
	requests float64 // accepted and not answered, at the last signal, and sent since
	service  float64 // ns, the mean of a core's time for a request
}

func newViewed(e *Engine, two bool, score func(view, *Server) float64) *viewed {
	p := &viewed{Engine: e, two: two, score: score, means: make([]gauge, len(e.servers))}
	for lb := range e.farm.LBs {
		p.views = append(p.views, make([]view, len(e.servers)))
		p.scores = append(p.scores, newLeast(len(e.servers)))
		for s := range e.servers {
			p.update(int32(lb), int32(s))
		}
	}
	return p
}

func (p *viewed) update(lb, server int32) { p.scores[lb].set(server, p.key(lb, server)) }

func (p *viewed) key(lb, server int32) float64 {
	if !p.in(server) {
		return math.Inf(1)
	}
	return p.score(p.views[lb][server], &p.farm.Servers[server])
}

func (p *viewed) Choose(lb int32, r *Request) int32 {
	server := p.pick(lb, r)
	p.views[lb][server].requests++
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

// Served measures the time of a core at the present speed.
func (p *viewed) Served(r *Request) {
	p.means[r.server].add(r.service / p.stations[r.server].speed)
}

func (p *viewed) Report(r *Request) {
	r.tag, r.note = p.servers[r.server].taken, p.means[r.server].mean
}

func (p *viewed) Signalled(r *Request) {
	p.views[r.lb][r.server] = view{float64(r.tag), r.note}
	p.update(r.lb, r.server)
}

func (p *viewed) Member(server int32) {
	for lb := range p.scores {
		p.update(int32(lb), server)
	}
}
