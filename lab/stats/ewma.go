package stats

import (
	"math"
	"time"
)

// EWMA smooths points that come at irregular times (SRLB, footnote 2): a point
// that comes δt after the last weighs
//
//	α = 1 − exp(−δt / Memory)
//
// so that a point is forgotten with time, not with the number of points after
// it. The first point is taken as it is. The zero value is the paper's.
type EWMA struct {
	Memory time.Duration // 0: the paper's 1 s

	value float64
	last  time.Duration
	begun bool
}

// Add takes the point x of time at (which does not go back) and returns the
// smoothed value.
func (e *EWMA) Add(at time.Duration, x float64) float64 {
	if !e.begun {
		e.value, e.last, e.begun = x, at, true
		return x
	}
	e.value += e.weight(at-e.last) * (x - e.value)
	e.last = at
	return e.value
}

func (e *EWMA) weight(gap time.Duration) float64 {
	memory := e.Memory
	if memory == 0 {
		memory = time.Second
	}
	return -math.Expm1(-gap.Seconds() / memory.Seconds())
}
