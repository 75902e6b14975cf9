package queue

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// simulated is what a farm of finite size did.
type simulated struct {
	times                           []float64
	fairness, passed, wrongful, sum float64
}

// simulate runs flows through n first-come-first-served servers, as the model
// describes them, delay aside. A server is the list of its departures to come.
func simulate(seed uint64, p Policy, lambda float64, n, flows int) simulated {
	rng := rand.New(rand.NewPCG(seed, uint64(p)+1))
	departures := make([][]float64, n)
	var out simulated
	var now, x, xx float64
	busy := func(server int) int {
		d := departures[server]
		for len(d) > 0 && d[0] <= now {
			d = d[1:]
		}
		departures[server] = d
		return len(d)
	}
	warm := flows / 10
	for i := range flows + warm {
		now += rng.ExpFloat64() / (lambda * float64(n))
		first := rng.IntN(n)
		second := (first + 1 + rng.IntN(n-1)) % n
		at, waiting := first, busy(first)
		if i >= warm { // Poisson arrivals see time averages
			x += float64(waiting)
			xx += float64(waiting * waiting)
		}
		if p != Single && waiting >= int(p) {
			at = second
			if i >= warm {
				out.passed++
				if busy(second) > waiting {
					out.wrongful++
				}
			}
		}
		begin := now
		if busy(at) > 0 {
			begin = departures[at][len(departures[at])-1]
		}
		end := begin + rng.ExpFloat64()
		departures[at] = append(departures[at], end)
		if i >= warm {
			out.times = append(out.times, end-now)
			out.sum += end - now
		}
	}
	slices.Sort(out.times)
	k := float64(flows)
	out.passed, out.wrongful, out.fairness = out.passed/k, out.wrongful/k, x/k*x/k/(xx/k)
	return out
}

// TestSimulation: the limit of infinitely many servers against 48 and 200, within
// 3 % up to ρ = 0.9.
func TestSimulation(t *testing.T) {
	const seed, flows = 1, 400_000
	for _, c := range []struct {
		p      Policy
		lambda float64
		n      int
	}{
		{Single, 0.7, 48}, {0, 0.6, 48}, {1, 0.8, 200}, {2, 0.88, 200},
		{4, 0.61, 48}, {4, 0.87, 48}, {4, 0.9, 48}, {4, 0.9, 200}, {8, 0.9, 200},
	} {
		t.Run(fmt.Sprintf("%v/%v/N=%d", c.p, c.lambda, c.n), func(t *testing.T) {
			t.Parallel()
			m, sim := solve(t, c.p, c.lambda, 0), simulate(seed, c.p, c.lambda, c.n, flows)
			within := func(what string, got, want float64) {
				t.Helper()
				if math.Abs(got/want-1) > 0.03 {
					t.Errorf("%s (seed %d): model %v, simulation %v (%+.1f %%)", what, seed, want, got, 100*(got/want-1))
				}
			}
			within("mean", sim.sum/flows, m.Mean())
			within("fairness", sim.fairness, m.Fairness())
			percentiles := []float64{50, 90, 99}
			if c.n < 100 {
				percentiles = percentiles[:2] // the far tail feels the size of a small farm
			}
			for _, x := range percentiles {
				within(fmt.Sprintf("π_%v", x), sim.times[int(x/100*flows)], m.Percentile(x))
			}
			if math.Abs(sim.passed-m.Passed()) > 0.015 || math.Abs(sim.wrongful-m.Wrongful()) > 0.01 {
				t.Errorf("passed on %v, want %v; wrongful %v, want %v (seed %d)", sim.passed, m.Passed(), sim.wrongful, m.Wrongful(), seed)
			}
		})
	}
}
