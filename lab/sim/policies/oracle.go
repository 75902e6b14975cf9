package policies

import (
	"math"

	"proffer/lab/sim"
)

var _ = sim.Register(sim.Family{
	Name: "oracle", Pairs: true, Sees: sim.Everything,
	Names: []sim.Spelling{
		{Name: "oracle", Means: "least work / power, the remaining and its own, known to all LBs", Drawn: "black dotted"},
		{Name: "oracle2", Means: "the same of two random servers", Drawn: ""},
	},
	New: func(e *sim.Engine, p sim.Policy) any { return newOracle(e, p.TwoChoices) },
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
	*sim.Engine
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
	heads   *sim.Least // by position
	members []int32
}

func newOracle(e *sim.Engine, two bool) *oracle {
	p := &oracle{Engine: e, two: two, where: make([]int32, len(e.Servers)), alike: map[float64][]int32{}, numbers: map[slope]int32{}}
	for i, s := range e.Farm.Servers {
		p.position = append(p.position, int32(len(p.alike[s.Power()])))
		p.alike[s.Power()] = append(p.alike[s.Power()], int32(i))
	}
	for s := range p.where {
		p.where[s] = sim.None
		p.Changed(int32(s))
	}
	return p
}

// left is the time that the server's work will take from now, and how fast that
// time shrinks.
func (p *oracle) left(server int32) (ns, falls float64) {
	cpu := &p.Stations[server]
	power := p.power(server)
	cpu.Advance(p.Instant)
	ns = (cpu.Work() + p.Servers[server].Pending) / power
	falls = cpu.Slope() / power
	if p.Work.HasIO() {
		disk := &p.Stations[int(server)+len(p.Servers)]
		disk.Advance(p.Instant)
		ns += disk.Work() + p.Servers[server].Disk
		falls += disk.Slope()
	}
	return ns, falls
}

func (p *oracle) Changed(server int32) {
	if p.two || p.everyOne() {
		return
	}
	if old := p.where[server]; !p.In(server) && old != sim.None {
		p.ranks[old].heads.Set(p.position[server], math.Inf(1))
		p.where[server] = sim.None
	}
	if !p.In(server) {
		return
	}
	ns, falls := p.left(server)
	rank := p.rank(slope{p.Farm.Servers[server].Power(), falls})
	if old := p.where[server]; old != rank && old != sim.None {
		p.ranks[old].heads.Set(p.position[server], math.Inf(1))
	}
	p.where[server] = rank
	p.ranks[rank].heads.Set(p.position[server], ns+float64(falls*float64(p.Instant)))
}

func (p *oracle) rank(s slope) int32 {
	number, known := p.numbers[s]
	if !known {
		number = int32(len(p.ranks))
		p.numbers[s] = number
		p.ranks = append(p.ranks, ranking{s, sim.NewLeast(len(p.alike[s.power])), p.alike[s.power]})
	}
	return number
}

func (p *oracle) Choose(_ int32, r *sim.Request) int32 {
	if p.two {
		return p.chooseOfTwo(r)
	}
	if p.everyOne() {
		return p.chooseOfAll(r)
	}
	own := r.Demand + r.Second
	best, at := math.Inf(1), 0
	for i := range p.ranks {
		k := &p.ranks[i]
		if left := k.heads.Best() - float64(k.falls*float64(p.Instant)) + own/k.power; left < best {
			best, at = left, i
		}
	}
	return p.ranks[at].members[p.ranks[at].heads.Choose(p.Choice.At(uint64(r.Number)))]
}

func (p *oracle) chooseOfTwo(r *sim.Request) int32 {
	first, second := p.Engine.Two(r)
	if p.with(r, second) < p.with(r, first) {
		return second
	}
	return first
}

// everyOne reports that each server has a speed of its own, which changes: an index
// for each pair of power and slope would not end.
func (p *oracle) everyOne() bool { return p.Farm.Antagonists.Every > 0 }

// chooseOfAll looks at every server.
func (p *oracle) chooseOfAll(r *sim.Request) int32 {
	best, ties := math.Inf(1), p.ties[:0]
	for s := range int32(len(p.Servers)) {
		if !p.In(s) {
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
	return ties[sim.Below(p.Choice.At(uint64(r.Number)), len(ties))]
}

// power is the server's, at present where it changes.
func (p *oracle) power(server int32) float64 {
	s := &p.Farm.Servers[server]
	if p.everyOne() {
		return float64(s.Cores) * p.Stations[server].Speed
	}
	return s.Power()
}

// with is the time until the server would have done all its work and r.
func (p *oracle) with(r *sim.Request, server int32) float64 {
	ns, _ := p.left(server)
	return ns + (r.Demand+r.Second)/p.power(server)
}
