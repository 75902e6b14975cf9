package edgesim

import (
	"math"
	"slices"
	"time"
)

// Result is the outcome of a run.
type Result struct {
	// Packets of the whole run: Offered = Served + Dropped + Waiting.
	Offered, Served, Dropped, Waiting uint64

	// After the warm-up.
	Rate     float64       // packets served, a second
	Share    float64       // of the packets offered
	Latency  time.Duration // mean, from the LB until served
	P99      time.Duration
	Apart    float64 // busiest less idlest server's CPU, mean over the ticks' intervals, 0 to 1
	Misjudge float64 // |predicted − measured| CPU, mean over cores and intervals
	Unrest   float64 // standard deviation of the first core's weight

	Samples []Sample // for each tick, warm-up included
}

// Sample is the interval that a tick ends, by core: the predicted load, the
// share of the time the core worked, and the weight from here on.
type Sample struct {
	At                           time.Duration
	Predicted, Measured, Weights []float64
}

// binWidth and bins of the latency histogram: to 4 ms.
const (
	binWidth = 100 // ns
	bins     = 40_000
)

type tally struct {
	samples []Sample
	before  [2]uint64 // served and offered until the warm-up's end
	waits   uint64
	total   int64 // ns
	bins    [bins + 1]uint64
}

func (t *tally) wait(ns int64) {
	t.waits++
	t.total += ns
	t.bins[min(ns/binWidth, bins)]++
}

func (t *tally) sample(now int64, predicted, measured, weights []float64) {
	t.samples = append(t.samples, Sample{time.Duration(now), clone(predicted), measured, clone(weights)})
}

func clone(x []float64) []float64 { return append([]float64(nil), x...) }

func (e *engine) result() Result {
	end := int64(e.traffic.For)
	e.stalls.end(never)
	r := Result{Served: e.served(end), Offered: e.offered(), Samples: e.tally.samples}
	for i := range e.cores {
		r.Dropped += e.cores[i].dropped
		r.Waiting += uint64(e.cores[i].count)
	}
	served, offered := float64(r.Served-e.tally.before[0]), float64(r.Offered-e.tally.before[1])
	r.Rate, r.Share = served/(e.traffic.For-e.traffic.WarmUp).Seconds(), served/max(1, offered)
	if e.tally.waits > 0 {
		r.Latency = time.Duration(e.tally.total / int64(e.tally.waits))
		r.P99 = e.tally.quantile(0.99)
	}
	e.judge(&r)
	return r
}

func (t *tally) quantile(q float64) time.Duration {
	rank := uint64(math.Ceil(q * float64(t.waits)))
	for i, n := range t.bins {
		if n >= rank {
			return time.Duration(i+1) * binWidth
		}
		rank -= n
	}
	return math.MaxInt64
}

// judge takes means over the samples after the warm-up.
func (e *engine) judge(r *Result) {
	n, weight, square := 0.0, 0.0, 0.0
	for _, s := range r.Samples {
		if s.At <= e.traffic.WarmUp {
			continue
		}
		n++
		r.Apart += e.apart(s.Measured)
		for i := range s.Measured {
			r.Misjudge += math.Abs(s.Predicted[i]-s.Measured[i]) / float64(len(s.Measured))
		}
		weight += s.Weights[0]
		square += float64(s.Weights[0] * s.Weights[0])
	}
	if n == 0 {
		return
	}
	r.Apart /= n
	r.Misjudge /= n
	r.Unrest = math.Sqrt(max(0, square/n-float64(weight/n*weight/n)))
}

// apart is the distance between the busiest and the idlest server.
func (e *engine) apart(measured []float64) float64 {
	least, most := math.Inf(1), math.Inf(-1)
	for server, s := range e.farm.Servers {
		sum := 0.0
		for i, share := range measured {
			if e.cores[i].server == server {
				sum += share
			}
		}
		least, most = min(least, sum/float64(s.Cores)), max(most, sum/float64(s.Cores))
	}
	return most - least
}

// Distance is that between two loads, in the mean over LevelOver.
type Distance struct{ Until, Apart float64 } // s, parts of a core

// FirstLevel is when loads were Near first, and were so in the mean of Steady from then on; +Inf: never.
func FirstLevel(all []Distance) float64 {
	for i, first := range all {
		if first.Apart > Near {
			continue
		}
		n := slices.IndexFunc(all[i:], func(d Distance) bool { return d.Until-first.Until >= Steady.Seconds() })
		if n < 0 {
			break
		}
		sum := 0.0
		for _, d := range all[i : i+n+1] {
			sum += d.Apart
		}
		if sum/float64(n+1) <= Near {
			return first.Until
		}
	}
	return math.Inf(1)
}

// Level is how long after its second server had begun to take flows a farm of two was level, in seconds;
// +Inf: never.
func Level(samples []Sample) float64 {
	const ticks = int(LevelOver / Period)
	begun := slices.IndexFunc(samples, func(s Sample) bool { return s.Weights[1] > 0 })
	if begun < 0 {
		return math.Inf(1)
	}
	var all []Distance
	for i := begun + ticks; i < len(samples); i++ {
		apart := 0.0
		for _, s := range samples[i+1-ticks : i+1] {
			apart += (s.Measured[0] - s.Measured[1]) / float64(ticks)
		}
		all = append(all, Distance{samples[i].At.Seconds(), math.Abs(apart)})
	}
	return FirstLevel(all) - samples[begun].At.Seconds()
}
