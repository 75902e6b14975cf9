package sim

import (
	"time"

	"proffer/weights"
)

// The policies that count the flows in their own LB's table: lsq, sed and
// learned. All choose the least (flows + offset) / weight.

// stepLength is how often learned and awcmp update their weights unless the
// policy says otherwise (HLB §V-C).
const stepLength = 500e6 // ns

type counting struct {
	*engine
	two     bool
	offset  float64     // 1 counts the new flow too; without weights it tells nothing
	flows   [][]float64 // per LB and server: flows in progress
	weights [][]float64 // per LB and server
	scores  []*least    // per LB; nil with two choices
}

// newCounting is lsq if weight is nil, else sed with these static weights.
func newCounting(e *engine, two bool, weight func(server int) float64) *counting {
	p := &counting{engine: e, two: two, offset: 1}
	n := len(e.servers)
	for range e.farm.LBs {
		flows, weights := make([]float64, n), make([]float64, n)
		for s := range weights {
			weights[s] = weight(s)
		}
		p.flows = append(p.flows, flows)
		p.weights = append(p.weights, weights)
		p.scores = append(p.scores, newLeast(n))
	}
	for lb := range p.scores {
		p.rescore(int32(lb))
	}
	return p
}

func (p *counting) score(lb, server int32) float64 {
	return (p.flows[lb][server] + p.offset) / p.weights[lb][server]
}

// rescore is for new weights.
func (p *counting) rescore(lb int32) {
	if p.two {
		return
	}
	keys := make([]float64, len(p.servers))
	for s := range keys {
		keys[s] = p.score(lb, int32(s))
	}
	p.scores[lb].setAll(keys)
}

func (p *counting) choose(lb int32, r *request) int32 {
	if !p.two {
		return p.scores[lb].choose(p.choice.at(uint64(r.number)))
	}
	var list [2]int32
	candidates(list[:], p.flowHash(r), len(p.servers))
	if p.score(lb, list[1]) < p.score(lb, list[0]) {
		return list[1]
	}
	return list[0]
}

func (p *counting) open(lb, server int32) { p.count(lb, server, 1) }

func (p *counting) close(lb, server int32, _ int64) { p.count(lb, server, -1) }

func (p *counting) count(lb, server int32, by float64) {
	p.flows[lb][server] += by
	if !p.two {
		p.scores[lb].set(server, p.score(lb, server))
	}
}

// learned is HLB: the weights come from flow durations, every stepLength.
type learned struct {
	*counting
	weighers []*weights.Filter // per LB
	random   draws
	drawn    uint64
}

func newLearned(e *engine) *learned {
	n := len(e.servers)
	settings := weights.PublishedFilter()
	settings.Reservoir = e.policy.Reservoir
	if e.policy.FixedR != 0 {
		settings.Noise, settings.Alpha = e.policy.FixedR, 0
	}
	p := &learned{
		counting: newCounting(e, e.policy.TwoChoices, func(int) float64 { return 1 / float64(n) }),
		random:   newDraws(e.result.seed, packetStream),
	}
	for range e.farm.LBs {
		p.weighers = append(p.weighers, weights.NewFilter(n, settings))
	}
	e.timers = append(e.timers, timer{e.policy.every(stepLength), p.step})
	return p
}

func (p *learned) word() uint64 {
	p.drawn++
	return p.random.at(p.drawn)
}

// sample takes the duration of a flow, or its age, seen at an instant.
func (p *learned) sample(lb, server int32, at, duration int64, word uint64) {
	p.weighers[lb].Observe(time.Duration(at), weights.Sample{Server: int(server), Value: float64(duration), Random: word})
}

func (p *learned) step() {
	for lb, w := range p.weighers {
		copy(p.weights[lb], w.Weights(time.Duration(p.now)))
		p.rescore(int32(lb))
	}
}

// close samples the duration of a completed flow.
func (p *learned) close(lb, server int32, opened int64) {
	p.counting.close(lb, server, opened)
	p.sample(lb, server, p.now, p.now-opened, p.word())
}
