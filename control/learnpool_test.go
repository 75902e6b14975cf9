package control

import (
	"math"
	"slices"
	"testing"
	"time"

	"proffer/policy"
	"proffer/topo"
)

// TestWeightsStay: another pool, as after a reload or while a server is down, begins with the weights
// of the last step; a server that joins is the average one.
func TestWeightsStay(t *testing.T) {
	svc := learning(topo.Learned, 1, 1, 1, 1)
	means := []time.Duration{100 * time.Millisecond, 400 * time.Millisecond, 200 * time.Millisecond, 0}
	before := NewLearner(svc, nil)
	now, _ := newFarm(means...).run(before, 0, 60, 10)
	now, _ = newFarm(means...).run(before, now, 2, 0) // the last samples have their step
	joins := learning(topo.Learned, 1, 1, 1, 1, 1).Servers[4]
	down := svc.Servers[0]
	down.Weight = 0
	s := svc.Servers
	for _, c := range []struct {
		label string
		pool  []topo.Server
		was   []int // each server's number before; -1: it joins
	}{
		{"the same", s, []int{0, 1, 2, 3}},
		{"smaller", s[1:], []int{1, 2, 3}},
		{"larger", append(slices.Clone(s), joins), []int{0, 1, 2, 3, -1}},
		{"in another order", []topo.Server{s[2], s[0], s[3], s[1]}, []int{2, 0, 3, 1}},
		{"one is down", []topo.Server{down, s[1], s[2], s[3]}, []int{0, 1, 2, 3}},
	} {
		next := *svc
		next.Servers = c.pool
		l := NewLearner(&next, before)
		want := make([]float64, len(c.pool))
		for i, j := range c.was {
			if want[i] = math.Exp(-1); j >= 0 {
				want[i] = math.Exp(-before.Learned()[j].Learned.Kalman.Mean)
			}
			if c.pool[i].Weight == 0 {
				want[i] = 0
			}
		}
		for range 3 {
			l.Observe(now, newFarm(make([]time.Duration, len(c.pool))...).seats(0), nil)
			if got := l.Step(now).Inverses; !slices.Equal(got, policy.Inverses(want)) {
				t.Errorf("%s: inverses %v of the pool after, want %v", c.label, got, policy.Inverses(want))
			}
			now += svc.LearnEvery
		}
	}
}

// TestWeightsAfterRestart: a learner without another before it begins with the weights that the data
// plane has, until samples come.
func TestWeightsAfterRestart(t *testing.T) {
	l := NewLearner(learning(topo.Learned, 1, 1, 1, 1), nil)
	farm := newFarm(0, 0, 0, 0)
	left := farm.seats(0)
	for i, inverse := range []uint32{3 << 16, 1 << 16, 2 << 16, policy.NoInverse} {
		left[i].Inverse = inverse
	}
	l.Observe(0, left, nil)
	got := l.Step(time.Second).Inverses
	if !slices.Equal(got[:3], []uint32{3 << 16, 1 << 16, 2 << 16}) {
		t.Errorf("inverses %v, want those that are left", got)
	}
	if got[3] <= got[1] || got[3] >= got[0] {
		t.Errorf("inverses %v; want the last one, of which nothing is known, in between", got)
	}
	farm.means = slices.Repeat([]time.Duration{100 * time.Millisecond}, 4)
	_, spread := farm.run(l, time.Minute, 20, 20)
	for i, inverse := range spread.Inverses {
		if inverse > policy.InverseOne*5/4 {
			t.Errorf("servers are alike by now, and server %d has inverse %d", i, inverse)
		}
	}
}

// TestFloodStays: in a flood of SYNs another pool begins without the embryonic flows, too.
func TestFloodStays(t *testing.T) {
	before := NewLearner(learning(topo.Learned, 1, 1), nil)
	farm := newFarm(100*time.Millisecond, 100*time.Millisecond)
	farm.lives = 0.2
	now, _ := farm.run(before, 0, 6, 1)
	l := NewLearner(learning(topo.Learned, 1, 1, 1), before)
	if got := l.Spread().Counting; got != topo.FloodCounting {
		t.Errorf("counting %v before the first step, want that of before", got)
	}
	farm.means, farm.begun, farm.lived = append(farm.means, 0), append(farm.begun, 0), append(farm.lived, 0)
	l.Observe(now, farm.seats(1), farm.rng.Uint64)
	if got := l.Step(now).Counting; got != topo.FloodCounting {
		t.Errorf("counting %v after the first step", got)
	}
	if got := NewLearner(learning(topo.LearnedLiteral, 1, 1), before).Spread().Counting; got != topo.LiteralCounting {
		t.Errorf("counting %v of another mode", got)
	}
}
