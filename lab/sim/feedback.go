package sim

import (
	"math"
	"time"

	"proffer/weights"
)

var _ = Register(Family{
	Name:  "wrr-feedback",
	Sees:  Polled,
	Names: []Spelling{{Name: "wrr-feedback", Means: "in turn by weights from the servers' busy workers, asked every 200 ms", Drawn: "purple dash-dot"}},
	New:   func(e *Engine, p Policy) any { return newFeedback(e, p) },
})

// feedback is wrr-feedback: round robin by weights 0.1 + 0.9·exp(−8(b/32)²), b
// being the busy workers of a server, of which there are 32 in the paper, asked
// every 200 ms (6LB §VI-B7). Each server's turn comes 1/weight after its last,
// so that turns are spread and never come in bursts.
type feedback struct {
	*Engine
	weigher *weights.Polled
	weights []float64
	turn    []*least // per LB: when each server's next turn is
}

const pollInterval = 200e6 // ns

func newFeedback(e *Engine, policy Policy) *feedback {
	p := &feedback{Engine: e, weigher: weights.NewFeedback(len(e.servers))}
	for lb := range e.farm.LBs {
		t := newLeast(len(e.servers))
		for s := range e.servers { // LBs do not walk in step
			word := e.choice.at(uint64(lb*len(e.servers) + s))
			t.set(int32(s), float64(word>>11)/(1<<53))
		}
		p.turn = append(p.turn, t)
	}
	p.poll()
	e.Every(policy.every(pollInterval), p.poll)
	return p
}

func (p *feedback) poll() {
	for s := range p.servers {
		workers := p.farm.Servers[s].inHand()
		p.weigher.Observe(time.Duration(p.now), weights.Sample{Server: s, Report: &weights.Report{Busy: float64(p.servers[s].taken), Workers: float64(workers)}})
	}
	p.weights = p.weigher.Weights(time.Duration(p.now))
}

func (p *feedback) Choose(lb int32, r *Request) int32 {
	t := p.turn[lb]
	server := t.choose(p.choice.at(uint64(r.number)))
	t.set(server, t.best()+1/p.weights[server])
	return server
}

// Member lets a server that begins to take flows take its turn next.
func (p *feedback) Member(server int32) {
	for _, t := range p.turn {
		next := math.Inf(1)
		if p.in(server) {
			next = t.best()
		}
		if next == math.Inf(1) && p.in(server) {
			next = 0
		}
		t.set(server, next)
	}
}
