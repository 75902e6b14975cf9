package edgesim

import (
	"math/rand/v2"
	"slices"

	"proffer/balancer"
	"proffer/weights"
)

// lb is an LB: the packets that it sent, the balancer that a daemon runs, and the choice
// for its new flows.
type lb struct {
	*balancer.Balancer
	packets [][]weights.Packets // by core and service
	turn    *turn
	random  *rand.Rand      // nil: in turn
	last    []weights.ByAge // loads at the last tick, which other LBs have by now
}

func newWeigher(p Policy, cores int) balancer.Weigher {
	switch {
	case p.Kind == Static:
		return weights.NewStatic(slices.Repeat([]float64{1}, cores))
	case p.Learns:
		return weights.NewLeveller(cores)
	}
	return weights.NewPID(cores, p.PID)
}

func newLB(p Policy, overload float64, costs weights.Costs, seed uint64, number int) *lb {
	b, err := balancer.New(balancer.Settings{Costs: costs, Weigher: newWeigher(p, len(costs)), Monitor: p.Kind == Monitor, Overload: overload})
	if err != nil {
		panic(err) // the farm is checked
	}
	l := &lb{Balancer: b, last: make([]weights.ByAge, len(costs)), turn: newTurn(slices.Repeat([]float64{1}, len(costs)))}
	for _, services := range costs {
		l.packets = append(l.packets, make([]weights.Packets, len(services)))
	}
	if p.Random {
		l.random = rand.New(rand.NewPCG(seed, uint64(choiceStream+number)))
	}
	return l
}

// next is the core of a new flow.
func (b *lb) next() int32 {
	if b.random == nil {
		return int32(b.turn.next())
	}
	sum := 0.0
	for _, w := range b.turn.weights {
		sum += w
	}
	at, last := b.random.Float64()*sum, 0
	for i, w := range b.turn.weights {
		if w == 0 {
			continue
		}
		if at < w {
			return int32(i)
		}
		at -= w
		last = i
	}
	return int32(last)
}

// others is the loads by the other LBs, a tick old; nil if they are not shared.
func (e *engine) others(own *lb) (sum []weights.ByAge) {
	if !e.farm.Shared {
		return nil
	}
	sum = make([]weights.ByAge, len(e.cores))
	for _, lb := range e.lbs {
		for i := range sum {
			if lb != own {
				sum[i].Add(&lb.last[i])
			}
		}
	}
	return sum
}

func (b *lb) offered() (sum uint64) {
	for _, services := range b.packets {
		for i := range services {
			sum += services[i].Total()
		}
	}
	return sum
}
