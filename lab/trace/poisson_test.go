package trace

import (
	"math"
	"slices"
	"testing"
	"time"
)

const seed = 3

func TestPoissonHasItsRateMeanAndSpread(t *testing.T) {
	const n = 200_000
	arrivals := Poisson(seed, n, 500, 20*time.Millisecond)
	var gaps, services []float64
	last := time.Duration(0)
	for _, a := range arrivals {
		gaps = append(gaps, (a.At - last).Seconds())
		services = append(services, a.Service.Seconds())
		last = a.At
	}
	assertExponential(t, "gaps", gaps, 1.0/500)
	assertExponential(t, "services", services, 0.020)
}

// assertExponential compares the mean and the median (ln 2 of the mean), each
// of which 200,000 values give to about 0.3 %.
func assertExponential(t *testing.T, what string, x []float64, mean float64) {
	t.Helper()
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	slices.Sort(x)
	for name, ratio := range map[string]float64{
		"mean":   sum / float64(len(x)) / mean,
		"median": x[len(x)/2] / (mean * math.Ln2),
	} {
		if math.Abs(ratio-1) > 0.015 {
			t.Errorf("%s (seed %d): %s is %.4f of what it should be", what, seed, name, ratio)
		}
	}
}

func TestArrivalsAndServicesAreSeparateStreams(t *testing.T) {
	base := Poisson(seed, 1000, 100, 20*time.Millisecond)
	longer := Poisson(seed, 2000, 100, 20*time.Millisecond)
	slower := Poisson(seed, 1000, 100, 90*time.Millisecond)
	busier := Poisson(seed, 1000, 300, 20*time.Millisecond)
	other := Poisson(seed+1, 1000, 100, 20*time.Millisecond)
	for i, a := range base {
		if longer[i] != a {
			t.Fatalf("arrival %d (seed %d): %v in a longer trace, was %v", i, seed, longer[i], a)
		}
		if slower[i].At != a.At || busier[i].Service != a.Service {
			t.Fatalf("arrival %d (seed %d): changing one stream moved the other", i, seed)
		}
	}
	if slices.Equal(base, other) {
		t.Error("another seed gave the same trace")
	}
}

// Were both streams the same numbers, long gaps would go with long services.
func TestGapsAndServicesDoNotCorrelate(t *testing.T) {
	arrivals := Poisson(seed, 100_000, 1, time.Second)
	sum, last := 0.0, time.Duration(0)
	for _, a := range arrivals {
		sum += ((a.At - last).Seconds() - 1) * (a.Service.Seconds() - 1)
		last = a.At
	}
	if r := sum / float64(len(arrivals)); math.Abs(r) > 0.015 {
		t.Errorf("correlation %.4f (seed %d), want about 0", r, seed)
	}
}
