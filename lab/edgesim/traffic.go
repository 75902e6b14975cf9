package edgesim

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Traffic is the classes of flows, and their duration.
type Traffic struct {
	Classes []Class
	For     time.Duration
	WarmUp  time.Duration // of For, not counted in means
	Stalls  Stalls
}

// Class is flows of one kind. It has either a number of them that last for ever
// (elephants) or a rate at which they begin (mice).
type Class struct {
	Service   int
	From      time.Duration // the first flow does not begin before
	Elephants int
	PerSecond float64
	Even      bool // mice begin, and their lengths are spread, evenly: no Poisson process
	Filled    bool // at From as many mice are under way as in equilibrium, each with the rest of its packets
	Packets   float64
	Tail      float64       // 0: all mice have Packets; else Pareto's shape, Packets being the mean
	Gap       time.Duration // between two packets of a flow
}

// Load is the class's load of one core at the given cost, once it is in
// equilibrium.
func (c Class) Load(cost time.Duration) float64 {
	if c.Elephants > 0 {
		return float64(c.Elephants) * float64(cost) / float64(c.Gap)
	}
	return c.PerSecond * c.Packets * cost.Seconds()
}

// underWay is how many mice of a filled class there are when it begins.
func (c Class) underWay() int {
	if !c.Filled {
		return 0
	}
	return int(math.Round(c.PerSecond * c.Packets * c.Gap.Seconds()))
}

// least is Pareto's shortest length of mice, x_m = mean·(a − 1)/a.
func (c Class) least() float64 { return c.Packets * (c.Tail - 1) / c.Tail }

// Rest is the part of a load in equilibrium that is left after a time if no flow follows. With x_m, Pareto's
// shortest life, it is 1 − t/mean up to x_m, and (1/a)·(x_m/t)^(a−1) from there on.
func (c Class) Rest(after time.Duration) float64 {
	t := float64(after) / float64(c.Gap)
	if c.Tail == 0 || t <= c.least() {
		return max(0, 1-t/c.Packets)
	}
	return math.Pow(c.least()/t, c.Tail-1) / c.Tail
}

// rests is the inverse of Rest: how many packets are left of a flow under way that this part of its kind
// outlives.
func (c Class) rests(part float64) float64 {
	if c.Tail == 0 || part >= 1/c.Tail {
		return c.Packets * (1 - part)
	}
	return c.least() * math.Pow(c.Tail*part, -1/(c.Tail-1))
}

func (t Traffic) check(services int) error {
	if len(t.Classes) == 0 {
		return errors.New("traffic needs a class of flows")
	}
	if t.For <= 0 || t.WarmUp < 0 || t.WarmUp >= t.For {
		return fmt.Errorf("traffic for %v with a warm-up of %v: want more than 0, and less warm-up", t.For, t.WarmUp)
	}
	for i, c := range t.Classes {
		if err := c.check(services); err != nil {
			return fmt.Errorf("class %d: %w", i, err)
		}
	}
	return nil
}

func (c Class) check(services int) error {
	switch {
	case c.Service < 0 || c.Service >= services:
		return fmt.Errorf("service %d: want 0 to %d", c.Service, services-1)
	case c.Gap < 1:
		return fmt.Errorf("a gap of %v between packets: want more than 0", c.Gap)
	case c.From < 0:
		return fmt.Errorf("begins at %v: want 0 or later", c.From)
	case c.Elephants < 0 || c.PerSecond < 0 || (c.Elephants > 0) == (c.PerSecond > 0):
		return fmt.Errorf("%d elephants and %v mice a second: want one of the two", c.Elephants, c.PerSecond)
	case c.PerSecond > 0 && c.Packets < 1:
		return fmt.Errorf("mice of %v packets: want at least 1", c.Packets)
	case c.Filled && c.Elephants > 0:
		return errors.New("elephants are always under way: want mice")
	case c.Tail != 0 && c.Tail <= 1:
		return fmt.Errorf("a tail of shape %v has no mean: want more than 1, or 0 for flows alike", c.Tail)
	}
	return nil
}
