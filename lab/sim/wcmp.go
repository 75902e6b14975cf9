package sim

import (
	"slices"
	"time"

	"proffer/weights"
)

var _ = Register(Family{
	Name:  "wcmp",
	Names: []Spelling{{Name: "wcmp", Means: "by hash, weights are the servers' power", Drawn: "blue dashed"}},
	New:   func(e *Engine, _ Policy) any { return newByWeight(e) },
})

var _ = Register(Family{
	Name:  "awcmp",
	Sees:  Polled,
	Names: []Spelling{{Name: "awcmp", Means: "by hash, weights are power / (1 + requests in hand), asked every 500 ms", Drawn: "blue dash-dot"}},
	New:   func(e *Engine, p Policy) any { return newAdaptive(e, p) },
})

// byWeight is wcmp, weights being the servers' power, and awcmp, weights being
// power / (1 + requests in hand), asked from every server each half second
// (HLB §I-B3 and §V-C leave the formula open).
type byWeight struct {
	*Engine
	weights []float64
	upTo    []float64 // running sum of those of members
}

func newByWeight(e *Engine) *byWeight {
	p := &byWeight{e, make([]float64, len(e.servers)), make([]float64, len(e.servers))}
	for i, s := range e.farm.Servers {
		p.weights[i] = s.Power()
	}
	p.weigh()
	return p
}

func newAdaptive(e *Engine, policy Policy) *byWeight {
	p, weigher := newByWeight(e), weights.NewAdaptive(len(e.servers))
	e.Every(policy.every(stepLength), func() {
		for i, s := range e.farm.Servers {
			weigher.Observe(time.Duration(e.now), weights.Sample{Server: i, Report: &weights.Report{Busy: float64(e.servers[i].taken), Cores: s.Power()}})
		}
		p.weights = weigher.Weights(time.Duration(e.now))
		p.weigh()
	})
	return p
}

func (p *byWeight) weigh() {
	sum := 0.0
	for i, w := range p.weights {
		if p.in(int32(i)) {
			sum += w
		}
		p.upTo[i] = sum
	}
}

func (p *byWeight) Member(int32) { p.weigh() }

// Keeps: another LB has the same weights.
func (p *byWeight) Keeps(r *Request) bool { return p.Choose(r.lb, r) == r.server }

func (p *byWeight) Choose(_ int32, r *Request) int32 {
	x := float64(p.flowHash(r)>>11) / (1 << 53) * p.upTo[len(p.upTo)-1]
	at, found := slices.BinarySearch(p.upTo, x)
	if found { // of equal sums, those of servers that are out come after
		at++
	}
	for at < len(p.upTo)-1 && !p.in(int32(at)) {
		at++
	}
	return int32(min(at, len(p.upTo)-1))
}
