package control

import (
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"proffer/dataplane"
	"proffer/policy"
	"proffer/topo"
)

// learning is a service that learns, of servers with these weights.
func learning(d topo.Dispatch, weights ...int) *topo.Service {
	svc := &topo.Service{Name: "web", Dispatch: d, LearnEvery: time.Second / 2}
	for i, w := range weights {
		locator := netip.AddrFrom16([16]byte{0xfd, 7: byte(i)})
		svc.Servers = append(svc.Servers, topo.Server{Name: string(rune('a' + i)), Locator: netip.PrefixFrom(locator, 64), Weight: w})
	}
	return svc
}

// farmOf is a farm of which server i's flows last so long, in the mean; 0: it ends none.
type farmOf struct {
	rng   *rand.Rand
	means []time.Duration
	begun []uint32
	lived []uint32
	lives float64 // part of the flows that come to life
}

func (f *farmOf) seats(ended int) (all []dataplane.Seat) {
	for i, mean := range f.means {
		f.begun[i] += 20
		f.lived[i] += uint32(20 * f.lives)
		s := dataplane.Seat{Ready: true, Begun: f.begun[i], Lived: f.lived[i], Established: 2}
		for range ended {
			if mean > 0 {
				s.Durations = append(s.Durations, time.Duration(f.rng.ExpFloat64()*float64(mean)))
			}
		}
		all = append(all, s)
	}
	return all
}

// run lets a learner meet a farm for some steps.
func (f *farmOf) run(l *Learner, from time.Duration, steps, ended int) (now time.Duration, spread dataplane.Spread) {
	for now = from; now < from+time.Duration(steps)*l.svc.LearnEvery; now += 100 * time.Millisecond {
		l.Observe(now, f.seats(ended), f.rng.Uint64)
		if l.Due(now) {
			spread = l.Step(now)
		}
	}
	return now, spread
}

func newFarm(means ...time.Duration) *farmOf {
	return &farmOf{rng: rand.New(rand.NewPCG(8, 8)), means: means, begun: make([]uint32, len(means)), lived: make([]uint32, len(means)), lives: 1}
}

// TestLearnsSpeeds: servers with flows that last longer have weights as HLB's softmax has them; a
// server without samples is the average one, and each has its reason.
func TestLearnsSpeeds(t *testing.T) {
	l := NewLearner(learning(topo.Learned, 1, 1, 1, 1, 0), nil)
	farm := newFarm(100*time.Millisecond, 100*time.Millisecond, 400*time.Millisecond, 0, 200*time.Millisecond)
	_, spread := farm.run(l, 0, 120, 10)
	all := l.Learned()
	// Of the mean 200 ms: e^-0.5, e^-0.5, e^-2, e^-1 and the same.
	for i, want := range []float64{1, 1, math.Exp(1.5), math.Exp(0.5)} {
		if got := float64(spread.Inverses[i]) / policy.InverseOne; math.Abs(got-want) > want/5 {
			t.Errorf("server %d has inverse %.2f, want about %.2f", i, got, want)
		}
	}
	for i, want := range []string{"of the average", "of the average", "of the average", "no samples: average assumed", "draining: no new flows"} {
		if !strings.Contains(all[i].Why, want) {
			t.Errorf("server %d: %q, want %q", i, all[i].Why, want)
		}
	}
	if spread.Inverses[4] != policy.NoInverse || all[4].Weight != 0 {
		t.Errorf("a server that drains: inverse %d, weight %v", spread.Inverses[4], all[4].Weight)
	}
	if want := 10 * time.Second; spread.Silent != want {
		t.Errorf("flows are silent after %v, want %v", spread.Silent, want)
	}
	// A background load halves the fast servers' speed.
	farm.means = []time.Duration{200 * time.Millisecond, 200 * time.Millisecond, 200 * time.Millisecond, 0, 200 * time.Millisecond}
	_, spread = farm.run(l, time.Minute, 400, 10)
	for i, inverse := range spread.Inverses[:3] {
		if ratio := float64(inverse) / policy.InverseOne; ratio > 1.25 {
			t.Errorf("servers are alike by now, and server %d has inverse %.2f", i, ratio)
		}
	}
}

// TestIdleFarm: without new samples nothing changes.
func TestIdleFarm(t *testing.T) {
	l := NewLearner(learning(topo.Learned, 1, 1), nil)
	farm := newFarm(100*time.Millisecond, 300*time.Millisecond)
	now, _ := farm.run(l, 0, 10, 10)
	now, before := farm.run(l, now, 2, 0) // the last samples have their step
	learned := l.Learned()
	_, after := farm.run(l, now, 1000, 0)
	if !slices.Equal(before.Inverses, after.Inverses) || l.Learned()[0].Learned != learned[0].Learned {
		t.Errorf("an idle farm drifts: %v, then %v", before, after)
	}
}

