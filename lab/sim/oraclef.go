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
// its bare service time, any other is played forward. Servers of one speed and
// discipline make a class, which ranks them by that number, the instant or the
// requests too many. Two searches find the earliest end: of the classes' first
// servers, and, where none of a class has a core to spare, of all servers, since
// the one with the fewest requests too many may not be the first of them. Disks
// are not foreseen.
type finisher struct {
	*Engine
	two      bool
	of       []int32     // the class of each server
	position []int32     // among those of the class
	alike    [][]int32   // of each class, its servers
	heads    []*least    // of each class, by position
	classes  *soonest    // all
	crowded  *soonest    // servers without a core to spare, of classes of several
	tight    int         // sharing classes of several of which none has a core to spare
	free     [][]float64 // FIFO: per server, ns, when each core is free, the first one first
	needs    []float64   // scratch
}

type class struct {
	speed float64
	Discipline
}

func newFinisher(e *Engine, two bool) *finisher {
	p := &finisher{Engine: e, two: two}
	var classes, servers []pace
	numbers := map[class]int32{}
	for i, s := range e.farm.Servers {
		c := class{s.speed(), s.Discipline}
		of, known := numbers[c]
		if !known {
			of = int32(len(classes))
			numbers[c], classes = of, append(classes, paceOf(s))
			p.alike = append(p.alike, nil)
		}
		p.of = append(p.of, of)
		p.position = append(p.position, int32(len(p.alike[of])))
		p.alike[of] = append(p.alike[of], int32(i))
		p.free = append(p.free, make([]float64, s.Cores))
		servers = append(servers, paceOf(s))
		classes[of] = classes[of].least(paceOf(s))
	}
	p.classes, p.crowded = newSoonest(classes), newSoonest(servers)
	for _, m := range p.alike {
		p.heads = append(p.heads, newLeast(len(m)))
	}
	for i := range e.farm.Servers {
		p.rank(int32(i), 0)
	}
	return p
}

func paceOf(s Server) pace {
	p := pace{1 / s.speed(), 1 / s.Power(), 1/s.speed() + 1/s.Power()}
	if s.Discipline == FIFO {
		p.full, p.crowd = p.alone, math.Inf(1)
	}
	return p
}

// rank sets the number by which the server stands in its class.
func (p *finisher) rank(server int32, key float64) {
	class := p.of[server]
	head := p.heads[class]
	before := head.best()
	head.set(p.position[server], key)
	now := head.best()
	switch {
	case p.farm.Servers[server].Discipline == FIFO:
		p.classes.set(class, now)
	case now == math.Inf(1): // none takes flows
		p.classes.set(class, now)
		p.tight -= tooMany(before)
	case len(p.alike[class]) > 1:
		p.classes.set(class, 0)
		p.tight += tooMany(now) - tooMany(before)
	case now > 0:
		p.classes.set(class, p.firstEnd(server))
	default:
		p.classes.set(class, 0)
	}
}

// tooMany is 1 for a key of requests too many.
func tooMany(key float64) int {
	if key > 0 && key < math.Inf(1) {
		return 1
	}
	return 0
}

// Changed matters under sharing only: FIFO plans by the requests it gave.
func (p *finisher) Changed(server int32) {
	s := &p.farm.Servers[server]
	if s.Discipline == FIFO {
		return
	}
	key := float64(max(0, int(p.servers[server].assigned)-s.Cores+1))
	if !p.in(server) {
		key = math.Inf(1)
	}
	p.rank(server, key)
	switch {
	case len(p.alike[p.of[server]]) == 1:
	case key == 0 || key == math.Inf(1):
		p.crowded.set(server, math.Inf(1))
	default:
		p.crowded.set(server, 0)
	}
}

// Member matters under FIFO only. A server that has failed has nothing left to do.
func (p *finisher) Member(server int32) {
	switch {
	case p.farm.Servers[server].Discipline != FIFO:
	case p.in(server):
		p.rank(server, p.free[server][0])
	default:
		p.rank(server, math.Inf(1))
		if p.isDown(server) {
			clear(p.free[server])
		}
	}
}

// firstEnd is an instant before which the server, if it gets one more request,
// completes none of those that it has, in ns: with one more it is no faster than
// it is now, and a request on its way needs the average of that.
func (p *finisher) firstEnd(server int32) float64 {
	s, st := &p.servers[server], &p.stations[server]
	if st.waiting > 0 {
		return 0
	}
	first := float64(p.alarms.at(server))
	if coming := int(s.assigned) - len(st.running); coming > 0 {
		need := s.pending / float64(coming) * float64(s.assigned)
		first = min(first, float64(p.now)+need/p.farm.Servers[server].Power())
	}
	return first
}

func (p *finisher) Choose(_ int32, r *Request) int32 {
	server := p.pick(r)
	p.give(server, r)
	return server
}

func (p *finisher) pick(r *Request) int32 {
	if p.two {
		first, second := p.Engine.two(r)
		if p.finish(second, r, never) < p.finish(first, r, never) {
			return second
		}
		return first
	}
	now, word := float64(p.now), p.choice.at(uint64(r.number))
	class, best := p.classes.find(now, r.demand, math.Inf(1), func(class int32, best float64) float64 {
		return p.finish(p.head(class, word), r, best+slack)
	})
	if p.tight == 0 {
		return p.head(class, word)
	}
	server, _ := p.crowded.find(now, r.demand, best, func(server int32, best float64) float64 {
		return p.finish(server, r, best+slack)
	})
	if server == none {
		return p.head(class, word)
	}
	return server
}

// head is the server of a class that stands first, which of equals is up to the
// random word.
func (p *finisher) head(class int32, word uint64) int32 {
	return p.alike[class][p.heads[class].choose(word)]
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
	p.rank(server, free[0])
}

// share is how long a request of this demand takes at a sharing server of speed
// 1 if no request comes after it: with n in hand each gets cores/n, and those that
// need less leave before. Requests on their way or waiting count as in hand,
// those on their way as needing their average. It is +Inf if the
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

// gather lists the service that a server's requests still need.
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
