package proof

import (
	"math"
	"math/rand/v2"
	"slices"

	"proffer/lab/sim"
	"proffer/lab/sim/policies"
	"proffer/policy"
)

// slow is the simulator again, as obvious as it can be: one unsorted list of
// closures that is searched for the earliest, servers whose every request has
// its own remaining work, policies that look at every server. It shares with the
// engine only the random numbers.
type slow struct {
	farm sim.Farm
	work sim.Workload
	p    sim.Policy
	seed uint64

	now     int64
	order   int
	todo    []errand
	hosts   []*host
	rows    []sim.Row
	open    int
	choose  func(lb int, r *flow) int
	begun   func(r *flow) // the LB has entered the flow in its table
	ended   func(r *flow) // and has taken it out
	lists   func(r *flow) []int
	asked   func(r *flow, at int, last bool) (take bool, to int)
	heard   func(lb, server int, metric uint8, idle bool)
	tables  []map[int]bool
	observe func() // jiq: after everything that changes a load

	report   func(r *flow) func()       // a server writes a signal; the result is the LB reading it
	accepted func(r *flow)              // a server has accepted it
	served   func(r *flow)              // a server has completed it
	alive    func(r *flow)              // its first data passes the LB
	ask      func(r *flow, next func()) // the LB asks before it chooses
	spoofed  func(r *flow)              // a forged SYN
	moved    func(r *flow)              // a server's flows changed; or nil
	slowed   func(h *host, was float64) // a server's speed changed; or nil
	expired  func(r *flow)
}

type errand struct {
	at    int64
	rank  int // arrivals come first, then completions, then packets
	order int
	do    func()
}

// host is a server.
type host struct {
	sim.Server
	index    int
	cpu      queue
	disk     queue
	assigned []*flow // by an LB, neither finished nor refused
	taken    int
	mean     policies.Gauge
}

// queue is a resource and the requests for it.
type queue struct {
	cores, speed float64
	limit        int
	running      []*flow
	waiting      []*flow
}

type flow struct {
	sim.Row
	number  uint64
	hash    uint64
	far     int64
	opened  int64
	stages  []float64 // ns of service, still to come, the present one first
	left    float64   // of the present stage
	onDisk  bool
	waits   bool // before the cores or the disk, not on its way
	list    []int
	visit   int
	bucket  int
	metrics []uint8
	word    uint64 // that breaks ties
	alive   bool
	forged  bool
	begun   int64 // accepted by its server
	before  int   // requests in flight there, it included
	asked   int   // prequal: the server that the probes led to
}

func newSlow(f sim.Farm, p sim.Policy, w sim.Workload, seed uint64) *slow {
	if w.PacketRate == 0 {
		w.PacketRate = sim.DefaultPacketRate
	}
	s := &slow{farm: f, work: w, p: p, seed: seed}
	for i, server := range f.Servers {
		s.hosts = append(s.hosts, &host{
			Server: server, index: i,
			cpu:  queue{cores: float64(server.Cores), speed: server.Pace(), limit: server.InHand()},
			disk: queue{cores: 1, speed: 1, limit: math.MaxInt},
		})
	}
	s.install()
	return s
}

func (s *slow) after(wait int64, rank int, do func()) {
	s.order++
	s.todo = append(s.todo, errand{s.now + wait, rank, s.order, do})
}

func (s *slow) run() []sim.Row {
	s.schedule()
	if s.farm.Antagonists.Every > 0 {
		s.antagonize()
	}
	if s.farm.Flood.Times > 0 && s.spoofed != nil {
		s.flood()
	}
	for len(s.rows) > 0 && (s.open > 0 || slices.ContainsFunc(s.todo, func(e errand) bool { return e.rank == 0 })) {
		next := errand{at: sim.Never}
		for _, e := range s.todo {
			if e.before(next) {
				next = e
			}
		}
		completion, q, h := s.firstCompletion()
		if q != nil && (errand{at: completion, rank: 1}).before(next) {
			s.pass(completion)
			s.finish(h, q)
			continue
		}
		s.todo = slices.DeleteFunc(s.todo, func(e errand) bool { return e.order == next.order })
		s.pass(next.at)
		next.do()
	}
	return s.rows
}

func (e errand) before(f errand) bool {
	if e.at != f.at {
		return e.at < f.at
	}
	if e.rank != f.rank {
		return e.rank < f.rank
	}
	return e.order < f.order
}

// schedule puts all arrivals on the list.
func (s *slow) schedule() {
	clock := sim.NewClock(s.work.Arrivals, s.seed)
	service := sim.NewSampler(s.work.Service, s.seed, sim.ServiceStream)
	io := sim.NewSampler(s.work.IO, s.seed, sim.IOStream)
	rtt := sim.NewSampler(s.farm.ClientRTT, s.seed, sim.RTTStream)
	hash, split, choice := sim.NewDraws(s.seed, sim.HashStream), sim.NewDraws(s.seed, sim.SplitStream), sim.NewDraws(s.seed, sim.ChoiceStream)
	s.rows = make([]sim.Row, s.work.Requests)
	for i := range s.work.Requests {
		at, more := clock.Next()
		if !more {
			s.rows = s.rows[:i]
			return
		}
		demand := service.Draw()
		r := &flow{number: uint64(i), hash: hash.At(2*uint64(i) + 1), word: choice.At(uint64(i)), stages: []float64{demand}}
		r.At, r.Service = dur(at), dur(int64(demand))
		r.LB = sim.Below(hash.At(2*uint64(i)), s.farm.LBs)
		if s.work.HasIO() {
			r.stages = append(r.stages, io.Draw())
		}
		if s.work.Stages > 2 {
			second := demand * (float64(split.At(uint64(i))>>11) / (1 << 53))
			r.stages[0] -= second
			r.stages = append(r.stages, second)
		}
		if !s.farm.ClientRTT.None() {
			r.far = int64(rtt.Draw() / 2)
		}
		s.after(at, 0, func() {
			s.open++
			s.after(s.hop(r, sim.ToServer, 0)+r.far, 2, func() { s.atLB(r) })
		})
	}
}

// pick returns the place of one of the least keys, by the word.
func pick(keys []float64, word uint64) int {
	var least []int
	for i, key := range keys {
		if key == slices.Min(keys) {
			least = append(least, i)
		}
	}
	return least[sim.Below(word, len(least))]
}

func (s *slow) every(ns int64, do func()) {
	s.after(ns, 2, func() {
		do()
		s.every(ns, do)
	})
}

func (s *slow) two(r *flow, key func(server int) float64) int {
	list := policy.Candidates(r.hash, len(s.hosts), 2)
	if key(list[1]) < key(list[0]) {
		return list[1]
	}
	return list[0]
}

func (s *slow) keys(key func(server int) float64) (keys []float64) {
	for i := range s.hosts {
		keys = append(keys, key(i))
	}
	return keys
}

func newPacketRNG(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, sim.PacketStream)) }
