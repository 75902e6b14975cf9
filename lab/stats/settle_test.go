package stats

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestWarmUpIsTheDefinition: the fast sums find the least standard error that the
// definition finds.
func TestWarmUpIsTheDefinition(t *testing.T) {
	const seed = 3
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		x := autoregressive(rng, 100, 0.8)
		for i := range 30 {
			x[i] += float64(30-i) / 3
		}
		best, least := 0, math.Inf(1)
		for d := 0; d <= 95; d++ {
			rest := x[d:]
			mean, squares := 0.0, 0.0
			for _, v := range rest {
				mean += v / float64(len(rest))
			}
			for _, v := range rest {
				squares += (v - mean) * (v - mean)
			}
			if e := squares / float64(len(rest)*len(rest)); e < least {
				best, least = d, e
			}
		}
		if got := WarmUp(x); got != best {
			t.Fatalf("%d values are left out, want %d (seed %d)", got, best, seed)
		}
	}
}

// TestWarmUpFindsTheStep: what comes before a level that stays is left out.
func TestWarmUpFindsTheStep(t *testing.T) {
	const seed = 4
	rng := rand.New(rand.NewPCG(seed, 0))
	x := make([]float64, 200)
	for i := range x {
		x[i] = rng.NormFloat64()
		if i < 40 {
			x[i] -= 20
		}
	}
	if got := WarmUp(x); got < 40 || got > 50 {
		t.Errorf("%d values are left out, want 40 to 50 (seed %d)", got, seed)
	}
	for i := range x {
		x[i] = float64(i) // rises throughout
	}
	if got := WarmUp(x); got <= 100 {
		t.Errorf("%d of 200 values that rise are left out, want most", got)
	}
}
