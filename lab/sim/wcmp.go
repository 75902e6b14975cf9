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
	factor func(server int) float64
	upTo   []float64 // running sum of the weights
}

func newByWeight(e *Engine) *byWeight {
	p := &byWeight{e, func(int) float64 { return 1 }, make([]float64, len(e.servers))}
	p.weigh()
	return p
}

func newAdaptive(e *Engine, policy Policy) *byWeight {
	p := newByWeight(e)
	e.timers = append(e.timers, timer{policy.every(stepLength), func() {
		p.factor = func(s int) float64 { return 1 / (1 + float64(e.servers[s].taken)) }
		p.weigh()
	}})
	return p
}

func (p *byWeight) weigh() {
	sum := 0.0
	for i, s := range p.farm.Servers {
		if p.in(int32(i)) {
			sum += float64(s.Power() * p.factor(i))
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
