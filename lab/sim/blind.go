package sim

import "slices"

// The policies that see no load: one random server, servers in turn, and servers
// drawn by weight.

// byHash is single (one server by consistent hashing) and ecmp: every server
// equally likely, by the flow's hash.
type byHash struct{ *engine }

func (p byHash) choose(_ int32, r *request) int32 {
	return int32(below(p.flowHash(r), len(p.servers)))
}

// inTurn is rr: every LB deals its flows to all servers in the same order.
type inTurn struct {
	*engine
	next []int32 // per LB
}

func newInTurn(e *engine) *inTurn {
	p := &inTurn{e, make([]int32, e.farm.LBs)}
	for lb := range p.next { // LBs do not walk in step
		p.next[lb] = int32(below(e.choice.at(uint64(lb)), len(e.servers)))
	}
	return p
}

func (p *inTurn) choose(lb int32, _ *request) int32 {
	server := p.next[lb]
	p.next[lb]++
	if int(p.next[lb]) == len(p.servers) {
		p.next[lb] = 0
	}
	return server
}

// byWeight is wcmp, weights being the servers' power, and awcmp, weights being
// power / (1 + requests in hand), asked from every server each half second
// (HLB §I-B3 and §V-C leave the formula open).
type byWeight struct {
	*engine
	upTo []float64 // running sum of the weights
}

func newByWeight(e *engine) *byWeight {
	p := &byWeight{e, make([]float64, len(e.servers))}
	p.weigh(func(int) float64 { return 1 })
	return p
}

func newAdaptive(e *engine) *byWeight {
	p := newByWeight(e)
	e.timers = append(e.timers, timer{e.policy.every(stepLength), func() {
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

func (p *byWeight) choose(_ int32, r *request) int32 {
	x := float64(p.flowHash(r)>>11) / (1 << 53) * p.upTo[len(p.upTo)-1]
	at, found := slices.BinarySearch(p.upTo, x)
	if found {
		at++
	}
	return int32(min(at, len(p.upTo)-1))
}
