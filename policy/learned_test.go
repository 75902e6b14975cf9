package policy

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestInverses: an inverse is off by 2^-17 of it at most, as long as weights differ by less than 256;
// none but a server without weight has none.
func TestInverses(t *testing.T) {
	const seed = 5
	rng := rand.New(rand.NewPCG(seed, seed))
	for range 10_000 {
		w := make([]float64, 1+rng.IntN(20))
		most := 0.0
		for i := range w {
			w[i] = math.Exp(-5.5 * rng.Float64())
			most = max(most, w[i])
		}
		drained := rng.IntN(len(w) + 3)
		if drained < len(w) && w[drained] != most {
			w[drained] = 0
		}
		for i, inverse := range Inverses(w) {
			if w[i] == 0 {
				if inverse != NoInverse {
					t.Fatalf("seed %d: a server without weight has inverse %d", seed, inverse)
				}
				continue
			}
			want := InverseOne * (most / w[i])
			if off := math.Abs(float64(inverse)-want) / want; off > 1.0/(1<<17) || inverse < InverseOne {
				t.Fatalf("seed %d: inverse %d of %v, off by %g", seed, inverse, want, off)
			}
		}
	}
	for _, w := range [][]float64{nil, {0}, {0, 0}} {
		for _, inverse := range Inverses(w) {
			if inverse != NoInverse {
				t.Errorf("%v: inverse %d", w, inverse)
			}
		}
	}
	if got := Inverses([]float64{1, 1e-30}); got[1] != MostInverse {
		t.Errorf("a server that is ever so slow: %v", got)
	}
	if MostFlows < 8191 {
		t.Errorf("scores are exact up to %d flows of the slowest server", MostFlows)
	}
}
