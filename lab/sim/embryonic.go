package sim

import (
	"math"

	"proffer/policy"
	"proffer/weights"
)

// When a flow of learned begins to count. A flow is embryonic from its SYN until its
// first data packet passes the LB, a round trip of the client later.

// literal counts established flows only, as HLB §IV-A prints it. Until a flow is
// established, all flows that come meet the same least score: they herd.
type literal struct{ learner }

// Open is no event for it, nor is Close.
func (literal) Open(_, _ int32)           {}
func (literal) Close(_, _ int32, _ int64) {}

// Established counts the flow; its age is that since its SYN (Algorithm 1).
func (p literal) Established(lb, server int32, opened int64) { p.learner.begin(lb, server, opened) }

func (p literal) Finished(lb, server int32, opened int64) { p.learner.Close(lb, server, opened) }

func (p literal) Spoofed(lb int32, word uint64) int32 { return p.pick(lb, word, policy.Mix(word)) }

func (literal) Expired(_, _ int32) {}

// watchful counts embryonic flows too, by (l + p + 1) / w, while most SYNs come to
// life. If most do not, embryonic flows show the flood and not the servers: the LB
// then leaves them out and takes the best of a few random servers by (l + 1) / w. A
// few, since all servers would herd again.
type watchful struct {
	learner
	e     *Engine
	alive [][]float64     // per LB and server: established flows
	flood []weights.Flood // per LB
}

const mostChoices = 16 // in a flood

func newWatchful(e *Engine, l learner) *watchful {
	p := &watchful{learner: l, e: e, flood: make([]weights.Flood, e.farm.LBs)}
	for range e.farm.LBs {
		p.alive = append(p.alive, make([]float64, len(e.servers)))
	}
	step := e.timers[len(e.timers)-1].run
	e.timers[len(e.timers)-1].run = func() {
		step()
		for lb := range p.flood {
			p.flood[lb].Step()
		}
		p.oweFlows()
	}
	return p
}

// oweFlows lets servers that got too few flows have the next ones (weights.Filter.Owed).
func (p *watchful) oweFlows() {
	for lb, f := range p.filters() {
		if p.flood[lb].Is() {
			continue
		}
		for _, server := range f.Owed(func(server int) bool { return p.e.in(int32(server)) }) {
			p.owe(int32(lb), int32(server))
		}
	}
}

func (p *watchful) Open(lb, server int32) {
	p.flood[lb].Count(1, 0)
	p.filters()[lb].Began(int(server), 1)
	p.learner.Open(lb, server)
}

func (p *watchful) Established(lb, server int32, _ int64) {
	p.flood[lb].Count(0, 1)
	p.alive[lb][server]++
}

func (p *watchful) Finished(lb, server int32, _ int64) { p.alive[lb][server]-- }

func (p *watchful) Choose(lb int32, r *Request) int32 {
	if p.flood[lb].Is() {
		return p.best(lb, p.e.choice.at(uint64(r.number)))
	}
	return p.learner.Choose(lb, r)
}

func (p *watchful) Spoofed(lb int32, word uint64) int32 {
	p.flood[lb].Count(1, 0)
	if !p.flood[lb].Is() {
		server := p.learner.Spoofed(lb, word)
		p.filters()[lb].Began(int(server), 1)
		return server
	}
	server := p.best(lb, word)
	p.filters()[lb].Began(int(server), 1)
	p.count(lb, server, 1)
	return server
}

// floodChoices is how many of n servers are looked at in a flood: √n, as more of a few herd and
// fewer of many are worse.
func floodChoices(n int) int {
	return min(int(math.Ceil(math.Sqrt(float64(n)))), mostChoices)
}

// best is the best of floodChoices random servers by established flows alone.
func (p *watchful) best(lb int32, word uint64) int32 {
	weights := p.weighed()[lb]
	score := func(s int32) float64 { return (p.alive[lb][s] + 1) / weights[s] }
	at := int32(below(word, len(weights)))
	for range floodChoices(len(weights)) - 1 {
		word = policy.Mix(word + golden)
		if s := int32(below(word, len(weights))); p.e.in(s) && (!p.e.in(at) || score(s) < score(at)) {
			at = s
		}
	}
	return at
}
