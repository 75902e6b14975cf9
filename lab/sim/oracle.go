package sim

import "math"

var _ = Register(Family{
	Name: "oracle", Pairs: true, Sees: Everything,
	Names: []Spelling{
		{"oracle", "least remaining work / power, known to all LBs", "black dotted"},
		{"oracle2", "the same of two random servers", ""},
	},
	New: func(e *Engine, p Policy) any { return newOracle(e, p.TwoChoices) },
})

// oracle sends a request where the least work is left, for the server's power,
// what is on its way included (HLB §V-C). It is the paper's Oracle: it knows the
// remaining service of every request.
//
// What is left shrinks while nothing happens, and not everywhere alike: by
// running/cores a second. Servers of one slope keep their order, so there is one
// index for each slope, of what would have been left at instant 0; a choice
// compares the heads of the indexes.
type oracle struct {
	*Engine
	two    bool
	slopes []float64 // work that goes in a ns, over power
	heads  []*least  // of each slope
	where  []int32   // the slope of each server
}

func newOracle(e *Engine, two bool) *oracle {
	p := &oracle{Engine: e, two: two, where: make([]int32, len(e.servers))}
	for s := range p.where {
		p.where[s] = nobody
		p.Changed(int32(s))
	}
	return p
}

// left is the time that the server's work will take from now, and how fast that
// time shrinks.
func (p *oracle) left(server int32) (ns, slope float64) {
	cpu := &p.stations[server]
	power := p.farm.Servers[server].Power()
	cpu.advance(p.now)
	ns = (cpu.work() + p.servers[server].pending) / power
	slope = cpu.slope() / power
	if p.work.hasIO() {
		disk := &p.stations[int(server)+len(p.servers)]
		disk.advance(p.now)
		ns += disk.work() + p.servers[server].disk
		slope += disk.slope()
	}
	return ns, slope
}

func (p *oracle) Changed(server int32) {
	if p.two {
		return
	}
	ns, slope := p.left(server)
	class := p.class(slope)
	if old := p.where[server]; old != class && old != nobody {
		p.heads[old].set(server, math.Inf(1))
	}
	p.where[server] = class
	p.heads[class].set(server, ns+float64(slope*float64(p.now)))
}

func (p *oracle) class(slope float64) int32 {
	for i, s := range p.slopes {
		if s == slope {
			return int32(i)
		}
	}
	p.slopes = append(p.slopes, slope)
	p.heads = append(p.heads, newLeast(len(p.servers)))
	return int32(len(p.slopes) - 1)
}

func (p *oracle) Choose(_ int32, r *Request) int32 {
	if p.two {
		return p.chooseOfTwo(r)
	}
	best, at := math.Inf(1), 0
	for i, h := range p.heads {
		if left := h.best() - float64(p.slopes[i]*float64(p.now)); left < best {
			best, at = left, i
		}
	}
	return p.heads[at].choose(p.choice.at(uint64(r.number)))
}

func (p *oracle) chooseOfTwo(r *Request) int32 {
	var list [2]int32
	candidates(list[:], p.flowHash(r), len(p.servers))
	first, _ := p.left(list[0])
	second, _ := p.left(list[1])
	if second < first {
		return list[1]
	}
	return list[0]
}
