package sim

import (
	"math"
	"math/rand/v2"
	"time"

	"proffer/weights"
)

// The streams of a seed. Each is its own, so that every policy meets the same
// arrivals, services, flow hashes and latencies (common random numbers). The
// first two are those of trace.Poisson: the testbed's requests are the
// simulator's.
const (
	arrivalStream = 1 + iota
	ServiceStream
	IOStream
	SplitStream
	RTTStream
	HashStream
	HopStream
	ChoiceStream
	PacketStream
	ProbeStream
	RivalStream
	FloodStream
	TurnStream
)

// sampler draws from one Distribution.
type sampler struct {
	Distribution
	rng  *rand.Rand
	next int // Listed

	mu, sigma float64 // Lognormal
	branch    float64 // Hyperexponential: probability of the faster branch
	scale     float64 // ns, Pareto: the least time; Weibull: the logarithm of the scale
}

func NewSampler(d Distribution, seed, stream uint64) *sampler {
	s := &sampler{Distribution: d, rng: rand.New(rand.NewPCG(seed, stream))}
	cv := float64(d.SD) / float64(max(1, d.Mean))
	square := float64(cv * cv)
	switch d.Kind {
	case LognormalKind:
		variance := coarse(math.Log1p(square))
		s.sigma = math.Sqrt(variance)
		s.mu = coarse(math.Log(float64(max(1, d.Mean)))) - float64(variance/2)
	case HyperexponentialKind:
		s.branch = (1 + math.Sqrt(max(0, square-1)/(square+1))) / 2
	case ParetoKind:
		s.scale = float64(d.Mean) * (d.Shape - 1) / d.Shape
	case WeibullKind:
		factorial, _ := math.Lgamma(1 + 1/d.Shape)
		s.scale = coarse(math.Log(float64(max(1, d.Mean)))) - coarse(factorial)
	}
	return s
}

// coarse drops the last bits, in which math.Log differs between machines.
func coarse(x float64) float64 { return float64(math.Round(x*(1<<36)) / (1 << 36)) }

// Draw returns the next time in whole nanoseconds, so that the last bit of a
// logarithm, which differs between machines, is gone.
func (s *sampler) Draw() float64 {
	switch s.Kind {
	case ExponentialKind:
		return math.Round(s.rng.ExpFloat64() * float64(s.Mean))
	case LognormalKind:
		return math.Round(weights.Exp(s.mu + float64(s.sigma*s.rng.NormFloat64())))
	case HyperexponentialKind:
		p := s.branch
		if s.rng.Float64() >= p {
			p = 1 - p
		}
		return math.Round(s.rng.ExpFloat64() * float64(s.Mean) / (2 * p))
	case ListedKind:
		x := s.List[s.next%len(s.List)]
		s.next++
		return float64(x)
	case ParetoKind:
		return s.bounded(s.scale * weights.Exp(s.rng.ExpFloat64()/s.Shape))
	case WeibullKind:
		return s.bounded(weights.Exp(s.scale + float64(coarse(math.Log(s.rng.ExpFloat64()))/s.Shape)))
	case BimodalKind:
		if s.rng.Float64() < s.LongShare {
			return float64(s.Long)
		}
		return float64(s.Short)
	case SampledKind:
		return float64(s.List[s.rng.IntN(len(s.List))])
	default:
		return float64(s.Mean)
	}
}

// longestTime ends the tails of Pareto and Weibull, so that sums of times stay
// inside 64 bits of nanoseconds.
const longestTime = 100 * 24 * float64(time.Hour)

func (s *sampler) bounded(x float64) float64 { return math.Round(min(x, longestTime)) }

// clock draws the instants of arrivals: a Poisson process of rate 1 seen through
// the integral of the rate.
type clock struct {
	Arrivals
	rng   *rand.Rand
	unit  float64 // of the process of rate 1
	step  int
	begin float64 // s, of the step
	area  float64 // the integral up to begin
	count int
}

func NewClock(a Arrivals, seed uint64) *clock {
	return &clock{Arrivals: a, rng: rand.New(rand.NewPCG(seed, arrivalStream))}
}

// Next is the instant of the next arrival in ns; false after the last.
func (c *clock) Next() (int64, bool) {
	if c.list != nil {
		if c.count == len(c.list) {
			return 0, false
		}
		c.count++
		return int64(c.list[c.count-1]), true
	}
	c.unit += c.rng.ExpFloat64()
	for {
		s := c.steps[c.step]
		held := float64(s.PerSecond * s.Lasting.Seconds())
		last := c.step == len(c.steps)-1 && !c.repeat
		if last || c.unit < c.area+held {
			return int64(math.Round((c.begin + (c.unit-c.area)/s.PerSecond) * float64(time.Second))), true
		}
		c.area += held
		c.begin += s.Lasting.Seconds()
		c.step = (c.step + 1) % len(c.steps)
	}
}
