package edgesim

import (
	"math"
	"testing"
	"time"

	"proffer/weights"
)

// The statements of §4 on Figures 3 to 5, as far as they can be had (docs/design/edge.md).

func TestPredictionIsClose(t *testing.T) {
	sum, n := 0.0, 0.0
	for cost := 400 * time.Nanosecond; cost <= 1900*time.Nanosecond; cost += 500 {
		f, traffic := Prediction(cost)
		r := run(t, f, Policy{Kind: Model, PID: weights.PublishedGains()}, traffic, seed)
		last := r.Samples[len(r.Samples)-1]
		if last.Predicted[0] < last.Measured[0] {
			t.Errorf("%v a packet: predicted %.3f, measured %.3f: want too much", cost, last.Predicted[0], last.Measured[0])
		}
		sum += r.Misjudge
		n++
	}
	if sum/n > 0.025 {
		t.Errorf("predictions are off by %.3f on average; published .018", sum/n)
	}
}

func TestModelKeepsServersAlike(t *testing.T) {
	const share = 0.47
	f, traffic := Heterogeneous(share)
	results := map[Kind]Result{}
	for _, p := range policies() {
		if p.PID != weights.TunedGains() {
			results[p.Kind] = run(t, f, p, traffic, seed)
		}
	}
	model, monitor, static := results[Model], results[Monitor], results[Static]
	if model.Apart > 0.03 {
		t.Errorf("model: servers are %.3f apart; published < .03", model.Apart)
	}
	if monitor.Apart > 0.07 || monitor.Apart < 2*model.Apart {
		t.Errorf("monitor: servers are %.3f apart, model's %.3f; published ≤ .07", monitor.Apart, model.Apart)
	}
	if !(static.Latency > 20*model.Latency && static.P99 > 300*time.Microsecond) {
		t.Errorf("static: latency %v, p99 %v; model's %v", static.Latency, static.P99, model.Latency)
	}
	if monitor.Unrest < 2*model.Unrest {
		t.Errorf("monitor's weights move by %.3f, model's by %.3f", monitor.Unrest, model.Unrest)
	}
	// One server has the elephant and half the mice and does what it can, the
	// other has half the mice and idles: in packets on a warm, on a cold core.
	asked := heavy * (1 - share) / 2
	if got, want := static.Rate/HeterogeneousRate, (1/(1-warm)+asked)/heavy; math.Abs(got-want) > 0.005 {
		t.Errorf("static serves %.3f of the packets, want %.3f", got, want)
	}
}

// TestThreeTimesFaster: if all flows last D, round robin levels two servers when
// the last old flow ends, D after the new one came; a balancer that gives the new
// one everything needs λ(D − x) = 2λx, a third of that. The published 35 s and
// 1 s are no such flows.
func TestThreeTimesFaster(t *testing.T) {
	f, traffic := Dynamic(0)
	level := func(p Policy) float64 { // without the delay of a mean
		return Level(run(t, f, p, traffic, seed).Samples) - LevelOver.Seconds()
	}
	model, static := level(levelled), level(Policy{Kind: Static})
	if math.Abs(static/Lifetime.Seconds()-1) > 0.1 {
		t.Errorf("static levels in %.2f s, want %v", static, Lifetime)
	}
	if ratio := static / model; math.Abs(ratio-3) > 0.5 {
		t.Errorf("static levels in %.2f s, model in %.2f: want three times less", static, model)
	}
}

// TestLifeIsThePublished: the life of Figure 5's flows is that of the two published times, and its load is in
// equilibrium from the beginning.
func TestLifeIsThePublished(t *testing.T) {
	traffic := DynamicTraffic(Tail, chain)
	flows := traffic.Classes[0]
	if rest := flows.Rest(time.Second - LevelOver); math.Abs(rest-2./3) > 0.02 {
		t.Errorf("when model is to be level %.3f of the old load is left, want 2/3", rest)
	}
	if rest := Before * flows.Rest(35*time.Second); math.Abs(rest-Near) > 0.001 {
		t.Errorf("after 35 s round robin's servers are %.4f apart, want %v", rest, Near)
	}
	for _, part := range []float64{0.9, 0.6, 0.5, 0.01} {
		after := time.Duration(flows.rests(part) * float64(flows.Gap))
		if got := flows.Rest(after); math.Abs(got-part) > 1e-6 {
			t.Errorf("after %v %.6f of the load is left, want %v", after, got, part)
		}
	}
	for seed := uint64(1); seed <= 3; seed++ {
		traffic := DynamicTraffic(Tail, 10*chain)
		traffic.For = Doubling
		packets, err := traffic.Packets(seed)
		if err != nil {
			t.Fatal(err)
		}
		var loads [9]float64
		for p := range packets {
			loads[min(8, int(p.At/time.Second))] += (10 * chain).Seconds()
		}
		for i, load := range loads {
			if math.Abs(load-Before) > 0.04 {
				t.Errorf("seed %d, second %d: a load of %.3f, want %v", seed, i, load, Before)
			}
		}
	}
}

// TestLevelStays: a distance that is near for a moment is not level.
func TestLevelStays(t *testing.T) {
	var all []Distance
	for i := range 100 {
		d := Distance{Until: 0.1 * float64(i), Apart: 0.1}
		if i >= 20 && i < 25 || i >= 40 {
			d.Apart = Near
		}
		all = append(all, d)
	}
	if level := FirstLevel(all); math.Abs(level-4) > 1e-9 {
		t.Errorf("level at %v s, want 4: it was near at 2 s for half a second", level)
	}
	if never := FirstLevel(all[:45]); !math.IsInf(never, 1) {
		t.Errorf("level at %v s by half a second", never)
	}
}

// TestSlowFlowsSwing: with flows of seconds the published gains never come to
// rest; the tuned ones do.
func TestSlowFlowsSwing(t *testing.T) {
	f, traffic := Dynamic(0)
	traffic.WarmUp = 30 * time.Second
	published := run(t, f, Policy{Kind: Model, PID: weights.PublishedGains()}, traffic, seed).Apart
	tuned := run(t, f, Policy{Kind: Model, PID: weights.TunedGains()}, traffic, seed).Apart
	if published < 0.2 || tuned > 0.05 {
		t.Errorf("servers are %.3f apart with the published gains and %.3f with ours (seed %d)", published, tuned, seed)
	}
}
