package proof

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"proffer/lab/sim"
	"proffer/lab/sim/learned"
	"proffer/policy"
	"proffer/weights"
)

// The slow twins of the policies that count an LB's flows.

// counting gives the flows of each LB at each server, counted singly.
func (s *slow) counting(best func(func(int, int) float64) func(int, *flow) int, weight func(lb, server int) float64) *[]*flow {
	var table []*flow
	moved := func(r *flow) {
		if s.moved != nil {
			s.moved(r)
		}
	}
	begin := func(r *flow) {
		table = append(table, r)
		moved(r)
	}
	end := func(r *flow) {
		table = slices.DeleteFunc(table, func(x *flow) bool { return x == r })
		moved(r)
	}
	s.begun, s.ended = begin, end
	s.choose = best(func(lb, server int) float64 {
		n := 1.0
		for _, r := range table {
			if r.LB == lb && r.Server == server {
				n++
			}
		}
		return n / weight(lb, server)
	})
	s.spoofed = func(r *flow) {
		r.Server = s.choose(r.LB, r)
		begin(r)
	}
	s.expired = end
	return &table
}

// inTurn is best of a list of servers, of which the one whose flows changed goes to the end.
func (s *slow) inTurn() func(func(int, int) float64) func(int, *flow) int {
	lists, rng := make([][]int, s.farm.LBs), rand.New(rand.NewPCG(s.seed, sim.TurnStream))
	for lb := range lists {
		lists[lb] = rng.Perm(len(s.hosts))
	}
	s.moved = func(r *flow) {
		rest := slices.DeleteFunc(lists[r.LB], func(server int) bool { return server == r.Server })
		lists[r.LB] = append(rest, r.Server)
	}
	return func(key func(int, int) float64) func(int, *flow) int {
		return func(lb int, _ *flow) int {
			return slices.MinFunc(lists[lb], func(a, b int) int { return cmp.Compare(key(lb, a), key(lb, b)) })
		}
	}
}

func (s *slow) learned(best func(func(int, int) float64) func(int, *flow) int) {
	type view struct {
		weigher *weights.Filter
		drawn   []int64
	}
	var lbs []view
	chosen := s.p.Settings.(learned.Learning)
	for range s.farm.LBs {
		lbs = append(lbs, view{weigher: weights.NewFilter(len(s.hosts), chosen.Filter()), drawn: make([]int64, len(s.hosts))})
	}
	weight := func(lb, server int) float64 { return lbs[lb].weigher.Weights(0)[server] }
	if !s.p.TwoChoices {
		best = s.inTurn()
	}
	table := s.counting(best, weight)
	rng := newPacketRNG(s.seed)
	packets := func(lb, server int) { // that have come since the last look
		var since []int64
		for _, r := range *table {
			if r.LB == lb && r.Server == server && !r.forged {
				since = append(since, r.opened)
			}
		}
		for at := lbs[lb].drawn[server]; len(since) > 0 && !chosen.Completed; {
			at += int64(rng.ExpFloat64() / (s.work.PacketRate / 1e9 * float64(len(since))))
			if at >= s.now {
				break
			}
			word := rng.Uint64()
			begun := since[int(word&0xffffffff)*len(since)>>32]
			lbs[lb].weigher.Observe(0, weights.Sample{Server: server, Value: float64(at - begun), Random: word})
		}
		lbs[lb].drawn[server] = s.now
	}
	begun, ended := s.begun, s.ended
	s.begun = func(r *flow) { packets(r.LB, r.Server); begun(r) }
	random, drawn := sim.NewDraws(s.seed, sim.PacketStream), uint64(0)
	s.ended = func(r *flow) {
		packets(r.LB, r.Server)
		ended(r)
		if chosen.Completed {
			drawn++
			lbs[r.LB].weigher.Observe(0, weights.Sample{Server: r.Server, Value: float64(s.now - r.opened), Random: random.At(drawn)})
		}
	}
	judge := func() {}
	switch chosen.From {
	case learned.AtData:
		s.literally()
	case learned.AtSYN:
		judge = s.watchfully(table, weight)
	}
	s.every(learned.StepLength, func() {
		for lb := range lbs {
			for server := range s.hosts {
				packets(lb, server)
			}
		}
		for _, v := range lbs {
			v.weigher.Weights(time.Duration(s.now))
		}
		judge()
	})
}

// literally lets flows begin at their first data packet.
func (s *slow) literally() {
	begun, ended := s.begun, s.ended
	s.begun = func(*flow) {}
	s.alive = begun
	s.ended = func(r *flow) {
		if r.alive {
			ended(r)
		}
	}
	s.spoofed = func(*flow) {}
	s.expired = func(*flow) {}
}

// watchfully leaves embryonic flows out where most SYNs do not come to life. The
// result looks for a flood.
func (s *slow) watchfully(table *[]*flow, weight func(lb, server int) float64) func() {
	type tally struct {
		syns, lives float64
		flooded     bool
	}
	lbs := make([]tally, s.farm.LBs)
	usual, begun, spoofed := s.choose, s.begun, s.spoofed
	s.choose = func(lb int, r *flow) int {
		if !lbs[lb].flooded {
			return usual(lb, r)
		}
		score := func(server int) float64 {
			n := 1.0
			for _, x := range *table {
				if x.LB == lb && x.Server == server && x.alive {
					n++
				}
			}
			return n / weight(lb, server)
		}
		word := r.word
		drawn := []int{sim.Below(word, len(s.hosts))}
		for len(drawn) < learned.FloodChoices(len(s.hosts)) {
			word = policy.Mix(word + sim.Golden)
			drawn = append(drawn, sim.Below(word, len(s.hosts)))
		}
		return slices.MinFunc(drawn, func(a, b int) int {
			if score(a) < score(b) {
				return -1
			}
			return 1 - b2i(score(a) == score(b))
		})
	}
	s.begun = func(r *flow) { lbs[r.LB].syns++; begun(r) }
	s.alive = func(r *flow) { lbs[r.LB].lives++ }
	s.spoofed = func(r *flow) {
		lbs[r.LB].syns++
		spoofed(r)
	}
	return func() {
		for lb, t := range lbs {
			switch {
			case t.syns < 32, t.lives >= 0.7*t.syns:
				lbs[lb].flooded = false
			case t.lives < 0.5*t.syns:
				lbs[lb].flooded = true
			}
			lbs[lb].syns, lbs[lb].lives = t.syns/2, t.lives/2
		}
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// workLeft is what the oracle knows, request by request.
func (h *host) workLeft(power float64) float64 {
	cpu, disk := 0.0, 0.0
	for _, r := range h.assigned {
		for i, stage := range r.stages {
			if i == 0 && r.waits {
				stage = max(0, r.left)
			}
			if (i%2 == 1) != r.onDisk {
				disk += stage
			} else {
				cpu += stage
			}
		}
	}
	return cpu/power + disk
}
