package proof

import (
	"math"
	"slices"

	"proffer/lab/sim"
	"proffer/lab/sim/policies"
	"proffer/policy"
	"proffer/topo"
)

// The slow twins of the policies that hunt.

func (s *slow) hunt() {
	var acceptors []*policy.Acceptor
	for _, h := range s.hosts {
		a := &policy.Acceptor{Acceptance: s.p.Settings.(policies.Acceptor).Acceptance, Threshold: uint32(s.p.Settings.(policies.Acceptor).Threshold)}
		if s.p.Settings.(policies.Acceptor).Acceptance == topo.Dynamic {
			a = &policy.Acceptor{Acceptance: topo.Dynamic, Threshold: 1, Window: 50, Epsilon: 0.1, Workers: uint32(h.Workers)}
			if h.Discipline == sim.FIFO {
				a.Workers = uint32(h.Room())
			}
		}
		acceptors = append(acceptors, a)
	}
	s.lists = func(r *flow) []int { return policy.Candidates(r.hash, len(s.hosts), 2) }
	s.asked = func(_ *flow, at int, last bool) (bool, int) {
		return last || acceptors[at].Offer(uint32(s.hosts[at].taken)), sim.None
	}
}

// drawn is policy.Candidates without its limit of four.
func drawn(hash uint64, members, n int) (list []int) {
	var left []int
	for i := range members {
		left = append(left, i)
	}
	for i := range n {
		at := int(policy.Mix(hash+uint64(i+1)*sim.Golden) >> 32 * uint64(members-i) >> 32)
		list = append(list, left[at])
		left = slices.Delete(left, at, at+1)
	}
	return list
}

// metric is docs/design/guided.md, "Report", by math.Log2.
func (h *host) metric() uint8 {
	if h.mean.Mean == 0 {
		return 0
	}
	return uint8(min(254, max(0, math.Floor(8*math.Log2(h.mean.Mean*h.queueing(float64(h.taken+1))/1000)))))
}

// queueing is how much longer than alone the last of n requests takes.
func (h *host) queueing(n float64) float64 {
	k := float64(h.Cores)
	if h.Discipline == sim.FIFO {
		return 1 + max(0, n-k)/k
	}
	return max(1, n/k)
}

func (s *slow) guide() {
	type token struct {
		server int
		metric uint8
	}
	known := make([][]token, s.farm.LBs) // oldest first
	s.heard = func(lb, server int, metric uint8, idle bool) {
		own := func(k token) bool { return k.server == server }
		if !idle {
			known[lb] = slices.DeleteFunc(known[lb], own)
			return
		}
		known[lb] = append(known[lb], token{server, metric})
		count := 0
		for _, k := range known[lb] {
			if own(k) {
				count++
			}
		}
		if oldest := slices.IndexFunc(known[lb], own); count > s.hosts[server].Cores {
			known[lb] = slices.Delete(known[lb], oldest, oldest+1)
		}
	}
	s.lists = func(r *flow) []int {
		list := drawn(r.hash, len(s.hosts), s.p.Choices)
		least := 255
		for _, k := range known[r.LB] {
			least = min(least, int(k.metric))
		}
		for i := len(known[r.LB]) - 1; i >= 0; i-- {
			k := known[r.LB][i]
			if int(k.metric) > least+2 {
				continue
			}
			known[r.LB] = slices.Delete(known[r.LB], i, i+1)
			list = slices.DeleteFunc(list, func(x int) bool { return x == k.server })
			return slices.Insert(list, 0, k.server)[:s.p.Choices]
		}
		return list
	}
	s.asked = func(r *flow, at int, last bool) (bool, int) {
		h := s.hosts[at]
		if h.taken < h.Cores {
			return true, sim.None
		}
		r.metrics = append(r.metrics, h.metric())
		best := slices.Index(r.metrics, slices.Min(r.metrics))
		return last && best == len(r.metrics)-1, r.list[best]
	}
}
