package sim

import "slices"

var _ = Register(Family{
	Name:  "wcmp",
	Names: []Spelling{{"wcmp", "by hash, weights are the servers' power", "blue dashed"}},
	New:   func(e *Engine, _ Policy) any { return newByWeight(e) },
})

var _ = Register(Family{
	Name:  "awcmp",
	Sees:  Polled,
	Names: []Spelling{{"awcmp", "by hash, weights are power / (1 + requests in hand), asked every 500 ms", "blue dash-dot"}},
	New:   func(e *Engine, p Policy) any { return newAdaptive(e, p) },
})

// byWeight is wcmp, weights being the servers' power, and awcmp, weights being
// power / (1 + requests in hand), asked from every server each half second
// (HLB §I-B3 and §V-C leave the formula open).
type byWeight struct {
	*Engine
	upTo []float64 // running sum of the weights
}

func newByWeight(e *Engine) *byWeight {
	p := &byWeight{e, make([]float64, len(e.servers))}
	p.weigh(func(int) float64 { return 1 })
	return p
}

func newAdaptive(e *Engine, policy Policy) *byWeight {
	p := newByWeight(e)
	e.timers = append(e.timers, timer{policy.every(stepLength), func() {
		p.weigh(func(s int) float64 { return 1 / (1 + float64(e.servers[s].taken)) })
	}})
	return p
}

func (p *byWeight) weigh(factor func(server int) float64) {
	sum := 0.0
	for i, s := range p.farm.Servers {
		sum += float64(s.Power() * factor(i))
		p.upTo[i] = sum
	}
}

func (p *byWeight) Choose(_ int32, r *Request) int32 {
	x := float64(p.flowHash(r)>>11) / (1 << 53) * p.upTo[len(p.upTo)-1]
	at, found := slices.BinarySearch(p.upTo, x)
	if found {
		at++
	}
	return int32(min(at, len(p.upTo)-1))
}
