package weights

import (
	"math"
	"testing"
	"time"
)

// TestPace: a change of all cores alike is pace, and no other.
func TestPace(t *testing.T) {
	for name, c := range map[string]struct {
		all   float64
		cores []float64
		want  float64
	}{
		"nothing before":                  {math.NaN(), nil, 1},
		"a burst":                         {2, []float64{2.1, 1.9}, 1.9},
		"a pause":                         {0.3, []float64{0.25, 0.35}, 0.35},
		"silence":                         {0, []float64{0, 0}, 0},
		"an elephant comes":               {1.5, []float64{1, 2}, 1},
		"an elephant ends":                {0.75, []float64{0.5, 1}, 1},
		"flows move":                      {1, []float64{1.3, 0.7}, 1},
		"a core more, and the same flows": {1, []float64{0.6, 0.6, 0.6}, 1},
		"a burst, and an elephant":        {2.2, []float64{2, 2, 2, 2.8}, 2},
	} {
		if got := pace(c.all, c.cores); got != c.want {
			t.Errorf("%s: pace %v, want %v", name, got, c.want)
		}
	}
}

// TestPausesMoveNoWeight: a tick without packets and one with twice as many, of which no core has
// another part, leave the weights beside an elephant as they are.
func TestPausesMoveNoWeight(t *testing.T) {
	f := newFluid(2, tick, 0.45)
	f.elephants[0][Ages-1] = 0.4
	for range 200 {
		f.step()
	}
	want, at, settled := f.weights[0], f.last, []ByAge{f.cores[0].seen, f.cores[1].seen}
	for n := range 40 {
		factor := 1.0
		switch n % 4 {
		case 1:
			factor = 0
		case 2:
			factor = 2
		}
		at += tick
		for i := range f.cores {
			load := settled[i]
			load.scale(factor)
			f.Observe(at, Sample{Server: i, ByAge: &load, Cost: 1})
		}
		if got := f.Weights(at)[0]; math.Abs(got-want) > 0.05 {
			t.Fatalf("tick %d of %.0f times the packets: weight %.3f, before the pauses %.3f", n, factor, got, want)
		}
	}
}

// TestSilence: ten minutes without packets is a pause that lasts, and the next flows go by shares.
func TestSilence(t *testing.T) {
	f := newFluid(2, tick, 0.45)
	for range 50 {
		f.step()
	}
	load := f.cores[0].seen
	silent := f.last + 10*time.Minute
	for at := f.last + tick; at <= silent+10*tick; at += tick {
		var now ByAge
		if at > silent {
			now = load
		}
		f.Observe(at, Sample{Server: 0, ByAge: &now, Cost: 1})
		f.Observe(at, Sample{Server: 1, ByAge: &now, Cost: 1})
		if w := f.Weights(at); !(math.Abs(w[0]-1) < 0.2) || !(math.Abs(w[0]+w[1]-2) < 1e-9) {
			t.Fatalf("weights %v after %v of silence", w, at-silent+10*time.Minute)
		}
	}
}
