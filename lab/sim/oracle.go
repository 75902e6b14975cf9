package sim

import "math"

var _ = Register(Family{
	Name: "oracle", Pairs: true, Sees: Everything,
	Names: []Spelling{
		{Name: "oracle", Means: "least work / power, the remaining and its own, known to all LBs", Drawn: "black dotted"},
		{Name: "oracle2", Means: "the same of two random servers", Drawn: ""},
	},
	New: func(e *Engine, p Policy) any { return newOracle(e, p.TwoChoices) },
})

// oracle sends a request where the work before it and its own takes least: the work
// that is left, requests on their way and its own included, for the
// server's power (HLB §V-C). It is the paper's Oracle: it knows the remaining
// service of every request.
//
// The time left shrinks while nothing happens, and not everywhere alike: by
// running/cores. Servers of one power and slope keep their order, so there is one
// index for each of these pairs, of the work that would have been left at instant 0; a
// choice compares the heads of the indexes.
type oracle struct {
	*Engine
	two      bool
	position []int32             // of each server among those of its power
	alike    map[float64][]int32 // the servers of each power
	ranks    []ranking
	numbers  map[slope]int32 // of rankings
	where    []int32         // the ranking of each server
	ties     []int32         // scratch
}

// slope is the power of a server and how fast the time that its work takes shrinks.
type slope struct{ power, falls float64 }

type ranking struct {
	slope
	heads   *least // by position
	members []int32
}

func newOracle(e *Engine, two bool) *oracle {
	p := &oracle{Engine: e, two: two, where: make([]int32, len(e.servers)), alike: map[float64][]int32{}, numbers: map[slope]int32{}}
	for i, s := range e.farm.Servers {
		p.position = append(p.position, int32(len(p.alike[s.Power()])))
		p.alike[s.Power()] = append(p.alike[s.Power()], int32(i))
	}
	for s := range p.where {
		p.where[s] = none
		p.Changed(int32(s))
	}
	return p
}

// left is the time that the server's work will take from now, and how fast that
// time shrinks.
func (p *oracle) left(server int32) (ns, falls float64) {
	cpu := &p.stations[server]
	power := p.power(server)
	cpu.advance(p.now)
	ns = (cpu.work() + p.servers[server].pending) / power
	falls = cpu.slope() / power
	if p.work.hasIO() {
		disk := &p.stations[int(server)+len(p.servers)]
		disk.advance(p.now)
		ns += disk.work() + p.servers[server].disk
		falls += disk.slope()
	}
	return ns, falls
}

func (p *oracle) Changed(server int32) {
	if p.two || p.everyOne() {
		return
	}
	if old := p.where[server]; !p.in(server) && old != none {
		p.ranks[old].heads.set(p.position[server], math.Inf(1))
		p.where[server] = none
	}
	if !p.in(server) {
		return
	}
	ns, falls := p.left(server)
	rank := p.rank(slope{p.farm.Servers[server].Power(), falls})
	if old := p.where[server]; old != rank && old != none {
		p.ranks[old].heads.set(p.position[server], math.Inf(1))
	}
	p.where[server] = rank
	p.ranks[rank].heads.set(p.position[server], ns+float64(falls*float64(p.now)))
}

func (p *oracle) rank(s slope) int32 {
	number, known := p.numbers[s]
	if !known {
		number = int32(len(p.ranks))
		p.numbers[s] = number
		p.ranks = append(p.ranks, ranking{s, newLeast(len(p.alike[s.power])), p.alike[s.power]})
	}
	return number
}

func (p *oracle) Choose(_ int32, r *Request) int32 {
	if p.two {
		return p.chooseOfTwo(r)
	}
	if p.everyOne() {
		return p.chooseOfAll(r)
	}
	own := r.demand + r.second
	best, at := math.Inf(1), 0
	for i := range p.ranks {
		k := &p.ranks[i]
		if left := k.heads.best() - float64(k.falls*float64(p.now)) + own/k.power; left < best {
			best, at = left, i
		}
	}
	return p.ranks[at].members[p.ranks[at].heads.choose(p.choice.at(uint64(r.number)))]
}

func (p *oracle) chooseOfTwo(r *Request) int32 {
	first, second := p.Engine.two(r)
	if p.with(r, second) < p.with(r, first) {
		return second
	}
	return first
}

// everyOne reports that each server has a speed of its own, which changes: an index
// for each pair of power and slope would not end.
func (p *oracle) everyOne() bool { return p.farm.Antagonists.Every > 0 }

// chooseOfAll looks at every server.
func (p *oracle) chooseOfAll(r *Request) int32 {
	best, ties := math.Inf(1), p.ties[:0]
	for s := range int32(len(p.servers)) {
		if !p.in(s) {
			continue
		}
		switch key := p.with(r, s); {
		case key < best:
			best, ties = key, append(ties[:0], s)
		case key == best:
			ties = append(ties, s)
		}
	}
	p.ties = ties
	return ties[below(p.choice.at(uint64(r.number)), len(ties))]
}

// power is the server's, at present where it changes.
func (p *oracle) power(server int32) float64 {
	s := &p.farm.Servers[server]
	if p.everyOne() {
		return float64(s.Cores) * p.stations[server].speed
	}
	return s.Power()
}

// with is the time until the server would have done all its work and r.
func (p *oracle) with(r *Request, server int32) float64 {
	ns, _ := p.left(server)
	return ns + (r.demand+r.second)/p.power(server)
}
