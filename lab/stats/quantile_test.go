package stats

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// slowQuantile is the definition, word by word.
func slowQuantile(sorted []float64, q float64) float64 {
	for i, x := range sorted {
		if float64(i+1) >= q*float64(len(sorted)) {
			return x
		}
	}
	return math.NaN()
}

func TestQuantileIsTheDefinition(t *testing.T) {
	const seed = 1
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		x := make([]float64, 1+rng.IntN(200))
		for i := range x {
			x[i] = rng.ExpFloat64()
		}
		slices.Sort(x)
		for _, q := range []float64{0, 0.01, 0.5, 0.9, 0.99, 1} {
			if got, want := Quantile(x, q), slowQuantile(x, q); got != want {
				t.Fatalf("quantile %v of %d values (seed %d): got %v, want %v", q, len(x), seed, got, want)
			}
		}
	}
}

func TestSummarize(t *testing.T) {
	x := make([]float64, 100)
	for i := range x {
		x[i] = float64(100 - i)
	}
	got := Summarize(x)
	want := Summary{N: 100, Mean: 50.5, P50: 50, P90: 90, P99: 99}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if x[0] != 100 {
		t.Error("Summarize sorted its argument")
	}
}

func TestNothingMeasuredIsNaN(t *testing.T) {
	s := Summarize(nil)
	for _, x := range []float64{s.Mean, s.P50, s.P90, s.P99} {
		if !math.IsNaN(x) {
			t.Errorf("summary of nothing: got %+v, want NaN throughout", s)
		}
	}
}
