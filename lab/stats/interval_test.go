package stats

import (
	"math"
	"math/rand/v2"
	"testing"
)

// autoregressive returns n values of mean 0 whose neighbours correlate by rho,
// begun in equilibrium.
func autoregressive(rng *rand.Rand, n int, rho float64) []float64 {
	x := make([]float64, n)
	last := rng.NormFloat64() / math.Sqrt(1-rho*rho)
	for i := range x {
		last = rho*last + rng.NormFloat64()
		x[i] = last
	}
	return x
}

// The interval must cover the true mean about 95 times in 100 although
// neighbours correlate; one that took them for independent would cover it in about 35.
func TestIntervalCoversTheMean(t *testing.T) {
	const seed, runs = 2, 1000
	rng := rand.New(rand.NewPCG(seed, 0))
	covered := 0
	for range runs {
		ci := MeanCI95(autoregressive(rng, 6000, 0.9))
		if math.Abs(ci.Mean) <= ci.Half {
			covered++
		}
	}
	if covered < 920 || covered > 980 {
		t.Errorf("%d of %d intervals (seed %d) cover the mean, want about 950", covered, runs, seed)
	}
}

func TestIntervalByHand(t *testing.T) {
	ci := MeanCI95([]float64{1, 2, 3, 4, 5})
	// t(0.975, 4 degrees of freedom) = 2.776445; deviation √2.5.
	want := 2.776445 * math.Sqrt(2.5) / math.Sqrt(5)
	if ci.Mean != 3 || ci.Batches != 5 || math.Abs(ci.Half-want) > 1e-5 {
		t.Errorf("got %+v, want 3 ± %v of 5 batches", ci, want)
	}
}

func TestIntervalLeavesTheStartOut(t *testing.T) {
	x := make([]float64, MaxBatches*10+3)
	x[0] = 1e9
	ci := MeanCI95(x)
	if ci.Half != 0 || ci.Mean == 0 || ci.Batches != MaxBatches {
		t.Errorf("got %+v, want the first value in the mean and in no batch", ci)
	}
}

func TestOneValueHasNoInterval(t *testing.T) {
	if ci := MeanCI95([]float64{7}); ci.Mean != 7 || !math.IsInf(ci.Half, 1) {
		t.Errorf("got %+v, want 7 ± ∞", ci)
	}
}
