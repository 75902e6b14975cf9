package sim

import (
	"slices"
	"time"

	"proffer/weights"
)

// The slow twins of the policies that count an LB's flows.

// counting gives the flows of each LB at each server, counted one by one.
func (s *slow) counting(best func(func(int, int) float64) func(int, *flow) int, weight func(lb, server int) float64) *[]*flow {
	var table []*flow
	s.begun = func(r *flow) { table = append(table, r) }
	s.ended = func(r *flow) { table = slices.DeleteFunc(table, func(x *flow) bool { return x == r }) }
	s.choose = best(func(lb, server int) float64 {
		n := 1.0
		for _, r := range table {
			if r.LB == lb && r.Server == server {
				n++
			}
		}
		return n / weight(lb, server)
	})
	return &table
}

func (s *slow) learned(best func(func(int, int) float64) func(int, *flow) int) {
	type view struct {
		weigher *weights.Filter
		drawn   []int64
	}
	var lbs []view
	settings := weights.PublishedFilter()
	settings.Reservoir = s.p.Settings.(learning).reservoir
	if s.p.Settings.(learning).fixedR > 0 {
		settings.Noise, settings.Alpha = s.p.Settings.(learning).fixedR, 0
	}
	for range s.farm.LBs {
		lbs = append(lbs, view{weigher: weights.NewFilter(len(s.hosts), settings), drawn: make([]int64, len(s.hosts))})
	}
	table := s.counting(best, func(lb, server int) float64 { return lbs[lb].weigher.Weights(0)[server] })
	rng := newPacketRNG(s.seed)
	packets := func(lb, server int) { // that have come since the last look
		var since []int64
		for _, r := range *table {
			if r.LB == lb && r.Server == server {
				since = append(since, r.opened)
			}
		}
		for at := lbs[lb].drawn[server]; len(since) > 0 && !s.p.Settings.(learning).completed; {
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
	random, drawn := newDraws(s.seed, packetStream), uint64(0)
	s.ended = func(r *flow) {
		packets(r.LB, r.Server)
		ended(r)
		if s.p.Settings.(learning).completed {
			drawn++
			lbs[r.LB].weigher.Observe(0, weights.Sample{Server: r.Server, Value: float64(s.now - r.opened), Random: random.at(drawn)})
		}
	}
	s.every(stepLength, func() {
		for lb := range lbs {
			for server := range s.hosts {
				packets(lb, server)
			}
		}
		for _, v := range lbs {
			v.weigher.Weights(time.Duration(s.now))
		}
	})
}

// workLeft is what the oracle knows, request by request.
func (h *host) workLeft() float64 {
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
	return cpu/h.Power() + disk
}
