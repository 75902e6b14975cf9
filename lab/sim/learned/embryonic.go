package learned

import (
	"math"

	"proffer/lab/sim"
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

// Watchful counts embryonic flows too, by (l + p + 1) / w, while most SYNs come to
// life. If most do not, embryonic flows show the flood and not the servers: the LB
// then leaves them out and takes the best of a few random servers by (l + 1) / w. A
// few, since all servers would herd again.
type Watchful struct {
	learner
	e     *sim.Engine
	Alive [][]float64     // per LB and server: established flows
	Flood []weights.Flood // per LB
}

const mostChoices = 16 // in a flood

func newWatchful(e *sim.Engine, l learner) *Watchful {
	p := &Watchful{learner: l, e: e, Flood: make([]weights.Flood, e.Farm.LBs)}
	for range e.Farm.LBs {
		p.Alive = append(p.Alive, make([]float64, len(e.Servers)))
	}
	step := e.Timers[len(e.Timers)-1].Run
	e.Timers[len(e.Timers)-1].Run = func() {
		step()
		for lb := range p.Flood {
			p.Flood[lb].Step()
		}
		p.oweFlows()
	}
	return p
}

// oweFlows lets servers that got too few flows have the next ones (weights.Filter.Owed).
func (p *Watchful) oweFlows() {
	for lb, f := range p.filters() {
		if p.Flood[lb].Is() {
			continue
		}
		for _, server := range f.Owed(func(server int) bool { return p.e.In(int32(server)) }) {
			p.owe(int32(lb), int32(server))
		}
	}
}

func (p *Watchful) Open(lb, server int32) {
	p.Flood[lb].Count(1, 0)
	p.filters()[lb].Began(int(server), 1)
	p.learner.Open(lb, server)
}

func (p *Watchful) Established(lb, server int32, _ int64) {
	p.Flood[lb].Count(0, 1)
	p.Alive[lb][server]++
}

func (p *Watchful) Finished(lb, server int32, _ int64) { p.Alive[lb][server]-- }

func (p *Watchful) Choose(lb int32, r *sim.Request) int32 {
	if p.Flood[lb].Is() {
		return p.best(lb, p.e.Choice.At(uint64(r.Number)))
	}
	return p.learner.Choose(lb, r)
}

func (p *Watchful) Spoofed(lb int32, word uint64) int32 {
	p.Flood[lb].Count(1, 0)
	if !p.Flood[lb].Is() {
		server := p.learner.Spoofed(lb, word)
		p.filters()[lb].Began(int(server), 1)
		return server
	}
	server := p.best(lb, word)
	p.filters()[lb].Began(int(server), 1)
	p.count(lb, server, 1)
	return server
}

// FloodChoices is how many of n servers are looked at in a flood: √n, as more of a few herd and
// fewer of many are worse.
func FloodChoices(n int) int {
	return min(int(math.Ceil(math.Sqrt(float64(n)))), mostChoices)
}

// best is the best of floodChoices random servers by established flows alone.
func (p *Watchful) best(lb int32, word uint64) int32 {
	weights := p.Weighed()[lb]
	score := func(s int32) float64 { return (p.Alive[lb][s] + 1) / weights[s] }
	at := int32(sim.Below(word, len(weights)))
	for range FloodChoices(len(weights)) - 1 {
		word = policy.Mix(word + sim.Golden)
		if s := int32(sim.Below(word, len(weights))); p.e.In(s) && (!p.e.In(at) || score(s) < score(at)) {
			at = s
		}
	}
	return at
}
