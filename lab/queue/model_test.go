package queue

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

var (
	someLoads    = []float64{1e-3, 0.1, 0.3, 0.5, 0.61, 0.71, 0.8, 0.88, 0.9, 0.95, 0.983, 0.99, 0.999}
	somePolicies = []Policy{Single, 0, 1, 2, 3, 4, 5, 8, 16, 32, 64, 200}
)

// everywhere calls f for all policies at all loads.
func everywhere(t *testing.T, f func(t *testing.T, p Policy, lambda float64, m *Model)) {
	t.Helper()
	for _, p := range somePolicies {
		for _, lambda := range someLoads {
			t.Run(fmt.Sprintf("%v/%v", p, lambda), func(t *testing.T) { f(t, p, lambda, solve(t, p, lambda, 0)) })
		}
	}
}

func solve(t testing.TB, p Policy, lambda, delay float64) *Model {
	t.Helper()
	m, err := Solve(p, lambda, delay)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// wantClose demands a relative error of at most rel.
func wantClose(t *testing.T, what string, got, want, rel float64) {
	t.Helper()
	if !(math.Abs(got-want) <= rel*math.Abs(want)) {
		t.Errorf("%s: %.17g, want %.17g (off by %.2g)", what, got, want, got/want-1)
	}
}

// TestEquilibrium: the shares solve (2), and s_1 = λ.
func TestEquilibrium(t *testing.T) {
	everywhere(t, func(t *testing.T, p Policy, lambda float64, m *Model) {
		wantClose(t, "s_1", m.AtLeast(1), lambda, 1e-12)
		for n := 1; n < 300; n++ {
			in := lambda * m.Passed() * (m.AtLeast(n-1) - m.AtLeast(n))
			if p == Single || n <= int(p) {
				in += lambda * (m.AtLeast(n-1) - m.AtLeast(n))
			}
			if p == 0 {
				in = lambda * (m.AtLeast(n-1) - m.AtLeast(n))
			}
			out := m.AtLeast(n) - m.AtLeast(n+1)
			if math.Abs(in-out) > 1e-13 {
				t.Fatalf("s_%d: %.17g come, %.17g go", n, in, out)
			}
			if out < 0 {
				t.Fatalf("s_%d = %v < s_%d = %v", n, m.AtLeast(n), n+1, m.AtLeast(n+1))
			}
		}
	})
}

// TestGaps: gap(n) = s_n − s_{n+1}, and the gaps sum up to 1.
func TestGaps(t *testing.T) {
	everywhere(t, func(t *testing.T, _ Policy, _ float64, m *Model) {
		sum := 0.0
		for n := range enough(m) {
			if d := m.AtLeast(n) - m.AtLeast(n+1); math.Abs(m.gap(n)-d) > 1e-13 {
				t.Fatalf("gap(%d) = %v, s_n − s_n+1 = %v", n, m.gap(n), d)
			}
			sum += m.gap(n)
		}
		wantClose(t, "Σ gaps", sum, 1, 1e-11)
	})
}

// enough terms for a sum over n to be complete.
func enough(m *Model) int { return m.c() + 2 + int(-60/math.Log(m.ratio)) }

// TestEquation3 holds the shares against the closed form (3), where it is well
// conditioned.
func TestEquation3(t *testing.T) {
	for _, c := range []int{1, 2, 4, 8} {
		for _, lambda := range []float64{0.3, 0.6, 0.8, 0.95} {
			m := solve(t, Policy(c), lambda, 0)
			sc := m.Passed()
			for n := 1; n <= c; n++ {
				q := lambda * (1 + sc)
				want := ((1-lambda)*math.Pow(q, float64(n)) - lambda*sc) / (1 - q)
				wantClose(t, fmt.Sprintf("c=%d λ=%v s_%d", c, lambda, n), m.AtLeast(n), want, 1e-10)
			}
		}
	}
}

// TestSpuriousRoot: (1−λ)/λ solves the polynomial (5) and not the recursion; s_c
// solves both.
func TestSpuriousRoot(t *testing.T) {
	polynomial := func(x, lambda float64, c int) float64 {
		return x*(1-lambda*x) - (1-lambda)*math.Pow(lambda*(1+x), float64(c))
	}
	for _, c := range []int{2, 4, 8} {
		for _, lambda := range []float64{0.6, 0.7, 0.8, 0.9, 0.95} {
			spurious, sc := (1-lambda)/lambda, solve(t, Policy(c), lambda, 0).Passed()
			for _, x := range []float64{spurious, sc} {
				if r := polynomial(x, lambda, c); math.Abs(r) > 1e-15 {
					t.Errorf("c=%d λ=%v: (5) at %v is %v", c, lambda, x, r)
				}
			}
			if math.Abs(recursion(lambda, spurious, c)-spurious) < 1e-3 {
				t.Errorf("c=%d λ=%v: the recursion accepts %v", c, lambda, spurious)
			}
		}
	}
}

// TestDifferentialEquations: (1), integrated from an empty farm until it rests,
// ends where Solve ends.
func TestDifferentialEquations(t *testing.T) {
	for _, c := range []int{0, 1, 2, 4, 8} {
		for _, lambda := range []float64{0.5, 0.8, 0.9} {
			m := solve(t, Policy(c), lambda, 0)
			for n, s := range rest(lambda, c) {
				if math.Abs(s-m.AtLeast(n)) > 1e-7 {
					t.Fatalf("c=%d λ=%v: s_%d rests at %v, Solve says %v", c, lambda, n, s, m.AtLeast(n))
				}
			}
		}
	}
}

// rest integrates (1) by Euler steps, whose fixed point is exact, until all rates
// are tiny.
func rest(lambda float64, c int) []float64 {
	const longest, step = 300, 0.3
	s, ds := make([]float64, longest+1), make([]float64, longest+1)
	for s[0] = 1; ; {
		fastest := 0.0
		for i := 1; i < longest; i++ {
			into := lambda * s[c]
			if i <= c {
				into += lambda
			}
			ds[i] = into*(s[i-1]-s[i]) - (s[i] - s[i+1])
			fastest = max(fastest, math.Abs(ds[i]))
		}
		if fastest < 1e-12 {
			return s
		}
		for i := range s {
			s[i] += step * ds[i]
		}
	}
}

// TestReducesToSingle: "as extreme examples, c = 0 and c = n + 1 both reduce to a
// random scheme" (§II-B).
func TestReducesToSingle(t *testing.T) {
	for _, lambda := range someLoads {
		single := solve(t, Single, lambda, 0)
		wantClose(t, "E(T) of SC", single.Mean(), 1/(1-lambda), 1e-12)
		wantClose(t, "F of SC", single.Fairness(), lambda/(1+lambda), 1e-12)
		wantClose(t, "π_90 of SC", single.Percentile(90), math.Ln10/(1-lambda), 1e-12)
		for _, p := range []Policy{0, 60000} {
			m := solve(t, p, lambda, 0)
			for _, n := range []int{0, 1, 2, 10, 100} {
				wantClose(t, fmt.Sprintf("%v λ=%v s_%d", p, lambda, n), m.AtLeast(n), single.AtLeast(n), 1e-9)
			}
			wantClose(t, fmt.Sprintf("%v λ=%v E(T)", p, lambda), m.Mean(), single.Mean(), 1e-9)
			wantClose(t, fmt.Sprintf("%v λ=%v F", p, lambda), m.Fairness(), single.Fairness(), 1e-9)
			wantClose(t, fmt.Sprintf("%v λ=%v π_99", p, lambda), m.Percentile(99), single.Percentile(99), 1e-9)
		}
	}
	if m := solve(t, 0, 0.5, 3); m.Passed() != 1 || m.Mean() != 2+3 {
		t.Errorf("threshold 0 passes on %v of the flows in %v; every flow pays the delay", m.Passed(), m.Mean())
	}
}

func TestSolveRefuses(t *testing.T) {
	for _, c := range []struct {
		p             Policy
		lambda, delay float64
		want          string
	}{
		{-2, 0.5, 0, "model of threshold -2: want 0 or more"},
		{4, 0, 0, "model at load 0: want more than 0 and less than 1"},
		{4, 1, 0, "model at load 1: want more than 0 and less than 1"},
		{Single, -0.1, 0, "model at load -0.1: want"},
		{4, math.NaN(), 0, "model at load NaN: want"},
		{4, 0.5, -1, "model with delay -1: want 0 or more"},
		{4, 0.5, math.NaN(), "model with delay NaN: want"},
		{4, 0.5, math.Inf(1), "model with delay +Inf: want"},
	} {
		if _, err := Solve(c.p, c.lambda, c.delay); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}

func BenchmarkSolve(b *testing.B) {
	for _, p := range []Policy{4, 32} {
		b.Run(p.String(), func(b *testing.B) {
			for b.Loop() {
				solve(b, p, 0.9, 0)
			}
		})
	}
}

func BenchmarkPercentile(b *testing.B) {
	for _, p := range []Policy{Single, 4, 32} {
		m := solve(b, p, 0.9, 0)
		b.Run(p.String(), func(b *testing.B) {
			for b.Loop() {
				m.Percentile(99)
			}
		})
	}
}

// AtLeast is s_n, the share of servers with n or more flows (3), (4).
func (m *Model) AtLeast(n int) float64 {
	switch {
	case n <= 0:
		return 1
	case n <= m.c():
		return m.s[n]
	default:
		return m.s[m.c()] * math.Pow(m.ratio, float64(n-m.c()))
	}
}

// gap is s_n − s_{n+1}, the share of servers with exactly n flows. By (2) the gaps
// grow from s_0 − s_1 = 1 − λ by a factor λ(1 + s_c) each up to n = c, and by λ·s_c
// beyond; differences of shares near 1 would lose digits.
func (m *Model) gap(n int) float64 {
	if n < m.c() {
		return (1 - m.lambda) * math.Pow(m.lambda*(1+m.passed), float64(n))
	}
	return (1 - m.ratio) * m.AtLeast(n)
}
