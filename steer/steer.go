// Package steer decides how much of the new flows each core of an edge data
// centre gets (EdgeBalance §3): what a packet costs on a core times how many go
// there predicts the core's load, and a PID controller turns the distance from
// the average into weights. Nothing is asked of the servers, whose polling cores
// report 100 % whatever they do. The package has no clock, and its arithmetic
// gives the same bits on every machine; the daemon and the simulator of edge/
// run the same Tick.
//
// The paper's <server i, core j> is one index here, called a core.
package steer

import "time"

// Balancer is cost model and controller together. One goroutine owns it.
type Balancer struct {
	meter   *Meter
	control *Controller
	last    time.Duration
	begun   bool
	loads   []float64
}

// New starts with equal weights for the cores of costs, all of them members.
func New(costs Costs, s Settings) *Balancer {
	return &Balancer{
		meter:   NewMeter(costs),
		control: NewController(len(costs), s),
		loads:   make([]float64, len(costs)),
	}
}

// Tick takes the monotonic time and the packets sent so far to each core and
// service, and returns the predicted loads (1: a core that works all the time;
// more if more was sent than it can do) and the new weights, whose mean over the
// members is 1. Both stay valid until the next Tick. The first Tick only sets
// the counters' origin; one whose time did not advance changes nothing.
func (b *Balancer) Tick(now time.Duration, packets [][]uint64) (loads, weights []float64) {
	elapsed := now - b.last
	if b.begun && elapsed <= 0 {
		return b.loads, b.control.Weights()
	}
	b.meter.Loads(b.loads, elapsed, packets)
	if b.begun {
		b.control.Step(b.loads, elapsed)
	}
	b.last, b.begun = now, true
	return b.loads, b.control.Weights()
}

// Control is the controller, to tell it which cores take new flows.
func (b *Balancer) Control() *Controller { return b.control }
