package learned

import (
	"math/rand/v2"

	"proffer/lab/sim"
)

// ages is learned as HLB's Algorithm 1 and the authors' simulator have it: every
// data packet of a flow in progress adds the flow's age to the server's
// reservoir. How many data packets a flow has the paper does not say; here they
// are a Poisson process of Workload.PacketRate in every flow in progress.
//
// The packets of one pair of LB and server are drawn only when the pair's flows
// change and at each step: in between the reservoir is not read.
type ages struct {
	*learned
	rng   *rand.Rand
	rate  float64   // packets of a flow in a ns
	begun [][]int64 // per LB · servers + server: when its flows in progress began
	drawn []int64   // and the instant up to which their packets are drawn
}

func newAges(e *sim.Engine, policy sim.Policy) *ages {
	pairs := e.Farm.LBs * len(e.Servers)
	p := &ages{
		learned: newLearned(e, policy),
		rng:     rand.New(rand.NewPCG(e.Result.Seed, sim.PacketStream)),
		rate:    e.Work.PacketRate / 1e9,
		begun:   make([][]int64, pairs),
		drawn:   make([]int64, pairs),
	}
	e.Timers[len(e.Timers)-1].Run = p.step
	return p
}

func (p *ages) pair(lb, server int32) int { return int(lb)*len(p.Servers) + int(server) }

// draw lets the data packets up to now pass.
func (p *ages) draw(lb, server int32) {
	pair := p.pair(lb, server)
	begun := p.begun[pair]
	if len(begun) > 0 {
		gap := 1 / (p.rate * float64(len(begun)))
		at := p.drawn[pair] + int64(p.rng.ExpFloat64()*gap)
		for at < p.Instant {
			word := p.rng.Uint64()
			since := begun[int(word&0xffffffff)*len(begun)>>32]
			p.sample(lb, server, at, at-since, word)
			p.Result.Packets++
			at += int64(p.rng.ExpFloat64() * gap)
		}
	}
	p.drawn[pair] = p.Instant
}

func (p *ages) Open(lb, server int32) { p.begin(lb, server, p.Instant) }

func (p *ages) begin(lb, server int32, opened int64) {
	p.draw(lb, server)
	pair := p.pair(lb, server)
	p.begun[pair] = append(p.begun[pair], opened)
	p.counting.Open(lb, server)
}

func (p *ages) Close(lb, server int32, opened int64) {
	p.draw(lb, server)
	pair := p.pair(lb, server)
	begun := p.begun[pair]
	for i, since := range begun {
		if since == opened {
			p.begun[pair] = append(begun[:i], begun[i+1:]...) // in order still
			break
		}
	}
	p.counting.Close(lb, server, opened)
}

func (p *ages) step() {
	for lb := range int32(p.Farm.LBs) {
		for s := range int32(len(p.Servers)) {
			p.draw(lb, s)
		}
	}
	p.learned.step()
}
