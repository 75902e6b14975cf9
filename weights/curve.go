package weights

import (
	"fmt"
	"math"
)

// Curve is the cost of a packet in nanoseconds against the packets a second of its core.
// Caches are cold between rare packets: a chain below 1 µs costs 1.5 to 4 times as much
// at 30,000 packets a second as on a busy core. A curve has a knot each octave of rates
// and is straight between two, over the logarithm of the rate.
type Curve [knots]float64

const (
	knots     = 14
	firstKnot = 10 // 2^10 packets a second; below it and beyond the last, the curve is level
)

// Fixed is the same cost at all rates.
func Fixed(ns float64) (c Curve) {
	for i := range c {
		c[i] = ns
	}
	return c
}

// Measured is the cost of a packet at a rate.
type Measured struct{ PerSecond, Nanoseconds float64 }

// Through is the curve through measurements, which are in the order of their rates: straight between
// two, and level before the first and behind the last.
func Through(all ...Measured) (c Curve) {
	for i := range c {
		c[i] = between(all, math.Exp2(float64(firstKnot+i)))
	}
	return c
}

func between(all []Measured, perSecond float64) float64 {
	for i, next := range all {
		if perSecond > next.PerSecond {
			continue
		}
		if i == 0 {
			return next.Nanoseconds
		}
		was := all[i-1]
		part := math.Log2(perSecond/was.PerSecond) / math.Log2(next.PerSecond/was.PerSecond)
		return was.Nanoseconds + float64(part*(next.Nanoseconds-was.Nanoseconds))
	}
	return all[len(all)-1].Nanoseconds
}

// Average is the mean of curves, knot by knot.
func Average(all ...Curve) (c Curve) {
	for _, other := range all {
		for i, ns := range other {
			c[i] += ns / float64(len(all))
		}
	}
	return c
}

// place is the knot below a rate, and the next knot's part at the rate.
func place(perSecond float64) (knot int, next float64) {
	x := math.Log2(max(1, perSecond)) - firstKnot
	knot = min(max(int(math.Floor(x)), 0), knots-2)
	return knot, min(max(x-float64(knot), 0), 1)
}

// At is the cost at a rate.
func (c *Curve) At(perSecond float64) float64 {
	knot, next := place(perSecond)
	return float64(c[knot]*(1-next)) + float64(c[knot+1]*next)
}

// move adds to the cost near a rate.
func (c *Curve) move(perSecond, ns float64) {
	const least = 1
	knot, next := place(perSecond)
	square := float64((1-next)*(1-next)) + float64(next*next)
	c[knot] = max(least, c[knot]+float64(ns*(1-next)/square))
	c[knot+1] = max(least, c[knot+1]+float64(ns*next/square))
}

// dearest is a cost beyond which a measurement has failed.
const dearest = 1e9

// Check refuses a cost that no packet has: a core with it would get all flows, or none.
func (c *Curve) Check() error {
	for _, ns := range c {
		if !(ns > 0 && ns <= dearest) {
			return fmt.Errorf("costs %v ns a packet: want more than 0, and a second at most", ns)
		}
	}
	return nil
}

// Check refuses costs that no packet has.
func (c Costs) Check() error {
	for core, services := range c {
		for service, curve := range services {
			if err := curve.Check(); err != nil {
				return fmt.Errorf("service %d at core %d %w", service, core, err)
			}
		}
	}
	return nil
}
