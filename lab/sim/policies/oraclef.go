package policies

import (
	"math"
	"slices"

	"proffer/lab/sim"
)

var _ = sim.Register(sim.Family{
	Name: "oraclef", Pairs: true, Sees: sim.Everything,
	Names: []sim.Spelling{
		{Name: "oraclef", Means: "earliest predicted finish: the bound at equal speeds", Drawn: "black solid"},
		{Name: "oraclef2", Means: "the same of two random servers", Drawn: ""},
	},
	New: func(e *sim.Engine, p sim.Policy) any { return newFinisher(e, p.TwoChoices) },
})

// Finisher is oraclef: it sends a request where it will be finished first if
// nothing comes after it. At equal speeds and under FIFO no policy does better.
//
// FIFO: the request starts when a core has done all it was given, which is one
// number a server. Sharing: a server with a core to spare finishes a request in
// its bare service time, in any other the requests that it has stand in the way.
// Servers of one speed and discipline make a class, which ranks them by that number,
// the instant or the requests too many. Two searches find the earliest end: of the
// classes' first servers, and, where none of a class has a core to spare, of all
// servers, since that with the fewest requests too many may not be the first of
// them. Disks are not foreseen, nor is other work: the requests of a FIFO server end as
// its present speed has it, all else goes by the speed of the farm.
type Finisher struct {
	*sim.Engine
	two      bool
	of       []int32      // the class of each server
	position []int32      // among those of the class
	alike    [][]int32    // of each class, its servers
	heads    []*sim.Least // of each class, by position
	classes  *soonest     // all
	crowded  *soonest     // servers without a core to spare, of classes of several
	stale    []int32      // servers with an old leaf in crowded
	isStale  []bool       // of each server
	tight    int          // sharing classes of several of which none has a core to spare
	Free     [][]float64  // FIFO: per server, ns, when each core is free, the first one first
	speed    []float64    // FIFO: of each server, by which free is
	needs    []float64    // scratch
}

type Class struct {
	Speed float64
	sim.Discipline
}

func newFinisher(e *sim.Engine, two bool) *Finisher {
	p := &Finisher{Engine: e, two: two, isStale: make([]bool, len(e.Farm.Servers))}
	var classes, servers []pace
	numbers := map[Class]int32{}
	for i, s := range e.Farm.Servers {
		c := Class{s.Pace(), s.Discipline}
		of, known := numbers[c]
		if !known {
			of = int32(len(classes))
			numbers[c], classes = of, append(classes, paceOf(s))
			p.alike = append(p.alike, nil)
		}
		p.of = append(p.of, of)
		p.position = append(p.position, int32(len(p.alike[of])))
		p.alike[of] = append(p.alike[of], int32(i))
		p.Free = append(p.Free, make([]float64, s.Cores))
		p.speed = append(p.speed, s.Pace())
		servers = append(servers, paceOf(s))
		classes[of].full = min(classes[of].full, paceOf(s).full) // of one speed, not of one size
	}
	p.classes, p.crowded = newSoonest(classes), newSoonest(servers)
	for _, m := range p.alike {
		p.heads = append(p.heads, sim.NewLeast(len(m)))
	}
	for i := range e.Farm.Servers {
		p.rank(int32(i), 0)
	}
	return p
}

func paceOf(s sim.Server) pace {
	if s.Discipline == sim.FIFO {
		return pace{1 / s.Pace(), 1 / s.Pace()}
	}
	return pace{1 / s.Pace(), 1 / s.Power()}
}

// rank sets the number by which the server stands in its class.
func (p *Finisher) rank(server int32, key float64) {
	class := p.of[server]
	head := p.heads[class]
	before := head.Best()
	head.Set(p.position[server], key)
	now := head.Best()
	sharing := p.Farm.Servers[server].Discipline == sim.Sharing
	several := len(p.alike[class]) > 1
	switch {
	case now == math.Inf(1): // none takes flows
		p.classes.set(class, out)
	case !sharing:
		at := out
		at[0] = now
		p.classes.set(class, at)
	case !several && now > 0:
		p.classes.set(class, p.ready(server))
	case !several || before == math.Inf(1):
		p.classes.set(class, atOnce)
	}
	if sharing && several {
		p.tight += tooMany(now) - tooMany(before)
	}
}

// tooMany is 1 for a key of requests too many.
func tooMany(key float64) int {
	if key > 0 && key < math.Inf(1) {
		return 1
	}
	return 0
}

// Changed matters under sharing only, but for a new speed: FIFO plans by the requests it
// gave.
func (p *Finisher) Changed(server int32) {
	s := &p.Farm.Servers[server]
	if s.Discipline == sim.FIFO {
		if p.speed[server] != p.Stations[server].Speed {
			p.follow(server)
		}
		return
	}
	key := float64(max(0, int(p.Servers[server].Assigned)-s.Cores+1))
	if !p.In(server) {
		key = math.Inf(1)
	}
	p.rank(server, key)
	if len(p.alike[p.of[server]]) > 1 && !p.isStale[server] {
		p.stale, p.isStale[server] = append(p.stale, server), true
	}
}

// follow plans on at a server's new speed: its cores need so much more time, or less,
// for all that they were given.
func (p *Finisher) follow(server int32) {
	now, speed, free := float64(p.Instant), p.Stations[server].Speed, p.Free[server]
	for i := range free {
		if left := free[i] - now; left > 0 {
			free[i] = now + left*p.speed[server]/speed
		}
	}
	p.speed[server] = speed
	if p.In(server) {
		p.rank(server, free[0])
	}
}

