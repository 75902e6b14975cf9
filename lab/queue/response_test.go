package queue

import (
	"math"
	"math/cmplx"
	"testing"
)

// transform is (9) with −iθ = z: the Laplace transform E(e^{−zT}).
func transform(m *Model, c int) func(z complex128) complex128 {
	l, s := complex(m.lambda, 0), complex(m.Passed(), 0)
	return func(z complex128) complex128 {
		q := 1 - l*(1+s) + z
		return (1-l)*(1+s)/q - s*(1-l*s)/((1-l*s+z)*q*cmplx.Pow(1+z, complex(float64(c-1), 0)))
	}
}

// invert is the Euler method of Abate and Whitt (1995): the function at t whose
// Laplace transform is f.
func invert(f func(complex128) complex128, t float64) float64 {
	const a, plain, averaged = 28.0, 60, 14
	term := func(k int) float64 {
		return real(f(complex(a/(2*t), float64(k)*math.Pi/t))) * math.Exp(a/2) / t
	}
	sum, euler := term(0)/2, 0.0
	for k := 1; k <= plain+averaged; k++ {
		sum += math.Pow(-1, float64(k)) * term(k)
		if n := k - plain; n >= 0 {
			euler += sum * binomial(averaged, n) / math.Exp2(averaged)
		}
	}
	return euler
}

func binomial(n, k int) float64 {
	b := 1.0
	for i := range k {
		b *= float64(n-i) / float64(i+1)
	}
	return b
}

// TestInversion holds density and CDF against (9), inverted numerically.
func TestInversion(t *testing.T) {
	for _, c := range []int{1, 2, 4, 8, 16, 32} {
		for _, lambda := range []float64{0.3, 0.5, 0.71, 0.88, 0.95, 0.983} {
			m := solve(t, Policy(c), lambda, 0)
			f := transform(m, c)
			for _, share := range []float64{0.1, 0.5, 1, 2, 4} {
				at := share * m.Mean()
				density := invert(f, at)
				cdf := invert(func(z complex128) complex128 { return f(z) / z }, at)
				if math.Abs(m.Density(at)-density) > 2e-6 || math.Abs(m.CDF(at)-cdf) > 2e-6 {
					t.Errorf("c=%d λ=%v t=%.3g: density %.9f, (9) says %.9f; CDF %.9f, (9) says %.9f", c, lambda, at, m.Density(at), density, m.CDF(at), cdf)
				}
			}
		}
	}
}

// TestMixture: P(T > t) and p_T as the mixture of Erlang(k, 1) of weight
// (s_k − s_{k+1})/λ that (9) transforms.
func TestMixture(t *testing.T) {
	everywhere(t, func(t *testing.T, _ Policy, lambda float64, m *Model) {
		for _, share := range []float64{0, 0.01, 0.3, 1, 3, 10} {
			at := share * m.Mean()
			var survival, density, erlang float64 // erlang = P(Erlang(k,1) > at)
			for k := 1; k < enough(m); k++ {
				weight := m.gap(k) / lambda
				erlang += poisson(at, k-1)
				survival += weight * erlang
				density += weight * poisson(at, k-1)
			}
			if got := m.Survival(at); math.Abs(got-survival) > 1e-9*survival+1e-15 {
				t.Errorf("P(T > %v) = %v, want %v", at, got, survival)
			}
			if got := m.Density(at); math.Abs(got-density) > 1e-9*density+1e-15 {
				t.Errorf("p_T(%v) = %v, want %v", at, got, density)
			}
		}
	})
}

// TestMeanIsAreaUnderSurvival: E(T) = ∫ P(T > t) dt, with a delay too (7).
func TestMeanIsAreaUnderSurvival(t *testing.T) {
	for _, p := range []Policy{Single, 0, 1, 4, 8, 32} {
		for _, lambda := range []float64{0.3, 0.88, 0.983} {
			for _, delay := range []float64{0, 0.25, 3} {
				m := solve(t, p, lambda, delay)
				step := m.Mean() / 200
				if delay > 0 {
					step = delay / math.Ceil(delay/step) // the kink at δ falls on a step
				}
				area := m.Survival(0) / 2 * step
				for at := step; m.Survival(at) > 1e-9; at += step {
					area += m.Survival(at) * step
				}
				wantClose(t, "E(T)", area, m.Mean(), 1e-4)
			}
		}
	}
}

// TestPercentile is the inverse of the CDF (10), far into the tail.
func TestPercentile(t *testing.T) {
	everywhere(t, func(t *testing.T, _ Policy, _ float64, m *Model) {
		last := 0.0
		for _, x := range []float64{1e-6, 1, 10, 50, 90, 99, 99.9, 99.9999} {
			at := m.Percentile(x)
			wantClose(t, "late", m.Survival(at), 1-x/100, 1e-9)
			if at <= last {
				t.Errorf("π_%v = %v is not over %v", x, at, last)
			}
			last = at
		}
		if m.Percentile(0) != 0 || !math.IsInf(m.Percentile(100), 1) || m.Percentile(math.NaN()) != 0 {
			t.Error("a percentile outside 0 … 100 is none of 0, +Inf")
		}
	})
}

// TestDensityIsSlopeOfCDF, with a delay, which makes it jump at δ.
func TestDensityIsSlopeOfCDF(t *testing.T) {
	const h = 1e-5
	for _, p := range []Policy{Single, 0, 1, 4, 32} {
		m := solve(t, p, 0.9, 0.7)
		for _, at := range []float64{0.1, 0.6, 0.8, 2, 20} {
			wantClose(t, "p_T", m.Density(at), (m.CDF(at+h)-m.CDF(at-h))/(2*h), 1e-6)
		}
	}
	if m := solve(t, 4, 0.9, 0.7); m.Density(-1) != 0 || m.CDF(-1) != 0 || m.CDF(0) != 0 {
		t.Error("something is answered before it is asked")
	}
}

// TestFigure8e: at λ = 0.88 "the SR_c policies exhibit lower response times and
// less variance".
func TestFigure8e(t *testing.T) {
	single := solve(t, Single, 0.88, 0)
	for _, p := range []Policy{2, 4, 8} {
		m := solve(t, p, 0.88, 0)
		if spread(m) >= spread(single) {
			t.Errorf("%v: 10th to 90th percentile %v, single %v", p, spread(m), spread(single))
		}
		for _, x := range []float64{50, 75, 90, 95, 99} {
			if m.Percentile(x) >= single.Percentile(x) {
				t.Errorf("%v: π_%v = %v, single %v", p, x, m.Percentile(x), single.Percentile(x))
			}
		}
	}
}

func spread(m *Model) float64 { return m.Percentile(90) - m.Percentile(10) }

// Density is p_T(t), the inverse of (9).
func (m *Model) Density(t float64) float64 {
	if t < 0 {
		return 0
	}
	density := poissonSum(t, m.c(), m.gap)
	if t -= m.delay; t >= 0 {
		tail := m.gap(m.c()) * poissonTail(t, m.c(), m.ratio)
		density += m.forced * (poissonSum(t, m.c(), m.gap) + tail)
	}
	return density
}
