package policies

import (
	"fmt"
	"strconv"

	"proffer/lab/sim"
)

var _ = sim.Register(sim.Family{
	Name: "guided", Sees: sim.Offers,
	Names: []sim.Spelling{
		{Name: "guided", Means: "ours: 4 candidates, led by the servers' reports on the way; guided:C for 2 to 8", Drawn: "green solid"},
		{Name: "guided:8", Means: "ours with 8 candidates", Drawn: "green dotted"},
	},
	Parse: func(p *sim.Policy, options string) error {
		p.Choices = 4
		if !p.Refined() {
			return nil
		}
		n, err := strconv.Atoi(options)
		if err != nil || n < 2 || n > sim.MaxChoices || strconv.Itoa(n) != options {
			return fmt.Errorf("%q candidates: want 2 to %d", options, sim.MaxChoices)
		}
		p.Choices = n
		return nil
	},
	New: func(e *sim.Engine, _ sim.Policy) any { return newGuided(e) },
})

// Guided is Proffer's own policy (docs/design/guided.md): a token's server leads the
// list, a server takes an offer if it has an idle core, and an offer that none
// takes returns to the server that expects to be the fastest.
type Guided struct {
	*sim.Engine
	Gauges []Gauge   // for each server
	tokens []*tokens // for each LB
}

func newGuided(e *sim.Engine) *Guided {
	g := &Guided{Engine: e, Gauges: make([]Gauge, len(e.Servers))}
	for range e.Farm.LBs {
		g.tokens = append(g.tokens, NewTokens(e.Farm.Servers))
	}
	return g
}

func (g *Guided) Lead(r *sim.Request) int32 {
	r.Least = noMetric
	return g.tokens[r.LB].Take()
}

func (g *Guided) idle(server int32) bool {
	return g.Servers[server].Taken < int32(g.Farm.Servers[server].Cores)
}

func (g *Guided) Offer(r *sim.Request) bool {
	if g.idle(r.Server) {
		return true
	}
	if m := g.metric(r.Server); m < r.Least {
		r.Least = m
		r.Return()
	}
	return r.Last() && r.LeastOf == r.Visit
}

// Served is the server measuring a request that it has completed: the time of a
// core at the present speed, which work in the background slows down.
func (g *Guided) Served(r *sim.Request) {
	g.Gauges[r.Server].Add(r.Service / g.Stations[r.Server].Speed)
}

// Report fills in the load report of the accepting SYN-ACK and of the flow's end.
func (g *Guided) Report(r *sim.Request) {
	r.Report, r.Idle = g.metric(r.Server), g.idle(r.Server)
}

// Signalled is the signal's way past the LB.
func (g *Guided) Signalled(r *sim.Request) {
	if r.Idle && g.In(r.Server) {
		g.tokens[r.LB].Add(r.Server, r.Report)
	} else {
		g.tokens[r.LB].Drop(r.Server)
	}
}

// Member forgets the tokens of a server that takes no more flows.
func (g *Guided) Member(server int32) {
	for _, t := range g.tokens {
		t.Drop(server)
	}
}

// Keeps: the first two servers of the flow's hash note its owner, so it is found
// while either lives.
func (g *Guided) Keeps(r *sim.Request) bool {
	first, second := g.Two(r)
	return first == r.Server || !g.IsDown(first) || !g.IsDown(second)
}
