package policies

import (
	"math"
	"time"

	"proffer/lab/sim"
	"proffer/weights"
)

var _ = sim.Register(sim.Family{
	Name:  "wrr-feedback",
	Sees:  sim.Polled,
	Names: []sim.Spelling{{Name: "wrr-feedback", Means: "in turn by weights from the servers' busy workers, asked every 200 ms", Drawn: "purple dash-dot"}},
	New:   func(e *sim.Engine, p sim.Policy) any { return newFeedback(e, p) },
})

// feedback is wrr-feedback: round robin by weights 0.1 + 0.9·exp(−8(b/32)²), b
// being the busy workers of a server, of which there are 32 in the paper, asked
// every 200 ms (6LB §VI-B7). Each server's turn comes 1/weight after its last,
// so that turns are spread and never come in bursts.
type feedback struct {
	*sim.Engine
	weigher *weights.Polled
	weights []float64
	turn    []*sim.Least // per LB: when each server's next turn is
}

const PollInterval = 200e6 // ns

func newFeedback(e *sim.Engine, policy sim.Policy) *feedback {
	p := &feedback{Engine: e, weigher: weights.NewFeedback(len(e.Servers))}
	for lb := range e.Farm.LBs {
		t := sim.NewLeast(len(e.Servers))
		for s := range e.Servers { // LBs do not walk in step
			word := e.Choice.At(uint64(lb*len(e.Servers) + s))
			t.Set(int32(s), float64(word>>11)/(1<<53))
		}
		p.turn = append(p.turn, t)
	}
	p.poll()
	e.Every(policy.Period(PollInterval), p.poll)
	return p
}

func (p *feedback) poll() {
	for s := range p.Servers {
		workers := p.Farm.Servers[s].InHand()
		p.weigher.Observe(time.Duration(p.Instant), weights.Sample{Server: s, Report: &weights.Report{Busy: float64(p.Servers[s].Taken), Workers: float64(workers)}})
	}
	p.weights = p.weigher.Weights(time.Duration(p.Instant))
}

func (p *feedback) Choose(lb int32, r *sim.Request) int32 {
	t := p.turn[lb]
	server := t.Choose(p.Choice.At(uint64(r.Number)))
	t.Set(server, t.Best()+1/p.weights[server])
	return server
}

// Member lets a server that begins to take flows take its turn next.
func (p *feedback) Member(server int32) {
	for _, t := range p.turn {
		next := math.Inf(1)
		if p.In(server) {
			next = t.Best()
		}
		if next == math.Inf(1) && p.In(server) {
			next = 0
		}
		t.Set(server, next)
	}
}