// TestPoolOfLearner: servers that stay keep their states; a server that joins is the average
// one; one without a next hop gets no new flows until it has one.
func TestPoolOfLearner(t *testing.T) {
	svc := learning(topo.Learned, 1, 1, 1, 1)
	before := NewLearner(svc, nil)
	farm := newFarm(100*time.Millisecond, 100*time.Millisecond, 400*time.Millisecond, 200*time.Millisecond)
	farm.run(before, 0, 60, 10)
	next := *svc
	next.Servers = []topo.Server{svc.Servers[2], svc.Servers[0], learning(topo.Learned, 1, 1, 1, 1, 1).Servers[4]}
	l := NewLearner(&next, before)
	if l.Learned()[0].Learned != before.Learned()[2].Learned || l.Learned()[1].Learned != before.Learned()[0].Learned {
		t.Errorf("%+v after a change of the pool, and before it %+v", l.Learned(), before.Learned())
	}
	farm = newFarm(400*time.Millisecond, 100*time.Millisecond, 0)
	_, spread := farm.run(l, time.Minute, 4, 10)
	if in := spread.Inverses; in[1] != policy.InverseOne || in[2] <= in[1] || in[0] <= in[2] {
		t.Errorf("inverses %v; want the second least, and the third, which is new, in between", in)
	}
	seats := farm.seats(0)
	seats[1].Ready = false
	l.Observe(2*time.Minute, seats, rand.Uint64)
	if in := l.Step(2 * time.Minute).Inverses; in[1] != policy.NoInverse || in[2] != policy.InverseOne {
		t.Errorf("inverses %v, where the second server has no next hop", in)
	}
	if why := l.Learned()[1].Why; why != "no next hop: no new flows" {
		t.Error(why)
	}
	l.Observe(3*time.Minute, farm.seats(0), rand.Uint64)
	if in := l.Step(3 * time.Minute).Inverses; in[1] != policy.InverseOne {
		t.Errorf("inverses %v, where it has one again", in)
	}
}

// TestFlood: embryonic flows count while most come to life, and not in a flood of SYNs; literally
// they never do.
func TestFlood(t *testing.T) {
	farm := newFarm(100*time.Millisecond, 100*time.Millisecond)
	for _, c := range []struct {
		dispatch      topo.Dispatch
		calm, flooded topo.Counting
	}{
		{topo.Learned, topo.AllCounting, topo.FloodCounting},
		{topo.LearnedLiteral, topo.LiteralCounting, topo.LiteralCounting},
	} {
		l := NewLearner(learning(c.dispatch, 1, 1), nil)
		now := time.Duration(0)
		for _, part := range []struct {
			lives float64
			want  topo.Counting
		}{{0.9, c.calm}, {0.6, c.calm}, {0.2, c.flooded}, {0.6, c.flooded}, {0.9, c.calm}, {0, c.flooded}} {
			farm.begun = []uint32{1<<32 - 100, 1 << 20} // one wraps
			farm.lived = slices.Clone(farm.begun)
			farm.lives = part.lives
			l.read = false
			var spread dataplane.Spread
			if now, spread = farm.run(l, now, 6, 1); spread.Counting != part.want {
				t.Errorf("%v, %v of the flows come to life: counting %v, want %v", c.dispatch, part.lives, spread.Counting, part.want)
			}
		}
	}
}

// TestOneServer: in every mode, a service with one server, or with none that takes flows, has no
// division by zero.
func TestOneServer(t *testing.T) {
	for _, d := range topo.Dispatches() {
		if !d.Seats() {
			continue
		}
		for _, weights := range [][]int{{}, {1}, {0}, {0, 0}} {
			l := NewLearner(learning(d, weights...), nil)
			farm := newFarm(make([]time.Duration, len(weights))...)
			_, spread := farm.run(l, 0, 3, 1)
			for i, inverse := range spread.Inverses {
				if want := uint32(weights[i] * policy.InverseOne); inverse != want || l.Learned()[i].Weight != float64(weights[i]) {
					t.Errorf("%v, weights %v: inverse %d and weight %v, want %d", d, weights, inverse, l.Learned()[i].Weight, want)
				}
			}
			if rows := policy.Alias(spread.Shares); len(rows) > 0 && (len(rows) != 1 || weights[0] == 0) {
				t.Errorf("%v, weights %v: rows %v", d, weights, rows)
			}
		}
	}
}

