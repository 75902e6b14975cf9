package steer

import "time"

// Controller keeps the weights of the cores: the share of new flows that each
// gets. The paper speaks of a "weight change", so what the PID says is taken off
// the weight that a core has: a core above the average loses.
type Controller struct {
	settings Settings
	pids     []PID
	weights  []float64
	member   []bool
	count    int
}

// NewController starts n cores, all members, with weight 1.
func NewController(n int, s Settings) *Controller {
	c := &Controller{settings: s, pids: make([]PID, n), weights: make([]float64, n), member: make([]bool, n)}
	for i := range n {
		c.Join(i)
	}
	return c
}

// Weights are those of the last change: none below 0, 0 for cores that are no
// members, and of mean 1 over the members.
func (c *Controller) Weights() []float64 { return c.weights }

// Join lets a core take new flows, from now on with the average weight.
func (c *Controller) Join(core int) {
	if c.member[core] {
		return
	}
	c.member[core] = true
	c.count++
	c.pids[core] = PID{Settings: c.settings}
	c.weights[core] = 1
	c.level()
}

// Leave ends new flows for a core; those it has stay.
func (c *Controller) Leave(core int) {
	if !c.member[core] {
		return
	}
	c.member[core] = false
	c.count--
	c.weights[core] = 0
	c.level()
}

// Step moves the weights of the members by their loads, dt after the last Step.
func (c *Controller) Step(loads []float64, dt time.Duration) []float64 {
	if c.count == 0 || dt <= 0 {
		return c.weights
	}
	average := c.average(loads)
	for i := range c.weights {
		if c.member[i] {
			c.weights[i] = max(0, c.weights[i]-c.pids[i].Step(loads[i]-average, dt))
		}
	}
	c.level()
	return c.weights
}

func (c *Controller) average(loads []float64) float64 {
	sum := 0.0
	for i, load := range loads {
		if c.member[i] {
			sum += load
		}
	}
	return sum / float64(c.count)
}

// level scales the weights to mean 1. The PIDs' outputs sum to zero, so this
// undoes only what the floor at 0 and a change of members added.
func (c *Controller) level() {
	sum := 0.0
	for _, w := range c.weights {
		sum += w
	}
	if sum <= 0 { // everybody who had weight has left: all alike again
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
