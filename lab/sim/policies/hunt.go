package policies

import (
	"cmp"

	"proffer/lab/sim"
	"proffer/policy"
	"proffer/topo"
)

var _ = sim.Register(sim.Family{
	Name: "hunt", Sees: sim.Offers,
	Names: []sim.Spelling{
		{Name: "hunt:static:4", Means: "6LB: two candidates, the first takes a request if it has less than 4; any C", Drawn: "blue solid"},
		{Name: "hunt:dynamic", Means: "6LB: the same with a threshold that adapts", Drawn: "vermillion dash-dot"},
		{Name: "hunt:always", Means: "6LB: the first candidate takes everything", Drawn: "purple dotted"},
		{Name: "hunt:static:1", Means: "", Drawn: "purple dashed"},
		{Name: "hunt:static:2", Means: "", Drawn: "sky-blue dashed"},
		{Name: "hunt:static:8", Means: "", Drawn: "green dash-dot"},
		{Name: "hunt:static:16", Means: "", Drawn: "orange dotted"},
	},
	Parse: func(p *sim.Policy, options string) error {
		acceptance, threshold, err := policy.ParseAcceptance(options)
		p.Choices, p.Settings = 2, Acceptor{acceptance, threshold}
		return err
	},
	New: func(e *sim.Engine, p sim.Policy) any { return newHunt(e, p.Settings.(Acceptor)) },
})

// Acceptor are the settings of hunt.
type Acceptor struct {
	Acceptance topo.Acceptance
	Threshold  int // static: c
}

// hunt is 6LB: a server takes an offer or passes it on by its busy count; the
// last of the list must take it.
type hunt struct {
	*sim.Engine
	acceptors []policy.Acceptor // for each server
}

// The parameters of 6LB Algorithm 2.
const (
	dynamicWindow  = 50
	dynamicEpsilon = 0.1
	dynamicFirst   = 1
)

func newHunt(e *sim.Engine, like Acceptor) *hunt {
	h := &hunt{Engine: e}
	for i, s := range e.Farm.Servers {
		a := policy.Acceptor{Acceptance: like.Acceptance, Threshold: uint32(cmp.Or(s.Threshold, like.Threshold))}
		if like.Acceptance.Adapts() {
			a.Threshold, a.Window, a.Epsilon = dynamicFirst, dynamicWindow, dynamicEpsilon
			a.Workers = uint32(e.Servers[i].Room)
			if s.Discipline == sim.Sharing {
				a.Workers = uint32(s.Workers)
			}
		}
		h.acceptors = append(h.acceptors, a)
	}
	return h
}

func (h *hunt) Offer(r *sim.Request) bool {
	return r.Last() || h.acceptors[r.Server].Offer(uint32(h.Servers[r.Server].Taken))
}
