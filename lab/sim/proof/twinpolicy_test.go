package proof

import (
	"cmp"
	"math"
	"slices"
	"time"

	"proffer/lab/sim"
	"proffer/lab/sim/learned"
	"proffer/lab/sim/policies"
)

func dur(ns int64) time.Duration { return time.Duration(ns) }

// install makes the slow twin of the policy.
func (s *slow) install() {
	choice := sim.NewDraws(s.seed, sim.ChoiceStream)
	best := func(key func(lb, server int) float64) func(int, *flow) int {
		return func(lb int, r *flow) int {
			at := func(server int) float64 { return key(lb, server) }
			if s.p.TwoChoices {
				return s.two(r, at)
			}
			return pick(s.keys(at), r.word)
		}
	}
	switch s.p.Base {
	case "single", "ecmp":
		s.choose = func(_ int, r *flow) int { return sim.Below(r.hash, len(s.hosts)) }
	case "rr":
		s.roundRobin(choice)
	case "wrr-feedback":
		s.feedback(choice)
	case "wcmp":
		s.choose = func(_ int, r *flow) int { return s.weighted(r, s.powers(false)) }
	case "awcmp":
		weights := s.powers(false)
		s.every(learned.StepLength, func() { weights = s.powers(true) })
		s.choose = func(_ int, r *flow) int { return s.weighted(r, weights) }
	case "lsq":
		s.counting(best, func(_, _ int) float64 { return 1 })
	case "sed":
		s.counting(best, func(_, server int) float64 { return s.hosts[server].Power() })
	case "learned":
		s.learned(best)
	case "jsq", "gsq2":
		s.choose = best(func(_, server int) float64 { return float64(len(s.hosts[server].assigned)) })
	case "oracle":
		s.choose = func(_ int, r *flow) int {
			at := func(server int) float64 {
				own, h := r.stages[0], s.hosts[server]
				if len(r.stages) > 2 {
					own += r.stages[2]
				}
				power := h.Power()
				if s.farm.Antagonists.Every > 0 {
					power = h.cpu.speed * h.cpu.cores
				}
				return h.workLeft(power) + own/power
			}
			if s.p.TwoChoices {
				return s.two(r, at)
			}
			return pick(s.keys(at), choice.At(r.number))
		}
	case "oraclef":
		s.foresee(choice)
	case "jiq":
		s.idleQueues(choice)
	case "hunt":
		s.hunt()
	case "guided":
		s.guide()
	case "lsqp":
		s.viewed(best, func(n, _ float64, _ *host) float64 { return n })
	case "ledp":
		s.viewed(best, func(n, mean float64, h *host) float64 { return mean * h.queueing(n+1) })
	case "c3":
		s.replicas(best)
	case "prequal":
		s.probes()
	}
}

func (s *slow) roundRobin(choice sim.Draws) {
	next := map[int]int{}
	for lb := range s.farm.LBs {
		next[lb] = sim.Below(choice.At(uint64(lb)), len(s.hosts))
	}
	s.choose = func(lb int, _ *flow) int {
		server := next[lb] % len(s.hosts)
		next[lb]++
		return server
	}
}

func (s *slow) feedback(choice sim.Draws) {
	turns := make([][]float64, s.farm.LBs)
	for lb := range turns {
		turns[lb] = s.keys(func(i int) float64 {
			return float64(choice.At(uint64(lb*len(s.hosts)+i))>>11) / (1 << 53)
		})
	}
	var weights []float64
	poll := func() {
		weights = s.keys(func(i int) float64 {
			h := s.hosts[i]
			busy := float64(min(h.taken, h.InHand())) / float64(h.InHand())
			return 0.1 + 0.9*math.Exp(-8*busy*busy)
		})
	}
	poll()
	s.every(policies.PollInterval, poll)
	s.choose = func(lb int, r *flow) int {
		server := pick(turns[lb], choice.At(r.number))
		turns[lb][server] += 1 / weights[server]
		return server
	}
}

func (s *slow) powers(byLoad bool) []float64 {
	return s.keys(func(i int) float64 {
		if byLoad {
			return s.hosts[i].Power() / (1 + float64(s.hosts[i].taken))
		}
		return s.hosts[i].Power()
	})
}

func (s *slow) weighted(r *flow, weights []float64) int {
	sum := 0.0
	for _, w := range weights {
		sum += w
	}
	x := float64(r.hash>>11) / (1 << 53) * sum
	for i, w := range weights {
		if x -= w; x < 0 {
			return i
		}
	}
	return len(weights) - 1
}

