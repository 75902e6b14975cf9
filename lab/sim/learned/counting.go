// Package learned has the simulator's policies that count flows in their own LB's
// table, and those that learn the servers' power.
package learned

import (
	"math"
	"slices"

	"proffer/lab/sim"
	"proffer/policy"
)

// The policies that count the flows in their own LB's table: lsq, sed and
// learned. All choose the least (flows + offset) / weight.

type counting struct {
	*sim.Engine
	two     bool
	offset  float64      // 1 counts the new flow too; without weights it tells nothing
	flows   [][]float64  // per LB and server: flows in progress
	weights [][]float64  // per LB and server
	scores  []*sim.Least // per LB; nil with two choices
}

// newCounting starts with the weights that weight gives.
func newCounting(e *sim.Engine, two bool, weight func(server int) float64) *counting {
	p := &counting{Engine: e, two: two, offset: 1}
	n := len(e.Servers)
	for range e.Farm.LBs {
		flows, weights := make([]float64, n), make([]float64, n)
		for s := range weights {
			weights[s] = weight(s)
		}
		p.flows = append(p.flows, flows)
		p.weights = append(p.weights, weights)
		p.scores = append(p.scores, sim.NewLeast(n))
	}
	for lb := range p.scores {
		p.rescore(int32(lb))
	}
	return p
}

func (p *counting) score(lb, server int32) float64 {
	if !p.In(server) {
		return math.Inf(1)
	}
	return (p.flows[lb][server] + p.offset) / p.weights[lb][server]
}

// rescore is for new weights.
func (p *counting) rescore(lb int32) {
	if p.two {
		return
	}
	keys := make([]float64, len(p.Servers))
	for s := range keys {
		keys[s] = p.score(lb, int32(s))
	}
	p.scores[lb].SetAll(keys)
}

func (p *counting) Choose(lb int32, r *sim.Request) int32 {
	return p.pick(lb, p.Choice.At(uint64(r.Number)), p.Hash(r))
}

// pick is the server of the least score, by the word, or of two, by the hash.
func (p *counting) pick(lb int32, word, hash uint64) int32 {
	if !p.two {
		return p.scores[lb].Choose(word)
	}
	first, second := p.TwoOf(hash)
	if p.score(lb, second) < p.score(lb, first) {
		return second
	}
	return first
}

func (p *counting) Open(lb, server int32) { p.count(lb, server, 1) }

func (p *counting) Close(lb, server int32, _ int64) { p.count(lb, server, -1) }

// Spoofed: an entry counts, whether its flow comes to life or not.
func (p *counting) Spoofed(lb int32, word uint64) int32 {
	server := p.pick(lb, word, policy.Mix(word))
	p.count(lb, server, 1)
	return server
}

func (p *counting) Expired(lb, server int32) { p.count(lb, server, -1) }

func (p *counting) count(lb, server int32, by float64) {
	p.flows[lb][server] += by
	if !p.two {
		p.scores[lb].Change(server, p.score(lb, server))
	}
}

// owe makes a server the best until its flows change; of two, the better one until the next step.
func (p *counting) owe(lb, server int32) {
	if p.two {
		p.weights[lb][server] = owedWeight
		return
	}
	p.scores[lb].Set(server, owedScore)
}

const (
	owedScore  = -1      // less than any
	owedWeight = 1 << 16 // where all sum to 1
)

func (p *counting) Member(server int32) {
	for lb := range p.scores {
		if !p.two {
			p.scores[lb].Set(server, p.score(int32(lb), server))
		}
	}
}

func (p *counting) Weighed() [][]float64 { return p.weights }

func (p *counting) Scored() [][]float64 {
	scores := make([][]float64, len(p.weights))
	for lb := range scores {
		scores[lb] = slices.Clone(p.weights[lb])
		for s := range scores[lb] {
			scores[lb][s] = p.score(int32(lb), int32(s))
		}
	}
	return scores
}
