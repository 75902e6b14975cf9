package policies

import (
	"math"

	"proffer/lab/sim"
)

var _ = sim.Register(sim.Family{
	Name: "c3", Sees: sim.Reports,
	Names: []sim.Spelling{{Name: "c3", Means: "C3 (NSDI 2015): least R - 1/μ + q³/μ, by numbers in replies", Drawn: ""}},
	New:   func(e *sim.Engine, _ sim.Policy) any { return newC3(e) },
})

// c3 is the replica ranking of C3 (Suresh et al., NSDI 2015, §3.1), without its rate
// control. An LB is a client; it chooses the server of least
//
//	R − 1/μ + q³/μ,   q = 1 + outstanding · clients + queue
//
// where R is the time from SYN to FIN at this LB, 1/μ the service time and queue the
// requests left, which the server puts into its last signal; the three are
// exponentially weighted means, which begin with R = 0, the mean service time of all
// requests and an empty queue.
type c3 struct {
	*sim.Engine
	ranks  [][]replica  // per LB and server
	scores []*sim.Least // per LB
}

type replica struct {
	response, service, queue float64 // ns, ns, requests
	outstanding              float64
}

// C3Alpha is the weight of the newest reply, on which the paper is silent.
const C3Alpha = 0.125

func newC3(e *sim.Engine) *c3 {
	p := &c3{Engine: e}
	for lb := range e.Farm.LBs {
		p.ranks = append(p.ranks, make([]replica, len(e.Servers)))
		p.scores = append(p.scores, sim.NewLeast(len(e.Servers)))
		for s := range e.Servers {
			p.ranks[lb][s].service = float64(e.Work.Service.Mean)
			p.update(int32(lb), int32(s))
		}
	}
	return p
}

func (p *c3) update(lb, server int32) {
	key := math.Inf(1)
	if p.In(server) {
		key = p.ranks[lb][server].score(float64(p.Farm.LBs))
	}
	p.scores[lb].Set(server, key)
}

func (k *replica) score(clients float64) float64 {
	q := 1 + float64(k.outstanding*clients) + k.queue
	return k.response - k.service + float64(q*q*q*k.service)
}

func (p *c3) Choose(lb int32, r *sim.Request) int32 {
	return p.scores[lb].Choose(p.Choice.At(uint64(r.Number)))
}

func (p *c3) Open(lb, server int32) { p.outstanding(lb, server, 1) }

func (p *c3) Close(lb, server int32, _ int64) { p.outstanding(lb, server, -1) }

func (p *c3) outstanding(lb, server int32, by float64) {
	p.ranks[lb][server].outstanding += by
	p.update(lb, server)
}

// Report: the queue is without the request that leaves.
func (p *c3) Report(r *sim.Request) {
	r.Tag, r.Note = p.Servers[r.Server].Taken, r.Service/p.Stations[r.Server].Speed
}

// Signalled learns from a reply; from a refusal the queue alone. A SYN-ACK carries
// nothing.
func (p *c3) Signalled(r *sim.Request) {
	if r.Phase != sim.Over {
		return
	}
	k := &p.ranks[r.LB][r.Server]
	follow := func(mean *float64, x float64) { *mean += float64(C3Alpha * (x - *mean)) }
	if r.Begun > 0 {
		follow(&k.response, float64(p.Instant-r.Opened))
		follow(&k.service, r.Note)
	}
	follow(&k.queue, float64(r.Tag))
	p.update(r.LB, r.Server)
}

func (p *c3) Member(server int32) {
	for lb := range p.scores {
		p.update(int32(lb), server)
	}
}
