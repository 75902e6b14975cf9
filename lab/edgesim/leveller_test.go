package edgesim

import (
	"math"
	"testing"
	"time"

	"proffer/weights"
)

// The rule beyond the paper: weights.Leveller, where the published and the tuned gains
// fail by turns (docs/design/edge.md).

var (
	levelled  = Policy{Kind: Model, Learns: true}
	published = Policy{Kind: Model, PID: weights.PublishedGains()}
	tuned     = Policy{Kind: Model, PID: weights.TunedGains()}
)

// TestElephantIsLevelled: Figure 4 at 47 %, the elephant coming after a second. The issue
// asks for half a second, 3 % and 1.2 times the throughput of round robin.
func TestElephantIsLevelled(t *testing.T) {
	for seed := uint64(1); seed <= 2; seed++ {
		f, traffic := Heterogeneous(0.47)
		traffic.For, traffic.Classes[0].From = 3*time.Second, time.Second
		got := run(t, f, levelled, traffic, seed)
		s := Settle(got.Samples, time.Second, 0.03)
		if s.Level > 0.5 || s.Apart > 0.03 {
			t.Errorf("seed %d: level after %.2f s, want .5; then %.3f apart, want .03", seed, s.Level, s.Apart)
		}
		static := run(t, f, Policy{Kind: Static}, traffic, seed)
		if got.Rate < 1.2*static.Rate*0.98 || got.Latency > static.Latency/3 {
			t.Errorf("seed %d: %.0f packets/s at %v, round robin's %.0f at %v", seed, got.Rate, got.Latency, static.Rate, static.Latency)
		}
		monitor := run(t, f, Policy{Kind: Monitor, PID: weights.PublishedGains(), Noise: ReportNoise}, traffic, seed)
		if m := Settle(monitor.Samples, time.Second, 0.03); s.Unrest > m.Unrest/2 {
			t.Errorf("seed %d: weights move by %.3f, monitor's by %.3f", seed, s.Unrest, m.Unrest)
		}
	}
}

// TestReplicaIsLevelled: Figure 5 levels as fast as flows can bring it about, and stays
// level. The least time is that of all new flows to the new server: flows alike level
// in a third of their life.
func TestReplicaIsLevelled(t *testing.T) {
	for _, tail := range []float64{0, Tail} {
		f, traffic := Dynamic(tail)
		traffic.WarmUp = 15 * time.Second
		got := run(t, f, levelled, traffic, seed)
		least := (Lifetime/3 + LevelOver).Seconds() // all to the new server, until then
		if level := Level(got.Samples); level > least+0.1 {
			t.Errorf("tail %v: level after %.2f s, the least is about %.2f", tail, level, least)
		}
		if got.Apart > 0.04 {
			t.Errorf("tail %v: then %.3f apart: a flow is .025", tail, got.Apart)
		}
	}
}

// TestLives: from lives of 20 ms to 3 s the rule is level soon and stays so, as neither
// form of the PID does.
func TestLives(t *testing.T) {
	lives := []time.Duration{20 * time.Millisecond, 300 * time.Millisecond, 3 * time.Second}
	settle := func(p Policy, life time.Duration) (worst Settling) {
		for seed := uint64(1); seed <= 2; seed++ {
			f, traffic, comes := Arrival(2, life, 0)
			s := Settle(run(t, f, p, traffic, seed).Samples, comes, 0.03)
			worst = Settling{max(worst.Level, s.Level), max(worst.Apart, s.Apart), max(worst.Unrest, s.Unrest)}
		}
		return worst
	}
	for _, life := range lives {
		// The elephant's core has mice of .45 and wants .2 of them, so it waits until
		// more than half have ended.
		s := settle(levelled, life)
		if limit := 0.4 + 0.6*life.Seconds(); s.Level > limit || s.Apart > 0.04 {
			t.Errorf("lives of %v: level after %.2f s, want %.2f; then %.3f apart", life, s.Level, limit, s.Apart)
		}
	}
	if short := settle(tuned, lives[0]); short.Level < 1 {
		t.Errorf("the tuned gains level short flows in %.2f s: the rule has no reason", short.Level)
	}
	if long := settle(published, lives[2]); long.Apart < 0.1 {
		t.Errorf("the published gains keep long flows %.3f apart: the rule has no reason", long.Apart)
	}
}

// TestSeveralLBs: an LB with few mice cannot level an elephant by them alone. With the
// loads of all, all new flows of all LBs do it, and none overdoes it.
func TestSeveralLBs(t *testing.T) {
	f, traffic, comes := Arrival(2, 20*time.Millisecond, 2)
	f.LBs = 4
	alone := Settle(run(t, f, levelled, traffic, seed).Samples, comes, 0.03)
	f.Shared = true
	shared := Settle(run(t, f, levelled, traffic, seed).Samples, comes, 0.03)
	if !math.IsInf(alone.Level, 1) {
		t.Errorf("alone, LBs level an elephant in %.2f s with a quarter of the mice each", alone.Level)
	}
	if shared.Level > 0.5 || shared.Apart > 0.05 {
		t.Errorf("with each other's loads LBs level in %.2f s, then %.3f apart", shared.Level, shared.Apart)
	}
}

// TestUnequalServers: servers that cost more get fewer flows, so that loads are level.
func TestUnequalServers(t *testing.T) {
	f, traffic, comes := Arrival(4, 20*time.Millisecond, 0)
	for i := range f.Servers {
		f.Servers[i].Cost = []time.Duration{time.Duration(8+i) * time.Microsecond}
	}
	s := Settle(run(t, f, levelled, traffic, seed).Samples, comes, 0.03)
	if s.Level > 0.5 || s.Apart > 0.05 {
		t.Errorf("level after %.2f s, then %.3f apart", s.Level, s.Apart)
	}
}

// TestTurnsAreLevelled: the same weights by chance leave the servers further apart.
func TestTurnsAreLevelled(t *testing.T) {
	f, traffic, comes := Arrival(8, 20*time.Millisecond, 0)
	random := levelled
	random.Random = true
	turns := Settle(run(t, f, levelled, traffic, seed).Samples, comes, 0.03)
	chance := Settle(run(t, f, random, traffic, seed).Samples, comes, 0.03)
	if turns.Apart > 0.03 || chance.Apart < 2*turns.Apart {
		t.Errorf("servers are %.3f apart by turns, %.3f by chance", turns.Apart, chance.Apart)
	}
}