// TestStatedWeights: without learning, weights are alike or the configured ones, whichever durations
// flows have; shares go with the modes that deal by them.
func TestStatedWeights(t *testing.T) {
	for d, want := range map[topo.Dispatch]dataplane.Spread{
		topo.Lsq:  {Inverses: []uint32{1 << 16, 1 << 16, 0}},
		topo.Sed:  {Inverses: []uint32{3 << 16, 1 << 16, 0}},
		topo.Sed2: {Inverses: []uint32{3 << 16, 1 << 16, 0}, Shares: []float64{1, 1, 0}},
		topo.Ecmp: {Inverses: []uint32{1 << 16, 1 << 16, 0}, Shares: []float64{0.5, 0.5, 0}},
		topo.Wcmp: {Inverses: []uint32{3 << 16, 1 << 16, 0}, Shares: []float64{0.25, 0.75, 0}},
	} {
		svc := learning(d, 1, 3, 0)
		svc.LearnEvery = 0
		l := NewLearner(svc, NewLearner(learning(topo.Learned, 1, 3, 0), nil))
		farm := newFarm(time.Second, 3*time.Second, time.Second)
		l.Observe(0, farm.seats(10), farm.rng.Uint64)
		spread := l.Step(0)
		if !slices.Equal(spread.Inverses, want.Inverses) || !slices.Equal(spread.Shares, want.Shares) {
			t.Errorf("%v: %+v, want %+v", d, spread, want)
		}
		if all := l.Learned(); all[0].Samples != 10 || all[2].Weight != 0 || all[2].Why != "draining: no new flows" || all[0].Why == "" {
			t.Errorf("%v: %+v", d, all)
		}
		if l.Due(stepEvery-1) || !l.Due(stepEvery) {
			t.Errorf("%v: the next step is not due after %v", d, stepEvery)
		}
	}
}

// TestOwed: a server that gets no flows is owed one, unless it drains, flows are spread by established
// ones alone, or the mode learns nothing or as published.
func TestOwed(t *testing.T) {
	for _, c := range []struct {
		mode  topo.Dispatch
		lives float64
		want  []int
	}{
		{topo.Learned, 1, []int{1}}, {topo.Learned2, 1, []int{1}}, {topo.Learned, 0.1, nil},
		{topo.LearnedLiteral, 1, nil}, {topo.LearnedAges, 1, nil}, {topo.Sed, 1, nil},
	} {
		l := NewLearner(learning(c.mode, 1, 1, 0), nil)
		farm := newFarm(100*time.Millisecond, 100*time.Millisecond, 0)
		farm.lives = c.lives
		farm.begun[1], farm.lived[1] = 1<<31, 1<<31
		starve := func() {
			for i := range 2 {
				farm.begun[1+i] -= 20
				farm.lived[1+i] -= uint32(20 * c.lives)
			}
		}
		var spread dataplane.Spread
		for now := time.Duration(0); now < 20*time.Second; now += 100 * time.Millisecond {
			starve()
			if l.Observe(now, farm.seats(1), rand.Uint64); l.Due(now) {
				spread = l.Step(now)
			}
		}
		if !slices.Equal(spread.Owed, c.want) {
			t.Errorf("%v, %v of the flows come to life: servers %v are owed a flow, want %v", c.mode, c.lives, spread.Owed, c.want)
		}
	}
}

// TestSlowService: no flow is silent before eight times the mean of the slowest server.
func TestSlowService(t *testing.T) {
	l := NewLearner(learning(topo.Learned, 1, 1), nil)
	if _, spread := newFarm(0, 0).run(l, 0, 1, 0); spread.Silent != 0 {
		t.Errorf("flows are silent after %v, and no duration is known", spread.Silent)
	}
	_, spread := newFarm(time.Second, 9*time.Second).run(l, time.Minute, 20, 10)
	if spread.Silent < 65*time.Second || spread.Silent > 95*time.Second {
		t.Errorf("flows are silent after %v, want about 80 s", spread.Silent)
	}
}

// TestPublishedFilter: a measurement moves the filters of learned a good part of the way, those of
// the paper's two modes little.
func TestPublishedFilter(t *testing.T) {
	for mode, want := range map[topo.Dispatch][2]float64{
		topo.Learned: {0.1, 0.5}, topo.LearnedLiteral: {0, 0.05}, topo.LearnedAges: {0, 0.05},
	} {
		l := NewLearner(learning(mode, 1, 1), nil)
		newFarm(100*time.Millisecond, 200*time.Millisecond).run(l, 0, 200, 10)
		if got := l.Gain(); got < want[0] || got > want[1] {
			t.Errorf("%v: gain %.3f, want %v to %v", mode, got, want[0], want[1])
		}
	}
}

// TestLearnerByAddress: servers without locators, as over layer 2, keep each its own state.
func TestLearnerByAddress(t *testing.T) {
	svc := learning(topo.Learned, 1, 1, 1)
	for i := range svc.Servers {
		svc.Servers[i].Locator, svc.Servers[i].Address = netip.Prefix{}, netip.AddrFrom4([4]byte{10, 0, 1, byte(i)})
	}
	before := NewLearner(svc, nil)
	newFarm(100*time.Millisecond, 200*time.Millisecond, 400*time.Millisecond).run(before, 0, 60, 10)
	after := NewLearner(svc, before)
	for i, was := range before.Learned() {
		if got := after.Learned()[i].Learned; got != was.Learned {
			t.Errorf("server %d has %+v, and had %+v", i, got, was.Learned)
		}
	}
}
