package weights

import "time"

// PID keeps the weights of cores, each a server here, by their loads
// (EdgeBalance §3): the distance from the average, through a controller a core.
// The paper speaks of a "weight change", so that is taken off the weight that a
// core has: a core above the average loses.
type PID struct {
	gains   Gains
	loops   []loop
	loads   []float64
	weights []float64
	member  []bool
	count   int
	last    time.Duration
	begun   bool
}

// NewPID starts n cores, all members, with weight 1 and load 0.
func NewPID(n int, g Gains) *PID {
	c := &PID{gains: g, loops: make([]loop, n), loads: make([]float64, n),
		weights: make([]float64, n), member: make([]bool, n)}
	for i := range n {
		c.Join(i)
	}
	return c
}

// Observe takes the load of a core, which holds until the next sample of it.
func (c *PID) Observe(_ time.Duration, s Sample) { c.loads[s.Server] = s.Value }

// Weights moves the weights of the members by their loads: 0 for cores that are
// no members, of mean 1 over the members. The first call sets only the origin of
// time.
func (c *PID) Weights(at time.Duration) []float64 {
	if c.begun && at <= c.last {
		return c.weights
	}
	if c.begun {
		c.step(at - c.last)
	}
	c.last, c.begun = at, true
	return c.weights
}

// Join lets a core take new flows, from now on with the average weight.
func (c *PID) Join(core int) {
	if c.member[core] {
		return
	}
	c.member[core] = true
	c.count++
	c.loops[core] = loop{Gains: c.gains}
	c.weights[core] = 1
	c.level()
}

// Leave ends new flows for a core; those it has stay.
func (c *PID) Leave(core int) {
	if !c.member[core] {
		return
	}
	c.member[core] = false
	c.count--
	c.weights[core] = 0
	c.level()
}

func (c *PID) step(dt time.Duration) {
	if c.count == 0 {
		return
	}
	average := c.average()
	for i := range c.weights {
		if c.member[i] {
			c.weights[i] = max(0, c.weights[i]-c.loops[i].step(c.loads[i]-average, dt))
		}
	}
	c.level()
}

func (c *PID) average() float64 {
	sum := 0.0
	for i, load := range c.loads {
		if c.member[i] {
			sum += load
		}
	}
	return sum / float64(c.count)
}

// level scales the weights to mean 1. The loops' outputs sum to zero, so this
// undoes only the error that the floor at 0 and a change of members added.
func (c *PID) level() {
	sum := 0.0
	for _, w := range c.weights {
		sum += w
	}
	if sum <= 0 { // every core that had weight has left: equal weights
		for i := range c.weights {
			if c.member[i] {
				c.weights[i] = 1
			}
		}
		return
	}
	for i := range c.weights {
		c.weights[i] *= float64(c.count) / sum
	}
}
