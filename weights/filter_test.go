package weights

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

const seed = 7

func TestExpIsExp(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 200_000 {
		x := rng.Float64()*1400 - 700
		if got, want := Exp(x), math.Exp(x); math.Abs(got/want-1) > 5e-16 {
			t.Fatalf("Exp(%v) = %v, want %v (seed %d)", x, got, want, seed)
		}
	}
	for _, c := range []struct{ x, want float64 }{{0, 1}, {-1e9, 0}, {1e9, math.Inf(1)}} {
		if Exp(c.x) != c.want {
			t.Errorf("Exp(%v) = %v, want %v", c.x, Exp(c.x), c.want)
		}
	}
	if !math.IsNaN(Exp(math.NaN())) {
		t.Error("Exp(NaN) is a number")
	}
}

// TestReservoirForgets: after very many samples, how old those kept are is
// geometric with mean k.
func TestReservoirForgets(t *testing.T) {
	const k, n = 128, 400
	rng := rand.New(rand.NewPCG(seed, 1))
	sum := 0.0
	for range n {
		r := NewReservoir(k)
		for i := range 20 * k {
			r.Add(float64(i), rng.Uint64())
		}
		sum += float64(20*k) - r.Mean()
	}
	if age := sum / n; math.Abs(age/k-1) > 0.03 {
		t.Errorf("kept samples are %.1f old on average, want %d (seed %d)", age, k, seed)
	}
}

func TestReservoirMeansWhatItHolds(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed, 2))
	r := NewReservoir(32)
	if r.Mean() != 0 || r.Len() != 0 {
		t.Error("an empty reservoir has a mean")
	}
	for range 10_000 {
		r.Add(rng.ExpFloat64(), rng.Uint64())
		sum := 0.0
		for _, x := range r.samples[:r.Len()] {
			sum += x
		}
		if got, want := r.Mean(), sum/float64(r.Len()); math.Abs(got-want) > 1e-9 {
			t.Fatalf("mean %v, want %v (seed %d)", got, want, seed)
		}
	}
}

// TestKalmanIsTheMean: without drift and with a wide prior the filter is the
// running mean and its variance R/n.
func TestKalmanIsTheMean(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed, 3))
	k := Kalman{Mean: 0.5, Var: 1e9}
	sum := 0.0
	for n := 1; n <= 1000; n++ {
		z := rng.NormFloat64()
		sum += z
		k.Update(z, 4, 0)
		if math.Abs(k.Mean-sum/float64(n)) > 1e-6 || math.Abs(k.Var*float64(n)/4-1) > 1e-6 {
			t.Fatalf("after %d: %+v, want mean %v and variance %v (seed %d)", n, k, sum/float64(n), 4/float64(n), seed)
		}
	}
}

// TestKalmanFollows: with drift the gain settles at the root of
// K²/(1 − K) = Q/R.
func TestKalmanFollows(t *testing.T) {
	k := Kalman{Var: 100}
	gain := 0.0
	for range 10_000 {
		gain = k.Update(3, 0.16, 1e-4)
	}
	if math.Abs(gain*gain/(1-gain)/(1e-4/0.16)-1) > 1e-6 || math.Abs(k.Mean-3) > 1e-9 {
		t.Errorf("gain %v, mean %v", gain, k.Mean)
	}
}

func TestWeightsFavourTheFast(t *testing.T) {
	w := NewFilter(4, PublishedFilter())
	if got := w.Weights(1); got[0] != 0.25 || got[3] != 0.25 {
		t.Errorf("nothing seen: weights %v, want equal ones", got)
	}
	var got []float64
	for step := range time.Duration(1000) {
		for server := range 3 {
			w.Observe(step+2, Sample{Server: server, Value: 100 * float64(server+1)})
		}
		got = w.Weights(step + 2)
	}
	sum := 0.0
	for _, x := range got {
		sum += x
	}
	if math.Abs(sum-1) > 1e-12 {
		t.Errorf("weights sum to %v", sum)
	}
	if ratio := got[0] / got[2]; math.Abs(ratio-math.E) > 0.01 { // z = ½ and 1½
		t.Errorf("ratio of weights %v, want e", ratio)
	}
	if math.Abs(got[3]/got[1]-1) > 1e-9 {
		t.Errorf("the server never seen weighs %v, the average one %v", got[3], got[1])
	}
	if noise := w.Noise(); math.Abs(noise-0.125) > 0.001 {
		t.Errorf("R is %v, want the variance of the measurements, 0.125", noise)
	}
}

// TestFilterStepsOnceAnInstant: a second call at the same time, or at an earlier
// one, returns the same weights.
func TestFilterStepsOnceAnInstant(t *testing.T) {
	w := NewFilter(2, PublishedFilter())
	w.Observe(1, Sample{Server: 0, Value: 1})
	w.Observe(1, Sample{Server: 1, Value: 3})
	first := w.Weights(10)[0]
	for _, at := range []time.Duration{10, 3, 0} {
		if again := w.Weights(at)[0]; again != first {
			t.Errorf("weight %v at 10, then %v at %d", first, again, at)
		}
	}
	if w.Weights(11)[0] == first {
		t.Error("a later step changed nothing")
	}
}

// TestLatestStay: such a reservoir has the mean of the last k samples.
func TestLatestStay(t *testing.T) {
	const k = 32
	rng := rand.New(rand.NewPCG(seed, 4))
	f := NewFilter(1, FilterSettings{Reservoir: k, Latest: true})
	var all []float64
	for range 10 * k {
		x := rng.ExpFloat64()
		all = append(all, x)
		f.Observe(0, Sample{Value: x, Random: rng.Uint64()})
		sum, last := 0.0, all[max(0, len(all)-k):]
		for _, x := range last {
			sum += x
		}
		if got, want := f.Learned(0).Mean, sum/float64(len(last)); math.Abs(got-want) > 1e-9 {
			t.Fatalf("mean %v after %d samples, want %v (seed %d)", got, len(all), want, seed)
		}
	}
}

// TestQuickFilterFollows: of two servers the fast one becomes as slow as the other. Within 5 s,
// 10 steps of 40 samples, its weight goes nine tenths of the way; the published filter's does not.
func TestQuickFilterFollows(t *testing.T) {
	const runs = 40
	for _, c := range []struct {
		settings FilterSettings
		least    float64
		most     float64
	}{{QuickFilter(), 0.9, 1.05}, {PublishedFilter(), 0, 0.5}} {
		way := 0.0
		for run := range uint64(runs) {
			rng := rand.New(rand.NewPCG(seed, run))
			f, step := NewFilter(2, c.settings), time.Duration(0)
			after := func(steps int, fast float64) float64 {
				for range steps {
					step++
					for range 40 {
						for server, mean := range []float64{fast, 2} {
							f.Observe(step, Sample{Server: server, Value: mean * rng.ExpFloat64(), Random: rng.Uint64()})
						}
					}
					f.Weights(step)
				}
				return math.Log(f.weights[0] / f.weights[1])
			}
			before := after(200, 1)
			way += (1 - after(10, 2)/before) / runs
		}
		if way < c.least || way > c.most {
			t.Errorf("%+v: after 10 steps %.2f of the way, want %v to %v (seed %d)", c.settings, way, c.least, c.most, seed)
		}
	}
}