// refresh sets the leaves of crowded that changed since its last search. At equal
// speeds most requests find a core to spare and need no search.
func (p *Finisher) refresh() {
	for _, server := range p.stale {
		p.isStale[server] = false
		if p.In(server) && p.isFull(server) {
			p.crowded.set(server, p.ready(server))
		} else {
			p.crowded.set(server, out)
		}
	}
	p.stale = p.stale[:0]
}

// Member matters under FIFO only. A server that has failed has nothing left to do.
func (p *Finisher) Member(server int32) {
	switch {
	case p.Farm.Servers[server].Discipline != sim.FIFO:
	case p.In(server):
		p.rank(server, p.Free[server][0])
	default:
		p.rank(server, math.Inf(1))
		if p.IsDown(server) {
			clear(p.Free[server])
		}
	}
}

// ready is when a server without a core to spare would be rid of the requests in the
// way of the next, but for the q that need most, had its cores nothing else to do.
// They have, so no such instant comes earlier before the next change.
func (p *Finisher) ready(server int32) ready {
	needs := p.inTheWay(server)
	sum, power := 0.0, p.Farm.Servers[server].Power()
	for _, need := range needs {
		sum += need
	}
	at := atOnce
	for q := range min(len(needs), len(at)-1) {
		at[q] = float64(p.Instant) + sum/power
		sum -= needs[len(needs)-1-q]
	}
	return at
}

func (p *Finisher) Choose(_ int32, r *sim.Request) int32 {
	server := p.pick(r)
	p.give(server, r)
	return server
}

func (p *Finisher) pick(r *sim.Request) int32 {
	if p.two {
		first, second := p.Engine.Two(r)
		if p.finish(second, r) < p.finish(first, r) {
			return second
		}
		return first
	}
	word := p.Choice.At(uint64(r.Number))
	class, best := int32(0), math.Inf(1)
	if len(p.alike) > 1 || p.tight > 0 {
		class, best = p.classes.find(float64(p.Instant), r.Demand, best, func(class int32, best float64) float64 {
			return p.try(p.classes, class, p.head(class, word), r, best)
		})
	}
	if p.tight > 0 {
		p.refresh()
		server, _ := p.crowded.find(float64(p.Instant), r.Demand, best, func(server int32, best float64) float64 {
			return p.try(p.crowded, server, server, r, best)
		})
		if server != sim.None {
			return server
		}
	}
	return p.head(class, word)
}

// try is finish for a leaf of a tree. It raises the bound of a leaf that does not end
// first: ready rises with time, and the next search leaves the server out.
func (p *Finisher) try(t *soonest, leaf, server int32, r *sim.Request, best float64) float64 {
	end := p.finish(server, r)
	if end > best && (t == p.crowded || len(p.alike[leaf]) == 1) && p.isFull(server) {
		t.set(leaf, p.ready(server))
	}
	return end
}

// head is the server of a class that stands first, which of equals is up to the
// random word.
func (p *Finisher) head(class int32, word uint64) int32 {
	return p.alike[class][p.heads[class].Choose(word)]
}

// isFull reports that no core of a sharing server is to spare.
func (p *Finisher) isFull(server int32) bool {
	s := &p.Farm.Servers[server]
	return s.Discipline == sim.Sharing && int(p.Servers[server].Assigned) >= s.Cores
}

// finish is when the server would be done with r, in ns.
func (p *Finisher) finish(server int32, r *sim.Request) float64 {
	s := &p.Farm.Servers[server]
	begin, need := float64(p.Instant), r.Demand
	switch {
	case s.Discipline == sim.FIFO:
		begin = max(p.Free[server][0], begin)
	case p.isFull(server):
		need = p.share(server, need)
	}
	return begin + need/s.Pace()
}

// give books r on the core that is free first.
func (p *Finisher) give(server int32, r *sim.Request) {
	if p.Farm.Servers[server].Discipline != sim.FIFO {
		return
	}
	free := p.Free[server]
	end := max(free[0], float64(p.Instant)) + r.Demand/p.speed[server]
	i := 1
	for ; i < len(free) && free[i] < end; i++ {
		free[i-1] = free[i]
	}
	free[i-1] = end
	p.rank(server, free[0])
}

// share is how long a request of this demand takes at a sharing server of speed 1
// without a core to spare if no request comes after it. With n others there, a unit
// of its service takes max(1, (n+1) / cores), and those that need less leave before:
//
//	∫ max(1, (n(u)+1) / cores) du = demand + Σ min(need, demand) / cores
//
// from 0 to demand, n(u) being how many need more than u, over the requests in the way.
func (p *Finisher) share(server int32, demand float64) float64 {
	sum := 0.0
	for _, need := range p.inTheWay(server) {
		sum += lesser(need, demand)
	}
	return demand + sum/float64(p.Farm.Servers[server].Cores)
}

// inTheWay lists the service that a server's requests still need, the least first, but
// for the cores−1 that need most: a core for each of them does not slow others down.
// Requests on their way or waiting count as in hand, those on their way as needing
// the average of them.
func (p *Finisher) inTheWay(server int32) []float64 {
	st := &p.Stations[server]
	attained := st.Attained + float64(float64(p.Instant-st.At)*st.Rate)
	needs := p.needs[:0]
	for _, j := range st.Running {
		needs = append(needs, j.Finish-attained)
	}
	for i, n := st.Head, st.Waiting; n > 0; n-- {
		needs = append(needs, p.Requests.All[i].Demand)
		i = p.Requests.All[i].Next
	}
	coming := int(p.Servers[server].Assigned) - len(needs)
	for range coming {
		needs = append(needs, p.Servers[server].Pending/float64(coming))
	}
	slices.Sort(needs)
	p.needs = needs
	return needs[:len(needs)-p.Farm.Servers[server].Cores+1]
}
