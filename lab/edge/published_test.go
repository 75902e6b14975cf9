package edge

import (
	"math"
	"testing"
	"time"

	"proffer/weights"
)

// The statements of §4 on Figures 3 to 5, as far as they can be had (docs/edge.md).

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
	level := func(p Policy) float64 {
		return Level(run(t, f, p, traffic, seed).Samples, 0.04)
	}
	model, static := level(Policy{Kind: Model, PID: weights.PublishedGains()}), level(Policy{Kind: Static})
	if math.Abs(static/Lifetime.Seconds()-1) > 0.05 {
		t.Errorf("static levels in %.2f s, want %v", static, Lifetime)
	}
	if ratio := static / model; math.Abs(ratio-3) > 0.5 {
		t.Errorf("static levels in %.2f s, model in %.2f: want three times less", static, model)
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
