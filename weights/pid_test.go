package weights

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// twoNodes is the example of docs/design/edge.md: two servers, one of them first .10 above
// the average of both; their loads follow their weights at once, by gain a
// weight. It returns that one's distance from the average, tick by tick.
func twoNodes(s Gains, gain float64, n int) []float64 {
	p := loop{Gains: s}
	path := []float64{0.10}
	for e := path[0]; len(path) <= n; path = append(path, e) {
		e -= gain * p.step(e, tick)
	}
	return path
}

// TestPublishedGainsWantTheLiteralForm: with a true derivative they swing ever
// wider; as printed they settle.
func TestPublishedGainsWantTheLiteralForm(t *testing.T) {
	published := PublishedGains()
	published.Form = True
	for i, want := range []float64{0.10, -0.09, 0.25, -0.38} {
		if got := twoNodes(published, 0.4, 3)[i]; math.Abs(got-want) > 0.005 {
			t.Errorf("true form, tick %d: %.4f, want %.2f", i, got, want)
		}
	}
	path := twoNodes(PublishedGains(), 0.4, 40)
	for i, e := range path[1:] {
		if e < -0.005 || e > path[i] && e > 0.005 {
			t.Errorf("literal form, tick %d: %v after %v", i+1, e, path[i])
		}
	}
}

// TestSettles: whatever share of the load follows the weights, up to all of two
// busy servers', both settings end at the average.
func TestSettles(t *testing.T) {
	for _, s := range []Gains{PublishedGains(), TunedGains()} {
		for _, gain := range []float64{0.1, 0.4, 0.95} {
			path := twoNodes(s, gain, 4000)
			if last := path[len(path)-1]; math.Abs(last) > 1e-3 {
				t.Errorf("%+v, gain %v: still %v from the average", s, gain, last)
			}
		}
	}
}

// TestPIDIsThePapers holds step to the paper's lines and to the textbook's.
func TestPIDIsThePapers(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed, 0))
	literal, parallel := loop{Gains: PublishedGains()}, loop{Gains: Gains{True, 0.6, 0.5, 0.125}}
	const kP, kI, kD, dt = 0.6, 0.5, 0.125, 0.03
	errSum, prevErr, integral, last := 0.0, 0.0, 0.0, 0.0
	for i := range 1000 {
		e := rng.Float64() - 0.5
		err := kP * e
		errSum += kI * err * dt
		dErr := kD * (prevErr - err) * dt
		prevErr = err
		if got, want := literal.step(e, tick), err+errSum+dErr; math.Abs(got-want) > 1e-12 {
			t.Fatalf("step %d (seed %d): literal %v, want %v", i, seed, got, want)
		}
		integral += e * dt
		want := kP*e + kI*integral + kD*(e-last)/dt
		last = e
		if got := parallel.step(e, tick); math.Abs(got-want) > 1e-12 {
			t.Fatalf("step %d (seed %d): true %v, want %v", i, seed, got, want)
		}
	}
}

func TestAboveTheAverageLosesWeight(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed, 1))
	for _, s := range []Gains{PublishedGains(), TunedGains()} {
		for range 1000 {
			c := NewPID(5, s)
			loads, mean := randomLoads(rng, 5)
			c.Weights(0)
			for i, w := range weighed(c, tick, loads) {
				if (w < 1) != (loads[i] > mean) {
					t.Fatalf("%v: load %v of mean %v has weight %v (seed %d)", s, loads[i], mean, w, seed)
				}
			}
		}
	}
}

func randomLoads(rng *rand.Rand, n int) (loads []float64, mean float64) {
	loads = make([]float64, n)
	for i := range loads {
		loads[i] = rng.Float64() / 5 // so that no weight meets the floor
		mean += loads[i] / float64(n)
	}
	return loads, mean
}

// TestSymmetry: cores have no names.
func TestSymmetry(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed, 2))
	order := rng.Perm(7)
	for _, s := range []Gains{PublishedGains(), TunedGains()} {
		a, b := NewPID(7, s), NewPID(7, s)
		for step := range 500 {
			loads, other := make([]float64, 7), make([]float64, 7)
			for i := range loads {
				loads[i] = rng.Float64()
				other[order[i]] = loads[i]
			}
			at := time.Duration(step) * tick
			theirs := weighed(b, at, other)
			for i, w := range weighed(a, at, loads) {
				if math.Abs(w-theirs[order[i]]) > 1e-9 {
					t.Fatalf("core %d has weight %v, and %v elsewhere (seed %d)", i, w, theirs[order[i]], seed)
				}
			}
		}
	}
}

// TestWeightsAreShares: never below 0, 0 outside, of mean 1, whatever happens.
func TestWeightsAreShares(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed, 3))
	c := NewPID(6, Gains{True, 0.6, 0.5, 0.125}) // the wildest
	for step := range 20_000 {
		core := rng.IntN(6)
		switch rng.IntN(20) {
		case 0:
			c.Leave(core)
		case 1:
			c.Join(core)
		}
		loads, _ := randomLoads(rng, 6)
		loads[core] *= 20
		sum := 0.0
		for i, w := range weighed(c, time.Duration(step)*tick, loads) {
			if w < 0 || math.IsNaN(w) || w > 0 && !c.member[i] {
				t.Fatalf("step %d (seed %d): weights %v of members %v", step, seed, c.weights, c.member)
			}
			sum += w
		}
		if math.Abs(sum-float64(c.count)) > 1e-9 {
			t.Fatalf("step %d (seed %d): weights sum to %v for %d members", step, seed, sum, c.count)
		}
	}
}

// weighed lets c observe the loads at an instant and returns its weights then.
func weighed(c *PID, at time.Duration, loads []float64) []float64 {
	for core, load := range loads {
		c.Observe(at, Sample{Server: core, Value: load})
	}
	return c.Weights(at)
}

// TestPIDKeepsTime: the first call sets the origin, and a clock that goes back
// moves no weight.
func TestPIDKeepsTime(t *testing.T) {
	c := NewPID(2, PublishedGains())
	if w := weighed(c, 5*time.Second, []float64{1, 0}); w[0] != 1 || w[1] != 1 {
		t.Errorf("weights %v at the origin, want equal ones", w)
	}
	before := weighed(c, 5*time.Second+tick, []float64{0.5, 0.2})[0]
	if before >= 1 {
		t.Errorf("the busier core has weight %v, want less than 1", before)
	}
	for _, at := range []time.Duration{5*time.Second + tick, 5 * time.Second} {
		if w := weighed(c, at, []float64{1, 0}); w[0] != before {
			t.Errorf("weight %v at %v, want %v still", w[0], at, before)
		}
	}
}

// TestSuspend: an hour without a tick weighs no more than a second.
func TestSuspend(t *testing.T) {
	for _, s := range []Gains{PublishedGains(), TunedGains()} {
		p, q := loop{Gains: s}, loop{Gains: s}
		if hour, second := p.step(0.2, time.Hour), q.step(0.2, time.Second); hour != second {
			t.Errorf("%v: an hour gives %v, a second %v", s, hour, second)
		}
	}
}

func TestLastOneLeaves(t *testing.T) {
	c := NewPID(2, PublishedGains())
	c.weights[0], c.weights[1] = 2, 0
	c.Leave(0)
	if w := c.Weights(0); w[0] != 0 || w[1] != 1 {
		t.Errorf("weights %v: the core that is left takes all", w)
	}
	c.Leave(1)
	if w := weighed(c, tick, []float64{1, 1}); w[0] != 0 || w[1] != 0 {
		t.Errorf("weights %v without members", w)
	}
}
