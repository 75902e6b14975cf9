package proof

import (
	"slices"
	"testing"
	"time"

	"proffer/lab/sim"
)

// TestFollows: other work takes one of the two cores of half of 12 servers, at an LB with so many
// flows a second of each server. The weights of learned go nine tenths of their way within 5 s
// where there are 20 flows a second and more; a reservoir has 128 flows. With the
// published filter they do not.
func TestFollows(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rate float64 // flows a second, of each server at each LB
		most float64 // s
	}{{50, 5}, {20, 5}, {5, 20}, {2, 60}} {
		quick, published := followsIn(t, "learned", c.rate), followsIn(t, "learned:completed", c.rate)
		t.Logf("%3.0f flows a second: %4.1f s, with the published filter %4.1f s (seeds 1 to %d)", c.rate, quick, published, followRuns)
		if quick > c.most {
			t.Errorf("%v flows a second: %.1f s, want %v at most", c.rate, quick, c.most)
		}
		if published < 1.25*quick || published < 5 {
			t.Errorf("%v flows a second: with the published filter %.1f s, and %.1f s without", c.rate, published, quick)
		}
	}
}

const followRuns = 8

// followsIn is how long the weights need for nine tenths of their way, in s.
func followsIn(t *testing.T, policy string, rate float64) float64 {
	const rho, second, change, end = 0.6, 10, 120, 300 // ten probes a second
	f := sim.Farm{LBs: 2, HopMin: sim.HopMin / 10, HopMax: sim.HopMax / 10}
	other := sim.Background{From: change * time.Second, Cores: 1}
	for i := range 12 {
		f.Servers = append(f.Servers, sim.Server{Cores: 2 - i/6, Discipline: sim.FIFO, Backlog: 64})
		if i < 6 {
			other.Servers = append(other.Servers, i)
		}
	}
	f.Background = []sim.Background{other}
	all := float64(f.LBs) * rate * float64(len(f.Servers))
	f.Default = sim.Workload{Service: sim.Exponential(time.Duration(rho * 18 / all * float64(time.Second)))}
	w := f.Load(rho)
	w.Requests = int(all * end)
	course := make([]float64, end*second)
	w.ProbeEvery = time.Second / second
	w.Probe = func(s sim.Snapshot) {
		if at := int(s.Now / w.ProbeEvery); at < len(course) {
			course[at] += fastOverSlow(s.Weights) / followRuns
		}
	}
	for seed := uint64(1); seed <= followRuns; seed++ {
		mustRun(t, f, mustParse(t, policy), w, seed)
	}
	before, after := meanOf(course[(change-30)*second:change*second]), meanOf(course[(end-60)*second:(end-5)*second])
	goal := before + 0.9*(after-before)
	return float64(slices.IndexFunc(course[change*second:], func(x float64) bool { return x < goal })) / second
}

// fastOverSlow is the weights of the first half of the servers over those of the second, at the mean LB.
func fastOverSlow(weights [][]float64) (ratio float64) {
	for _, w := range weights {
		half := len(w) / 2
		ratio += meanOf(w[:half]) / meanOf(w[half:]) / float64(len(weights))
	}
	return ratio
}

func meanOf(x []float64) (mean float64) {
	for _, v := range x {
		mean += v / float64(len(x))
	}
	return mean
}
