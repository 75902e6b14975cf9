package queue

import (
	"math"

	"gonum.org/v1/gonum/mathext"
)

// A flow that meets n others waits for n + 1 exponential services: it is still
// there at t if a Poisson process of rate 1 has made j ≤ n steps by then. So with
// p_j(t) = e^{−t} t^j / j!,
//
//	P(T > t) = Σ p_j(t) P(n ≥ j)
//
// which is the inverse of (9), as a sum of positive terms. n ≥ j holds for the
// share s_j − s_c (j < c) that its first candidate takes, and for s_j of those
// passed on; together these make s_{j+1}/λ, and apart they let δ delay the latter.

// Survival is P(T > t), the share of flows that take longer than t: 1 − the CDF,
// precise where that is nearly 1. It inverts (9).
func (m *Model) Survival(t float64) float64 {
	accepted := poissonSum(t, m.c(), func(j int) float64 { return m.s[j] - m.s[m.c()] })
	return min(1, accepted+m.forced*m.forcedSurvival(t-m.delay))
}

func (m *Model) forcedSurvival(t float64) float64 {
	if t <= 0 {
		return 1
	}
	head := poissonSum(t, m.c(), func(j int) float64 { return m.s[j] })
	return head + m.s[m.c()]*poissonTail(t, m.c(), m.ratio)
}

// CDF is P(T ≤ t), the integral in (10).
func (m *Model) CDF(t float64) float64 { return 1 - m.Survival(t) }

// Percentile is π_x (10): the time within which x per cent of flows are answered.
// 0 for x ≤ 0, +Inf for x ≥ 100.
func (m *Model) Percentile(x float64) float64 {
	late := 1 - x/100
	if !(late < 1) {
		return 0
	}
	if late <= 0 {
		return math.Inf(1)
	}
	low, high := 0.0, 1.0
	for m.Survival(high) > late {
		low, high = high, 2*high
	}
	for {
		t := low + (high-low)/2
		if t <= low || t >= high {
			return high
		}
		if m.Survival(t) > late {
			low = t
		} else {
			high = t
		}
	}
}

// poissonSum is Σ p_j(t) weight(j) over 0 ≤ j < n.
func poissonSum(t float64, n int, weight func(j int) float64) float64 {
	if t < 0 {
		t = 0
	}
	// More than 12 deviations from its mean, p_j is under 1e-30.
	reach := 12*math.Sqrt(t) + 30
	first := max(0, int(t-reach))
	n = min(n, int(t+reach))
	sum, p := 0.0, poisson(t, first)
	for j := first; j < n; j++ {
		sum += p * weight(j)
		p *= t / float64(j+1)
	}
	return sum
}

// poissonTail is Σ p_j(t) r^(j−n) over j ≥ n. Where the bulk of a Poisson variable
// of mean r·t lies above n it is e^{−(1−r)t} r^{−n} P(that variable ≥ n); below, its
// terms fall from the first on.
func poissonTail(t float64, n int, r float64) float64 {
	if n == 0 {
		return math.Exp(-(1 - r) * t)
	}
	if r*t >= float64(n) {
		return math.Exp(-(1-r)*t-float64(n)*math.Log(r)) * mathext.GammaIncReg(float64(n), r*t)
	}
	sum := 0.0
	for j, p := n, poisson(t, n); p > sum*1e-17; j++ {
		sum += p
		p *= r * t / float64(j+1)
	}
	return sum
}

// poisson is p_j(t).
func poisson(t float64, j int) float64 {
	if j == 0 {
		return math.Exp(-t)
	}
	if t == 0 {
		return 0
	}
	lgamma, _ := math.Lgamma(float64(j + 1))
	return math.Exp(float64(j)*math.Log(t) - t - lgamma)
}
