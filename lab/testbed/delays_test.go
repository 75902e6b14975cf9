package testbed

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// drawn are so many delays, in ms.
func drawn(d Delay, n int) []float64 {
	source := newDelays(d, rand.New(rand.NewPCG(1, 0)))
	all := make([]float64, n)
	for i := range all {
		all[i] = source.next().Seconds() * 1e3
	}
	return all
}

// correlated is the correlation of numbers with those k before them.
func correlated(x []float64, k int) float64 {
	mean, _ := meanOf(x)
	var both, own float64
	for i := range x[k:] {
		both += (x[i] - mean) * (x[i+k] - mean)
		own += (x[i] - mean) * (x[i] - mean)
	}
	return both / own
}

func meanOf(x []float64) (mean, deviation float64) {
	for _, v := range x {
		mean += v / float64(len(x))
	}
	for _, v := range x {
		deviation += (v - mean) * (v - mean) / float64(len(x))
	}
	return mean, math.Sqrt(deviation)
}

func near(t *testing.T, name string, got, want, off float64) {
	t.Helper()
	if math.Abs(got-want) > off {
		t.Errorf("%s is %.3f, want %.3f ± %.3f", name, got, want, off)
	}
}

// TestDelaysArePareto: mean, deviation, quantiles and correlation of a million delays are those
// of Delay's equations; with and without a correlation the distribution is the same.
func TestDelaysArePareto(t *testing.T) {
	for _, rho := range []float64{0, 0.25} {
		ms := drawn(Delay{Mean: 20 * time.Millisecond, Deviation: 5 * time.Millisecond, Correlation: rho}, 1_000_000)
		mean, deviation := meanOf(ms)
		near(t, "the mean", mean, 20, 0.1)
		near(t, "the deviation", deviation, 5, 0.3) // its own deviation is large: no fourth moment
		near(t, "the correlation", correlated(ms, 1), rho, 0.01)
		near(t, "the correlation two frames later", correlated(ms, 2), rho*rho, 0.01)
		slices.Sort(ms)
		for _, part := range []float64{0, 0.5, 0.9, 0.99} {
			want := 20 + 5*(math.Pow(1-part, -1.0/3)-1.5)/math.Sqrt(0.75)
			near(t, "a quantile", ms[int(part*float64(len(ms)))], want, 0.2)
		}
	}
}

// TestDelaysHaveAnEnd: the longest tail ends at 500 ms, and nothing is negative.
func TestDelaysHaveAnEnd(t *testing.T) {
	d := Delay{Mean: 400 * time.Millisecond, Deviation: 400 * time.Millisecond}
	for _, part := range []float64{0, 1e-9, 0.5, 0.999999, math.Nextafter(1, 0)} {
		if at := d.at(part); at < 0 || at > maxDelay {
			t.Errorf("at %v: %v", part, at)
		}
	}
	if got := d.at(math.Nextafter(1, 0)); got != maxDelay {
		t.Errorf("the longest is %v", got)
	}
}

// TestFixedDelay: no deviation, no random number.
func TestFixedDelay(t *testing.T) {
	if ms := drawn(Delay{Mean: time.Second / 4, Correlation: 0.5}, 100); slices.Min(ms) != 250 || slices.Max(ms) != 250 {
		t.Errorf("from %v to %v ms", slices.Min(ms), slices.Max(ms))
	}
}
