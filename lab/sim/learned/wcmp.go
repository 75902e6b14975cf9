package learned

import (
	"slices"
	"time"

	"proffer/lab/sim"
	"proffer/weights"
)

var _ = sim.Register(sim.Family{
	Name:  "wcmp",
	Names: []sim.Spelling{{Name: "wcmp", Means: "by hash, weights are the servers' power", Drawn: "blue dashed"}},
	New:   func(e *sim.Engine, _ sim.Policy) any { return newByWeight(e) },
})

var _ = sim.Register(sim.Family{
	Name:  "awcmp",
	Sees:  sim.Polled,
	Names: []sim.Spelling{{Name: "awcmp", Means: "by hash, weights are power / (1 + requests in hand), asked every 500 ms", Drawn: "blue dash-dot"}},
	New:   func(e *sim.Engine, p sim.Policy) any { return newAdaptive(e, p) },
})

// byWeight is wcmp, weights being the servers' power, and awcmp, weights being
// power / (1 + requests in hand), asked from every server each half second
// (HLB §I-B3 and §V-C leave the formula open).
type byWeight struct {
	*sim.Engine
	weights []float64
	upTo    []float64 // running sum of those of members
}

func newByWeight(e *sim.Engine) *byWeight {
	p := &byWeight{e, make([]float64, len(e.Servers)), make([]float64, len(e.Servers))}
	for i, s := range e.Farm.Servers {
		p.weights[i] = s.Power()
	}
	p.weigh()
	return p
}

func newAdaptive(e *sim.Engine, policy sim.Policy) *byWeight {
	p, weigher := newByWeight(e), weights.NewAdaptive(len(e.Servers))
	e.Every(policy.Period(StepLength), func() {
		for i, s := range e.Farm.Servers {
			weigher.Observe(time.Duration(e.Instant), weights.Sample{Server: i, Report: &weights.Report{Busy: float64(e.Servers[i].Taken), Cores: s.Power()}})
		}
		p.weights = weigher.Weights(time.Duration(e.Instant))
		p.weigh()
	})
	return p
}

func (p *byWeight) weigh() {
	sum := 0.0
	for i, w := range p.weights {
		if p.In(int32(i)) {
			sum += w
		}
		p.upTo[i] = sum
	}
}

func (p *byWeight) Member(int32) { p.weigh() }

// Keeps: another LB has the same weights.
func (p *byWeight) Keeps(r *sim.Request) bool { return p.Choose(r.LB, r) == r.Server }

func (p *byWeight) Choose(_ int32, r *sim.Request) int32 {
	x := float64(p.Hash(r)>>11) / (1 << 53) * p.upTo[len(p.upTo)-1]
	at, found := slices.BinarySearch(p.upTo, x)
	if found { // of equal sums, those of servers that are out come after
		at++
	}
	for at < len(p.upTo)-1 && !p.In(int32(at)) {
		at++
	}
	return int32(min(at, len(p.upTo)-1))
}
