package proof

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"proffer/lab/sim"
	"proffer/lab/sim/policies"
	"proffer/policy"
)

// The slow twins of the policies on servers' reports and probes, and of other work
// and forged SYNs.

// viewed: an LB's number of a server's requests is the last report's, and one for each
// request that it sent there since. A server's mean is that of its last completions; the mean
// of those of all servers stands in for each that lacks, as it is when the server reports, or
// now for a server that has completed nothing.
func (s *slow) viewed(best func(func(int, int) float64) func(int, *flow) int, score func(n, mean float64, h *host) float64) {
	type report struct {
		n, mean float64
		at      int
		own     policies.Gauge
	}
	last := map[[2]int]report{}
	sent := map[[2]int][]int{} // when, by a count of all events
	events := 0
	mean := func(lb int) float64 {
		sum, seen := 0.0, 0.0
		for server := range s.hosts {
			own := last[[2]int{lb, server}].own
			sum += own.Mean * own.Seen
			seen += own.Seen
		}
		return max(1, sum/max(1, seen))
	}
	choose := best(func(lb, server int) float64 {
		r := last[[2]int{lb, server}]
		if r.own.Seen == 0 {
			r.mean = mean(lb)
		}
		n := r.n
		for _, at := range sent[[2]int{lb, server}] {
			if at > r.at {
				n++
			}
		}
		return score(n, r.mean, s.hosts[server])
	})
	s.choose = func(lb int, r *flow) int {
		server := choose(lb, r)
		events++
		sent[[2]int{lb, server}] = append(sent[[2]int{lb, server}], events)
		return server
	}
	s.report = func(r *flow) func() {
		h := s.hosts[r.Server]
		n, own := float64(h.taken), h.mean
		return func() {
			events++
			at := [2]int{r.LB, r.Server}
			last[at] = report{n, 0, events, own}
			all := mean(r.LB)
			last[at] = report{n, max(1, all+own.Seen/policies.GaugeMemory*(own.Mean-all)), events, own}
		}
	}
}

// replicas is c3.
func (s *slow) replicas(best func(func(int, int) float64) func(int, *flow) int) {
	type means struct{ response, service, queue []float64 } // all values, the first one assumed
	replies := map[[2]int]*means{}
	table := s.counting(best, func(int, int) float64 { return 1 })
	s.spoofed = nil
	weighted := func(x []float64) (mean float64) { // by the definition of the mean
		for i, v := range x {
			w := math.Pow(1-policies.C3Alpha, float64(len(x)-1-i))
			if i > 0 {
				w *= policies.C3Alpha
			}
			mean += w * v
		}
		return mean
	}
	known := func(lb, server int) *means {
		at := [2]int{lb, server}
		if replies[at] == nil {
			replies[at] = &means{[]float64{0}, []float64{float64(s.work.Service.Mean)}, []float64{0}}
		}
		return replies[at]
	}
	s.choose = best(func(lb, server int) float64 {
		outstanding := 0.0
		for _, r := range *table {
			if r.LB == lb && r.Server == server {
				outstanding++
			}
		}
		m := known(lb, server)
		q := 1 + outstanding*float64(s.farm.LBs) + weighted(m.queue)
		return weighted(m.response) - weighted(m.service) + q*q*q*weighted(m.service)
	})
	s.report = func(r *flow) func() {
		h := s.hosts[r.Server]
		queue, service := float64(h.taken), float64(r.Service)/h.cpu.speed
		isReply, isRefusal := len(r.stages) == 0, r.Refused
		return func() {
			m := known(r.LB, r.Server)
			if isReply {
				m.response = append(m.response, float64(s.now-r.opened))
				m.service = append(m.service, service)
			}
			if isReply || isRefusal {
				m.queue = append(m.queue, queue)
			}
		}
	}
}

// known is an answer to a probe.
type known struct {
	at      int64
	server  int
	n       int // in flight
	latency float64
	alone   float64 // ns, of a request alone
	uses    int
}

// isHot: more in flight than the .84 quantile of the last answers.
func isHot(n int, recent []int) bool {
	sorted := slices.Sorted(slices.Values(recent[max(0, len(recent)-policies.HotMemory):]))
	return len(sorted) > 0 && n > sorted[int(math.Ceil(policies.HotQuantile*float64(len(sorted))))-1] || len(sorted) == 0 && n > 0
}

// rank compares two answers: negative if a is better.
func (s *slow) rank(a, b known, recent []int) int {
	hotA, hotB := isHot(a.n, recent), isHot(b.n, recent)
	switch {
	case s.p.Settings.(policies.Probing).Latency == policies.Unused || hotA && hotB:
		return cmp.Compare(a.n, b.n)
	case hotA != hotB:
		return 2*b2i(hotA) - 1
	}
	return cmp.Or(cmp.Compare(a.latency, b.latency), cmp.Compare(a.n, b.n))
}

// bestOf is the first of the best.
func (s *slow) bestOf(pool []known, recent []int) int {
	best := 0
	for i := range pool {
		if s.rank(pool[i], pool[best], recent) < 0 {
			best = i
		}
	}
	return best
}

