package sim

import (
	"math"
	"slices"
)

var _ = Register(Family{
	Name: "oraclef", Pairs: true, Sees: Everything,
	Names: []Spelling{
		{"oraclef", "earliest predicted finish: the bound at equal speeds", "black solid"},
		{"oraclef2", "the same of two random servers", ""},
	},
	New: func(e *Engine, p Policy) any { return newFinisher(e, p.TwoChoices) },
})

// finisher is oraclef: it sends a request where it will be finished first if
// nothing comes after it. At equal speeds and under FIFO no policy does better.
//
// FIFO: the request starts when a core has done all it was given, which is one
// number a server. Sharing: a server with a core to spare finishes a request in
// its bare service time, so only if none has one are all servers played forward.
// Servers of one speed and discipline are ranked by that number, the instant or
// the requests too many, in one index. Disks are not foreseen.
type finisher struct {
	*Engine
	two     bool
	classes []class
	of      []int32     // the class of each server
	heads   []*least    // of each class
	free    [][]float64 // FIFO: per server, ns, when each core is free, the first one first
	needs   []float64   // scratch
}

type class struct {
	speed float64
	Discipline
}

func newFinisher(e *Engine, two bool) *finisher {
	p := &finisher{Engine: e, two: two}
	for i, s := range e.farm.Servers {
		of := slices.Index(p.classes, class{s.speed(), s.Discipline})
		if of < 0 {
			of = len(p.classes)
			p.classes = append(p.classes, class{s.speed(), s.Discipline})
			p.heads = append(p.heads, newLeast(len(e.servers)))
		}
		p.of = append(p.of, int32(of))
		p.free = append(p.free, make([]float64, s.Cores))
		p.heads[of].set(int32(i), 0)
	}
	return p
}

// changed matters under sharing only: FIFO plans by what it gave.
func (p *finisher) Changed(server int32) {
	if p.farm.Servers[server].Discipline == Sharing {
		busy := p.servers[server].assigned
		tooMany := max(0, busy-int32(p.farm.Servers[server].Cores)+1)
		p.heads[p.of[server]].set(server, float64(tooMany))
	}
}

func (p *finisher) Choose(_ int32, r *Request) int32 {
	server := p.pick(r)
	p.give(server, r)
	return server
}

func (p *finisher) pick(r *Request) int32 {
	if p.two {
		var list [2]int32
		candidates(list[:], p.flowHash(r), len(p.servers))
		if p.finish(list[1], r, never) < p.finish(list[0], r, never) {
			return list[1]
		}
		return list[0]
	}
	best, at := math.Inf(1), int32(nobody)
	crowded := false
	for _, h := range p.heads {
		s := h.choose(p.choice.at(uint64(r.number)))
		crowded = crowded || p.farm.Servers[s].Discipline == Sharing && h.best() > 0
		if end := p.finish(s, r, best); end < best {
			best, at = end, s
		}
	}
	if crowded {
		return p.walk(r, best, at)
	}
	return at
}

// walk plays every server forward.
func (p *finisher) walk(r *Request, best float64, at int32) int32 {
	for s := range int32(len(p.servers)) {
		if end := p.finish(s, r, best); end < best {
			best, at = end, s
		}
	}
	return at
}

// finish is when the server would be done with r, in ns; +Inf if not before most.
func (p *finisher) finish(server int32, r *Request, most float64) float64 {
	s := &p.farm.Servers[server]
	need := r.demand / s.speed()
	if s.Discipline == FIFO {
		return max(p.free[server][0], float64(p.now)) + need
	}
	if int(p.servers[server].assigned) < s.Cores {
		return float64(p.now) + need
	}
	return float64(p.now) + p.share(server, r.demand, (most-float64(p.now))*s.speed())/s.speed()
}

// give books r on the core that is free first.
func (p *finisher) give(server int32, r *Request) {
	s := &p.farm.Servers[server]
	if s.Discipline != FIFO {
		return
	}
	free := p.free[server]
	end := max(free[0], float64(p.now)) + r.demand/s.speed()
	i := 1
	for ; i < len(free) && free[i] < end; i++ {
		free[i-1] = free[i]
	}
	free[i-1] = end
	p.heads[p.of[server]].set(server, free[0])
}

// share is how long a request of this demand takes at a sharing server of speed
// 1 if nobody comes after it: with n in hand each gets cores/n, and those that
// need less leave before. Requests on their way or waiting count as in hand,
// those on their way as needing what the average of them does. It is +Inf if the
// answer cannot be under most.
func (p *finisher) share(server int32, demand, most float64) float64 {
	needs := p.gather(server)
	cores := float64(p.farm.Servers[server].Cores)
	ahead := demand
	for _, need := range needs {
		ahead += min(need, demand)
	}
	if ahead/cores >= most { // all cores busy all the time
		return math.Inf(1)
	}
	slices.Sort(needs)
	took, got := 0.0, 0.0
	left := float64(len(needs) + 1) // still there, r included
	for _, need := range needs {
		if need >= demand {
			break
		}
		took += float64((need - got) * max(1, left/cores))
		got = need
		left--
	}
	return took + float64((demand-got)*max(1, left/cores))
}

// gather lists what those that a server was given still need.
func (p *finisher) gather(server int32) []float64 {
	st := &p.stations[server]
	st.advance(p.now)
	p.needs = p.needs[:0]
	for _, j := range st.running {
		p.needs = append(p.needs, j.finish-st.attained)
	}
	for i, n := st.head, st.waiting; n > 0; n-- {
		p.needs = append(p.needs, p.requests.all[i].demand)
		i = p.requests.all[i].next
	}
	coming := int(p.servers[server].assigned) - len(p.needs)
	for range coming {
		p.needs = append(p.needs, p.servers[server].pending/float64(coming))
	}
	return p.needs
}
