package weights

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// fluid is cores with flows that begin all the time, live alike, and go by the weights; the
// elephants' loads come on top.
type fluid struct {
	*Leveller
	life      time.Duration
	load      float64     // of flows of a core, in equilibrium
	sent      [][]float64 // the load that began, a tick after the other, by core
	elephants []ByAge
	loads     []float64
}

func newFluid(n int, life time.Duration, load float64) *fluid {
	f := &fluid{Leveller: NewLeveller(n), life: life, load: load, elephants: make([]ByAge, n), loads: make([]float64, n)}
	f.Weights(0)
	return f
}

// step is a tick of steps, each a tenth of it.
func (f *fluid) step() []float64 {
	const parts = 10
	weights := f.weights
	n := float64(len(f.members))
	for range parts {
		began := make([]float64, len(f.cores))
		for i := range began {
			began[i] = f.load * float64(len(f.cores)) * weights[i] / n * (tick.Seconds() / parts) / f.life.Seconds()
		}
		f.sent = append(f.sent, began)
	}
	at := time.Duration(len(f.sent)) * tick / parts
	for i := range f.cores {
		load := f.elephants[i]
		for k := 1; k <= len(f.sent) && time.Duration(k)*tick/parts <= f.life; k++ {
			load[AgeClass(time.Duration(k)*tick/parts)] += f.sent[len(f.sent)-k][i]
		}
		f.loads[i] = load.Sum(0, Ages)
		f.Observe(at, Sample{Server: i, ByAge: &load, Cost: 1})
	}
	return f.Weights(at)
}

// TestLivesAreLearned: of flows that live a time each, the part that survives a horizon
// is known from the loads alone.
func TestLivesAreLearned(t *testing.T) {
	for _, life := range []time.Duration{50 * time.Millisecond, 200 * time.Millisecond, time.Second} {
		f := newFluid(3, life, 0.5)
		for range 300 {
			f.step()
		}
		for h := shortestHorizon; h <= 6; h++ {
			H := horizon(h).Seconds()
			want := max(0, min(1, life.Seconds()/H-1))
			if got := f.lives.young[h].survival(1e-3); math.Abs(got-want) > 0.1 {
				t.Errorf("life %v: of flows younger than %.2f s survive %.2f, want %.2f", life, H, got, want)
			}
			wide := min(life.Seconds(), 2*H) - H
			if want := max(0, life.Seconds()-2*H) / max(wide, 1e-9); wide > 0.02 {
				if got := f.lives.old[h].survival(1e-3); math.Abs(got-min(1, want)) > 0.15 {
					t.Errorf("life %v: of flows older than %.2f s survive %.2f, want %.2f", life, H, got, min(1, want))
				}
			}
			comes := 1.5 * min(1, H/life.Seconds())
			if got := f.lives.comes(h); math.Abs(got-comes) > 0.1*comes+0.03 {
				t.Errorf("life %v: in %.2f s comes %.3f, want %.3f", life, H, got, comes)
			}
		}
	}
}

// TestLivesAreLearnedBesideElephants: an elephant that comes every second and a half stops no horizon
// from being learned: each is learned half a second after one, also those that take longer to cross.
func TestLivesAreLearnedBesideElephants(t *testing.T) {
	const load = 0.3
	learned := lives{}
	var total tickLoad
	total.seen[0], total.even[0] = load, load
	at := time.Duration(0)
	pass := func(d time.Duration) {
		for end := at + d; at < end; {
			at += tick
			learned.learn(at, tick, total)
		}
	}
	pass(30 * time.Second)
	const all = 2 * longestHorizon
	total.seen, total.even = ByAge{all: load}, ByAge{all: load} // from now on flows live on
	for range 40 {
		learned.elephant = at
		pass(1500 * time.Millisecond)
	}
	for h := shortestHorizon; h <= longestHorizon; h++ {
		if young := learned.slow[h].value(); young > load/10 {
			t.Errorf("of flows younger than %v the load is %.3f, want 0: nothing is learned between elephants", horizon(h), young)
		}
	}
}

// TestLevelsWithoutSwing: an elephant is levelled in about the least time for any life,
// and then no weight moves.
func TestLevelsWithoutSwing(t *testing.T) {
	for _, life := range []time.Duration{15 * time.Millisecond, 100 * time.Millisecond, time.Second, 4 * time.Second} {
		f := newFluid(2, life, 0.45)
		for range 60 + int(2*life/tick) {
			f.step()
		}
		f.elephants[0][2] = 0.4
		after := math.Inf(1)
		for n := range 20 + int(3*life/tick) {
			if n == 4 { // it is old soon
				f.elephants[0][2], f.elephants[0][Ages-1] = 0, 0.4
			}
			f.step()
			if n > 4 && math.Abs(f.loads[0]-f.loads[1]) < 0.03 {
				after = min(after, float64(n)*tick.Seconds())
			} else if after+0.2 < float64(n)*tick.Seconds() && math.Abs(f.loads[0]-f.loads[1]) > 0.06 {
				t.Errorf("life %v: level after %.2f s, but not after %.2f: %.3f", life, after, float64(n)*tick.Seconds(), f.loads)
				break
			}
		}
		if limit := 0.3 + 0.6*life.Seconds(); after > limit {
			t.Errorf("life %v: level after %.2f s, want %.2f", life, after, limit)
		}
	}
}

