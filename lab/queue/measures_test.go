package queue

import (
	"math"
	"testing"
)

// TestAgainstDirectSums: the series that the closed tails stand for.
func TestAgainstDirectSums(t *testing.T) {
	everywhere(t, func(t *testing.T, p Policy, lambda float64, m *Model) {
		var flows, squares, wrongful float64
		for n := 1; n < enough(m); n++ {
			flows += m.AtLeast(n)
			squares += float64(2*n-1) * m.AtLeast(n)
		}
		for n := max(0, int(p)); n < enough(m) && p != Single; n++ {
			wrongful += m.gap(n) * m.AtLeast(n+1)
		}
		wantClose(t, "E(T)", m.Mean(), flows/lambda, 1e-11)
		wantClose(t, "F", m.Fairness(), flows*flows/squares, 1e-11)
		if math.Abs(m.Wrongful()-wrongful) > 1e-12 {
			t.Errorf("p_w = %v, want %v", m.Wrongful(), wrongful)
		}
	})
}

// TestPrintedForms: (6), (8) and the sums of §V-D, where they are well conditioned.
func TestPrintedForms(t *testing.T) {
	for _, p := range []Policy{1, 2, 4, 8} {
		for _, l := range []float64{0.3, 0.6, 0.8, 0.9, 0.95} {
			m := solve(t, p, l, 0)
			s, c := m.Passed(), float64(p)
			q := 1 - l*(1+s)
			wantClose(t, "(6)", m.Mean(), (1-c*s*(1-l*s)-l*s*(1+s))/((1-l*s)*q), 1e-9)
			wantClose(t, "(8)", m.Wrongful(), l*s*s*s/(1+l*s), 1e-12)
			head := (l*l*(s+1)*((c-1)*(c-1)*s+1) + l*s*(2*c*s-3*s+2*c-c*c-2) - 2*c*s + l + s) / (q * q)
			tail := s * (c*(2-2*l*s) + 3*l*s - 1) / ((1 - l*s) * (1 - l*s))
			wantClose(t, "E(X²)/N", m.squares(), head+tail, 1e-8)
		}
	}
}

// TestRemovableSingularity: (6) is 0/0 where λ(1 + s_c) = 1; the mean is smooth.
func TestRemovableSingularity(t *testing.T) {
	low, high := 0.5, 0.999
	for range 60 {
		if l := (low + high) / 2; l*(1+solve(t, 4, l, 0).Passed()) < 1 {
			low = l
		} else {
			high = l
		}
	}
	at, below, above := solve(t, 4, low, 0).Mean(), solve(t, 4, low-1e-6, 0).Mean(), solve(t, 4, low+1e-6, 0).Mean()
	wantClose(t, "E(T) at the singularity", at, (below+above)/2, 1e-10)
}

// TestStatementsOfSectionV: the paper's statements in words.
func TestStatementsOfSectionV(t *testing.T) {
	const rounding = 1 + 1e-12 // high thresholds hardly differ from single at low loads
	mean := func(p Policy, l float64) float64 { return solve(t, p, l, 0).Mean() }
	if mean(8, 0.982) < mean(4, 0.982) || mean(8, 0.983) > mean(4, 0.983) {
		t.Errorf("SR_8 does not overtake SR_4 at λ = 0.983: .982: %v %v, .983: %v %v", mean(8, 0.982), mean(4, 0.982), mean(8, 0.983), mean(4, 0.983))
	}
	for i := 1; i < 1000; i++ {
		l := float64(i) / 1000
		single := solve(t, Single, l, 0)
		if w := solve(t, 4, l, 0).Wrongful(); l <= 0.9 && w >= 0.045 {
			t.Errorf("λ = %v: %v wrongful rejections with SR_4, the paper says under 4.5 %%", l, w)
		}
		for _, p := range []Policy{1, 2, 4, 8, 16, 32} {
			m := solve(t, p, l, 0)
			if m.Mean() > single.Mean()*rounding || m.Fairness()*rounding < single.Fairness() {
				t.Errorf("λ = %v: %v is no better than single: mean %v, fairness %v", l, p, m.Mean(), m.Fairness())
			}
			if late := solve(t, p, l, 1); late.Mean() > single.Mean()*rounding {
				t.Errorf("Theorem 1: λ = %v, δ = 1: %v has mean %v over %v", l, p, late.Mean(), single.Mean())
			}
		}
	}
}

// TestLowThresholdsForLowLoads (§V-B, §V-D, §V-F): the best of SR_2, SR_4, SR_8
// grows with the load, by mean, fairness and π_90 alike.
func TestLowThresholdsForLowLoads(t *testing.T) {
	for what, badness := range map[string]func(*Model) float64{
		"mean":     (*Model).Mean,
		"fairness": func(m *Model) float64 { return -m.Fairness() },
		"π_90":     func(m *Model) float64 { return m.Percentile(90) },
	} {
		last := Policy(2)
		for i := 30; i < 1000; i += 5 {
			best := Policy(2)
			for _, p := range []Policy{4, 8} {
				l := float64(i) / 1000
				if badness(solve(t, p, l, 0)) < badness(solve(t, best, l, 0)) {
					best = p
				}
			}
			if best < last {
				t.Errorf("%s: the best threshold falls from %d to %d at λ = .%03d", what, last, best, i)
			}
			last = best
		}
		if last != 8 {
			t.Errorf("%s: the best threshold near λ = 1 is %d, want 8", what, last)
		}
	}
}
