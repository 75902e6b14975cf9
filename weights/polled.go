package weights

import "time"

// Report is the load of a server, as it states it when it is asked.
type Report struct {
	Busy    float64 // requests in hand
	Workers float64 // the most at a time
	Cores   float64 // cores that it has, or its speed in any unit
}

// Polled weighs servers by their last reports. A server without a report, or with a lost report, counts as the
// average of the others.
type Polled struct {
	weigh   func(Report) float64
	weights []float64
	known   []bool
	all     []float64
}

// NewAdaptive is for awcmp: cores / (1 + requests in hand). HLB §I-B3 has weights by probed utilisation,
// and leaves the formula open.
func NewAdaptive(servers int) *Polled {
	return newPolled(servers, func(r Report) float64 { return r.Cores * float64(1/(1+r.Busy)) })
}

// NewFeedback is for wrr-feedback: 0.1 + 0.9·exp(−8·b²), b being the busy part of the workers (6LB §VI-B7,
// where there are 32).
func NewFeedback(servers int) *Polled {
	return newPolled(servers, func(r Report) float64 {
		busy := min(r.Busy, r.Workers) / r.Workers
		return 0.1 + float64(0.9*Exp(-8*busy*busy))
	})
}

func newPolled(servers int, weigh func(Report) float64) *Polled {
	return &Polled{weigh: weigh, weights: make([]float64, servers), known: make([]bool, servers), all: make([]float64, servers)}
}

// Observe takes a report.
func (p *Polled) Observe(_ time.Duration, s Sample) {
	p.weights[s.Server], p.known[s.Server] = p.weigh(*s.Report), true
}

// Lose forgets the report of a server, which does not answer.
func (p *Polled) Lose(server int) { p.known[server] = false }

// Inherit takes the report of a server from another object, where it has another number.
func (p *Polled) Inherit(server int, from *Polled, there int) {
	p.weights[server], p.known[server] = from.weights[there], from.known[there]
}

// Known reports whether a server's report is there.
func (p *Polled) Known(server int) bool { return p.known[server] }

// Weights are those by the last reports; without any, all are alike.
func (p *Polled) Weights(time.Duration) []float64 {
	sum, n := 0.0, 0
	for i, known := range p.known {
		if known {
			sum += p.weights[i]
			n++
		}
	}
	average := 1.0
	if n > 0 {
		average = sum / float64(n)
	}
	for i, known := range p.known {
		if p.all[i] = average; known {
			p.all[i] = p.weights[i]
		}
	}
	return p.all
}