func (s *slow) foresee(choice sim.Draws) {
	free := make([][]float64, len(s.hosts)) // FIFO: of each core
	for i, h := range s.hosts {
		free[i] = make([]float64, h.Cores)
	}
	finish := func(i int, r *flow) float64 {
		h := s.hosts[i]
		if h.Discipline == sim.FIFO {
			return max(slices.Min(free[i]), float64(s.now)) + r.stages[0]/h.Pace()
		}
		return float64(s.now) + h.play(r.stages[0])
	}
	give := func(i int, r *flow) {
		at := slices.Index(free[i], slices.Min(free[i]))
		free[i][at] = max(free[i][at], float64(s.now)) + r.stages[0]/s.hosts[i].cpu.speed
	}
	s.slowed = func(h *host, was float64) {
		for core, at := range free[h.index] {
			if at > float64(s.now) {
				free[h.index][core] = float64(s.now) + (at-float64(s.now))*was/h.cpu.speed
			}
		}
	}
	s.choose = func(_ int, r *flow) int {
		to := 0
		if s.p.TwoChoices {
			to = s.two(r, func(i int) float64 { return finish(i, r) })
		} else {
			to = s.first(r, choice, free, finish)
		}
		if s.hosts[to].Discipline == sim.FIFO {
			give(to, r)
		}
		return to
	}
}

// first is the server with the earliest end. Of equals it is, in each class of
// servers, the first that is free or has the fewest too many, by the word; then
// the class that comes first in the farm; unless no server is free, then the lowest
// number, after those.
func (s *slow) first(r *flow, choice sim.Draws, free [][]float64, finish func(int, *flow) float64) int {
	var classes []policies.Class
	for _, h := range s.hosts {
		if c := (policies.Class{Speed: h.Pace(), Discipline: h.Discipline}); !slices.Contains(classes, c) {
			classes = append(classes, c)
		}
	}
	var heads []int
	crowded := false
	for _, c := range classes {
		rank := func(i int) float64 {
			h := s.hosts[i]
			switch {
			case c != policies.Class{Speed: h.Pace(), Discipline: h.Discipline}:
				return math.Inf(1)
			case h.Discipline == sim.FIFO:
				return slices.Min(free[i])
			}
			return float64(max(0, len(h.assigned)-h.Cores+1))
		}
		head := pick(s.keys(rank), choice.At(r.number))
		crowded = crowded || c.Discipline == sim.Sharing && rank(head) > 0
		heads = append(heads, head)
	}
	if crowded {
		for i := range s.hosts {
			heads = append(heads, i)
		}
	}
	return slices.MinFunc(heads, func(a, b int) int { return cmp.Compare(finish(a, r), finish(b, r)) })
}

// play runs a sharing server forward in small steps, each to the next request to leave.
func (h *host) play(demand float64) float64 {
	var needs []float64
	coming, onTheirWay := 0.0, 0
	for _, r := range h.assigned {
		if r.waits {
			needs = append(needs, r.left)
		} else {
			coming += r.stages[0]
			onTheirWay++
		}
	}
	for range onTheirWay {
		needs = append(needs, coming/float64(onTheirWay))
	}
	took := 0.0
	for demand > 0 {
		n := float64(len(needs) + 1)
		rate := h.Pace() * min(1, float64(h.Cores)/n)
		step := demand
		if len(needs) > 0 {
			step = min(step, slices.Min(needs))
		}
		took += step / rate
		demand -= step
		for i := range needs {
			needs[i] -= step
		}
		needs = slices.DeleteFunc(needs, func(x float64) bool { return x <= 0 })
	}
	return took
}

func (s *slow) idleQueues(choice sim.Draws) {
	queues := make([][]int, s.farm.LBs)
	reported := uint64(0)
	known := make([]int, len(s.hosts)) // idle cores, when last looked at
	look := func() {
		for i, h := range s.hosts {
			idle := max(0, h.Cores-len(h.assigned))
			for ; known[i] < idle; known[i]++ {
				reported++
				lb := sim.Below(choice.At(^reported), len(queues))
				queues[lb] = append(queues[lb], i)
			}
			known[i] = idle
		}
	}
	look()
	s.observe = look
	s.choose = func(lb int, r *flow) int {
		if len(queues[lb]) == 0 {
			return sim.Below(r.hash, len(s.hosts))
		}
		server := queues[lb][0]
		queues[lb] = queues[lb][1:]
		return server
	}
}
