package sim

import (
	"fmt"
	"strconv"
)

var _ = Register(Family{
	Name: "guided", Sees: Offers,
	Names: []Spelling{
		{Name: "guided", Means: "ours: 4 candidates, led by the servers' reports on the way; guided:C for 2 to 8", Drawn: "green solid"},
		{Name: "guided:8", Means: "ours with 8 candidates", Drawn: "green dotted"},
	},
	Parse: func(p *Policy, options string) error {
		p.Choices = 4
		if !p.Refined() {
			return nil
		}
		n, err := strconv.Atoi(options)
		if err != nil || n < 2 || n > maxChoices || strconv.Itoa(n) != options {
			return fmt.Errorf("%q candidates: want 2 to %d", options, maxChoices)
		}
		p.Choices = n
		return nil
	},
	New: func(e *Engine, _ Policy) any { return newGuided(e) },
})

// guided is Proffer's own policy (docs/design/guided.md): a token's server leads the
// list, a server takes an offer if it has an idle core, and an offer that none
// takes returns to the server that expects to be the fastest.
type guided struct {
	*Engine
	gauges []gauge   // one a server
	tokens []*tokens // one an LB
}

func newGuided(e *Engine) *guided {
	g := &guided{Engine: e, gauges: make([]gauge, len(e.servers))}
	for range e.farm.LBs {
		g.tokens = append(g.tokens, newTokens(e.farm.Servers))
	}
	return g
}

func (g *guided) Lead(r *Request) int32 {
	r.least = noMetric
	return g.tokens[r.lb].take()
}

func (g *guided) idle(server int32) bool {
	return g.servers[server].taken < int32(g.farm.Servers[server].Cores)
}

func (g *guided) Offer(r *Request) bool {
	if g.idle(r.server) {
		return true
	}
	if m := g.metric(r.server); m < r.least {
		r.least = m
		r.Return()
	}
	return r.Last() && r.leastOf == r.visit
}

// Served is the server measuring a request that it has completed: the time of a
// core at the present speed, which work in the background slows down.
func (g *guided) Served(r *Request) {
	g.gauges[r.server].add(r.service / g.stations[r.server].speed)
}

// Report fills in the load report of the accepting SYN-ACK and of the flow's end.
func (g *guided) Report(r *Request) {
	r.report, r.idle = g.metric(r.server), g.idle(r.server)
}

// Signalled is the signal's way past the LB.
func (g *guided) Signalled(r *Request) {
	if r.idle && g.in(r.server) {
		g.tokens[r.lb].add(r.server, r.report)
	} else {
		g.tokens[r.lb].drop(r.server)
	}
}

// Member forgets the tokens of a server that takes no more flows.
func (g *guided) Member(server int32) {
	for _, t := range g.tokens {
		t.drop(server)
	}
}

// Keeps: the first two servers of the flow's hash note its owner, so it is found
// while either lives.
func (g *guided) Keeps(r *Request) bool {
	first, second := g.two(r)
	return first == r.server || !g.isDown(first) || !g.isDown(second)
}