func (s *slow) probes() {
	set := s.p.Settings.(policies.Probing)
	word := sim.NewDraws(s.seed, sim.ProbeStream)
	pools, recent := make([][]known, s.farm.LBs), make([][]int, s.farm.LBs)
	turns := make([]int, s.farm.LBs)
	memory := make([][][2]float64, len(s.hosts)) // in flight, latency
	s.accepted = func(r *flow) { r.before = s.hosts[r.Server].taken }
	s.served = func(r *flow) {
		memory[r.Server] = append(memory[r.Server], [2]float64{float64(r.before), float64(s.now - r.begun)})
	}
	n := len(s.hosts)
	uses := func(word uint64) int {
		gain := (1-float64(policies.PoolSize)/float64(n))*policies.ProbesAsync - policies.PoolRemove
		if gain <= 0 {
			return math.MaxInt
		}
		b := max(1, (1+policies.PoolDelta)/gain)
		return int(math.Floor(b)) + b2i(float64(word>>11)/(1<<53) < b-math.Floor(b))
	}
	latency := func(a known) float64 {
		h := s.hosts[a.server]
		switch set.Latency {
		case policies.Perfect:
			return a.alone * h.queueing(float64(a.n+1))
		case policies.Unused:
			return 0
		}
		return nearest(memory[a.server], float64(a.n+1))
	}
	send := func(r *flow, count int, came func(known)) int {
		count = min(count, n)
		for i, server := range drawn(word.At(r.number*policies.ProbeWords), n, count) {
			w := word.At(r.number*policies.ProbeWords + uint64(1+2*i))
			span := func(part uint64) int64 {
				return int64(s.farm.HopMin) + int64(part*uint64(s.farm.HopMax-s.farm.HopMin)>>32)
			}
			s.after(span(w>>32), 2, func() {
				h := s.hosts[server]
				a := known{server: server, n: h.taken, alone: float64(s.work.Service.Mean) / h.cpu.speed}
				a.latency = latency(a)
				s.after(span(w&0xffffffff), 2, func() {
					a.at, a.uses = s.now, uses(word.At(r.number*policies.ProbeWords+uint64(2+2*i)))
					recent[r.LB] = append(recent[r.LB], a.n)
					came(a)
				})
			})
		}
		return count
	}
	if set.Sync {
		s.ask = func(r *flow, next func()) {
			var answers []known
			wanted := max(1, min(policies.ProbesSync, n)-1)
			send(r, policies.ProbesSync, func(a known) {
				if answers = append(answers, a); len(answers) == wanted {
					r.asked = answers[s.bestOf(answers, recent[r.LB])].server
					next()
				}
			})
		}
		s.choose = func(_ int, r *flow) int { return r.asked }
		return
	}
	s.choose = func(lb int, r *flow) int {
		pool := slices.DeleteFunc(pools[lb], func(a known) bool { return s.now-a.at > int64(time.Second) })
		server := sim.Below(r.hash, n)
		if len(pool) >= 2 {
			at := s.bestOf(pool, recent[lb])
			server = pool[at].server
			if pool[at].uses--; pool[at].uses == 0 {
				pool = slices.Delete(pool, at, at+1)
			}
			for i := range pool {
				pool[i].n += b2i(pool[i].server == server)
				if set.Latency == policies.Perfect {
					pool[i].latency = latency(pool[i])
				}
			}
		}
		send(r, policies.ProbesAsync, func(a known) {
			pools[lb] = append(pools[lb], a)
			pools[lb] = pools[lb][max(0, len(pools[lb])-policies.PoolSize):]
		})
		if len(pool) > 0 {
			at := 0
			if turns[lb]%2 == 1 {
				for i := range pool {
					if s.rank(pool[i], pool[at], recent[lb]) > 0 {
						at = i
					}
				}
			}
			pool = slices.Delete(pool, at, at+1)
			turns[lb]++
		}
		pools[lb] = pool
		return server
	}
}

// nearest is the median latency of at least five of the last requests, those with the
// nearest numbers in flight.
func nearest(all [][2]float64, n float64) float64 {
	all = all[max(0, len(all)-policies.LatencyMemory):]
	for distance := 0.0; len(all) > 0; distance++ {
		var near []float64
		for _, x := range all {
			if math.Abs(x[0]-n) <= distance {
				near = append(near, x[1]*n/x[0])
			}
		}
		if len(near) >= min(policies.LatencyFewest, len(all)) {
			slices.Sort(near)
			return near[len(near)/2]
		}
	}
	return 0
}

// antagonize changes the speed of every server again and again.
func (s *slow) antagonize() {
	a, rng := s.farm.Antagonists, rand.New(rand.NewPCG(s.seed, sim.RivalStream))
	var change func(h *host)
	change = func(h *host) {
		idle, share, was := rng.Float64(), rng.Float64(), h.cpu.speed
		h.cpu.speed = h.Pace() * (1 - a.Least - share*(a.Most-a.Least))
		if idle < a.Idle {
			h.cpu.speed = h.Pace()
		}
		if s.slowed != nil {
			s.slowed(h, was)
		}
		s.after(int64(rng.ExpFloat64()*float64(a.Every)), 2, func() { change(h) })
	}
	for _, h := range s.hosts {
		change(h)
	}
}

// flood sends SYNs with forged sources until the last request has come.
func (s *slow) flood() {
	rng := rand.New(rand.NewPCG(s.seed, sim.FloodStream))
	gap := 1e9 / (s.farm.Flood.Times * s.work.Arrivals.MeanRate())
	var next func()
	next = func() {
		s.after(int64(rng.ExpFloat64()*gap), 2, func() {
			if !slices.ContainsFunc(s.todo, func(e errand) bool { return e.rank == 0 }) {
				return
			}
			r := &flow{forged: true}
			r.LB = sim.Below(rng.Uint64(), s.farm.LBs)
			r.word = rng.Uint64()
			r.hash = policy.Mix(r.word)
			s.spoofed(r)
			s.after(int64(s.farm.Flood.Expires), 2, func() { s.expired(r) })
			next()
		})
	}
	next()
}