// TestNoise: where loads are noisy and few flows come, a longer horizon keeps the weights
// at rest, and the loads level all the same.
func TestNoise(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed, 12))
	f := newFluid(2, time.Second, 0.4)
	sum, square, apart, n := 0.0, 0.0, 0.0, 0.0
	for step := range 1000 {
		f.elephants[0][Ages-1] = 0.3 + 0.02*rng.NormFloat64()
		f.elephants[1][Ages-1] = 0.02 * math.Abs(rng.NormFloat64())
		if w := f.step()[0]; step > 300 {
			sum, square, apart, n = sum+w, square+w*w, apart+f.loads[0]-f.loads[1], n+1
		}
	}
	if moved, apart := math.Sqrt(square/n-sum*sum/n/n), apart/n; moved > 0.3 || math.Abs(apart) > 0.03 {
		t.Errorf("weights move by %.2f, loads are %.3f apart (seed %d)", moved, apart, seed)
	}
}

// TestShareIsLevel holds the pouring to its definition, over random cores: cores with
// weight end level, and the others have more already.
func TestShareIsLevel(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed, 10))
	for range 1000 {
		n := 1 + rng.IntN(9)
		l := NewLeveller(n)
		load := rng.ExpFloat64()
		for i := range l.cores {
			l.cores[i].rest, l.cores[i].cost = rng.ExpFloat64(), 0.5+rng.Float64()
		}
		l.share(load)
		level, poured := math.Inf(-1), 0.0
		for i, w := range l.weights {
			poured += w / float64(n)
			if w > 0 {
				level = max(level, l.cores[i].rest+w/float64(n)*load*l.cores[i].cost)
			}
		}
		if math.Abs(poured-1) > 1e-9 {
			t.Fatalf("weights %v (seed %d): want mean 1", l.weights, seed)
		}
		for i, w := range l.weights {
			end := l.cores[i].rest + w/float64(n)*load*l.cores[i].cost
			if w < 0 || w > 0 && math.Abs(end-level) > 1e-9 || w == 0 && end < level-1e-9 {
				t.Fatalf("core %d of weight %v ends at %v, level is %v (seed %d)", i, w, end, level, seed)
			}
		}
	}
}

// TestLevellerKeepsShares: never below 0, 0 outside, of mean 1, whatever happens.
func TestLevellerKeepsShares(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed, 11))
	l := NewLeveller(5)
	for step := range 5000 {
		core := rng.IntN(5)
		switch rng.IntN(20) {
		case 0:
			l.Leave(core)
		case 1:
			l.Join(core)
		}
		at := time.Duration(step) * tick
		for i := range l.cores {
			var load ByAge
			for range rng.IntN(4) {
				load[rng.IntN(Ages)] = rng.ExpFloat64()
			}
			l.Observe(at, Sample{Server: i, ByAge: &load, Cost: 0.1 + rng.Float64()})
		}
		sum := 0.0
		for i, w := range l.Weights(at) {
			if !(w >= 0) || math.IsInf(w, 0) || w > 0 && !l.cores[i].member {
				t.Fatalf("step %d (seed %d): weights %v of members %v", step, seed, l.weights, l.members)
			}
			sum += w
		}
		if math.Abs(sum-float64(len(l.members))) > 1e-6 {
			t.Fatalf("step %d (seed %d): weights sum to %v for %d members", step, seed, sum, len(l.members))
		}
	}
}

// TestLevellerKeepsTime: weights are equal without a load, and a clock that stands or
// goes back moves none.
func TestLevellerKeepsTime(t *testing.T) {
	f := newFluid(3, 100*time.Millisecond, 0)
	for range 20 {
		for i, w := range f.step() {
			if math.Abs(w-1) > 1e-9 {
				t.Fatalf("core %d of an idle farm has weight %v", i, w)
			}
		}
	}
	f.elephants[0][Ages-1] = 0.5
	if w := f.step(); w[0] != 0 {
		t.Fatalf("weights %v: the core with the only load gets the next flow", w)
	}
	f.cores[1].load[Ages-1] = 2
	for _, at := range []time.Duration{f.last, f.last - tick} {
		if w := f.Weights(at); w[1] == 0 {
			t.Errorf("weights %v moved at %v, after %v", w, at, f.last)
		}
	}
}
