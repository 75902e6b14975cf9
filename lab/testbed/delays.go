package testbed

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Delay is how long frames take through the delay box, one way. The zero value is no box.
//
// With a Deviation the delays follow Pareto's distribution, of a shape of 3 as in netem's
// (HLB §VI-D3, Figure 20: a long tail, no variance without end), of this mean and standard
// deviation. None is above 500 ms, which counts for little, and none below Mean less 0.58
// Deviation:
//
//	delay = Mean + Deviation · (P − 3/2) / √(3/4)    P(P > x) = x⁻³, x ≥ 1
//
// With a Correlation of ρ a frame has the delay of the frame before it, in its direction,
// with probability ρ, and else one of its own. So k frames later the correlation is ρᵏ, and
// the distribution stays, which netem's own mean of two random numbers narrows.
type Delay struct {
	Mean, Deviation time.Duration
	Correlation     float64 // 0 to below 1
}

// validate returns an error for a delay that no box has.
func (d Delay) validate() error {
	switch {
	case d.Mean < 0 || d.Mean > maxDelay:
		return fmt.Errorf("testbed: one-way delay of %v: say 0 to %v", d.Mean, maxDelay)
	case d.Deviation < 0 || d.Deviation > d.Mean:
		return fmt.Errorf("testbed: one-way delay of %v that deviates by %v: say 0 to %v", d.Mean, d.Deviation, d.Mean)
	case !(d.Correlation >= 0 && d.Correlation < 1):
		return fmt.Errorf("testbed: delays correlated by %v: say 0 to below 1", d.Correlation)
	}
	return nil
}

// delays draws a delay a frame.
type delays struct {
	of   Delay
	rng  *rand.Rand
	last time.Duration
	any  bool // there was one
}

func newDelays(d Delay, rng *rand.Rand) *delays { return &delays{of: d, rng: rng} }

func (d *delays) next() time.Duration {
	if d.of.Deviation == 0 {
		return d.of.Mean
	}
	if !d.any || d.rng.Float64() >= d.of.Correlation {
		d.any, d.last = true, d.of.at(d.rng.Float64())
	}
	return d.last
}

// at is the delay that so great a part of all, 0 to below 1, is less than.
func (d Delay) at(part float64) time.Duration {
	const shape = 3.0
	mean, deviation := shape/(shape-1), math.Sqrt(shape/(shape-2))/(shape-1)
	p := (math.Pow(1-part, -1/shape) - mean) / deviation
	return min(d.Mean+time.Duration(min(p*float64(d.Deviation), float64(maxDelay))), maxDelay)
}
