package responder

import (
	"container/heap"
	"math"
	"time"
)

// Cores is one Machine in virtual time. All that run get the same service, so
// one number is the service of each of them: the attained service V,
//
//	dV/dt = speed·min(1, cores/n)    with n requests running
//
// and a request of demand d that starts at V is finished when V + d is reached.
// A heap by that number makes an event cost O(log n). FIFO is the same with at
// most Cores running, where the rate is always the speed.
//
// It has no clock: completions are booked at their exact instants however late
// Advance is called, and a request that waited starts at the instant at which a
// worker was freed. Not safe for concurrent use.
type Cores struct {
	machine  Machine
	now      float64 // ns; float64 so that no rate rounds, exact to 0.1 ns for 10 days
	attained float64 // ns, since the machine was last idle
	running  byFinish
	waiting  []request
	finished []Completion // booked, not yet handed over by Advance
	arrivals int
}

// Completion is a request that Cores has finished, by the number that Arrive
// gave it.
type Completion struct {
	Job int
	At  time.Duration
}

type request struct {
	job    int
	demand float64 // ns
}

// NewCores returns an idle machine at time 0.
func NewCores(m Machine) *Cores { return &Cores{machine: m} }

// Arrive takes a request that needs demand (≥ 0) of one core and returns its
// number: 0, 1, 2 … An instant before one already seen counts as that one.
func (c *Cores) Arrive(at, demand time.Duration) int {
	c.book(at)
	job := c.arrivals
	c.arrivals++
	c.waiting = append(c.waiting, request{job, float64(demand)})
	c.start()
	return job
}

// SetSpeed changes the speed of every core from the instant at on: as other work on the
// machine would.
func (c *Cores) SetSpeed(at time.Duration, speed float64) {
	c.book(at)
	c.machine.Speed = speed
}

// Next is the instant of the next completion, if nothing arrives before it, that
// Advance will return; false when nothing runs. It is in the past if an Arrive
// has booked it on its way.
func (c *Cores) Next() (time.Duration, bool) {
	if len(c.finished) > 0 {
		return c.finished[0].At, true
	}
	if len(c.running) == 0 {
		return 0, false
	}
	return round(c.nextFinish()), true
}

// Advance moves on to the instant to and returns all completions up to it that
// it has not returned before, in order of time.
func (c *Cores) Advance(to time.Duration) []Completion {
	c.book(to)
	finished := c.finished
	c.finished = nil
	return finished
}

// InHand is the number of requests that are not finished, InService that of
// those that run: the others wait for a worker or, under FIFO, for a core.
func (c *Cores) InHand() int    { return len(c.running) + len(c.waiting) }
func (c *Cores) InService() int { return len(c.running) }

func (c *Cores) book(to time.Duration) {
	for len(c.running) > 0 && round(c.nextFinish()) <= to {
		c.finishFirst()
		c.start()
	}
	c.moveTo(float64(to))
}

func (c *Cores) finishFirst() {
	now := c.nextFinish()
	first := heap.Pop(&c.running).(started)
	// Set, not summed: rounding does not add up over a busy period.
	c.now, c.attained = now, first.finish
	c.finished = append(c.finished, Completion{first.job, round(now)})
}

// start lets waiting requests run while there is room.
func (c *Cores) start() {
	if len(c.running) == 0 {
		c.attained = 0
	}
	for len(c.waiting) > 0 && len(c.running) < c.machine.running() {
		next := c.waiting[0]
		c.waiting = c.waiting[1:]
		heap.Push(&c.running, started{next.job, c.attained + next.demand})
	}
}

func (c *Cores) moveTo(to float64) {
	if to <= c.now {
		return
	}
	c.attained += (to - c.now) * c.rate()
	c.now = to
}

func (c *Cores) nextFinish() float64 {
	return c.now + (c.running[0].finish-c.attained)/c.rate()
}

// rate is the service that each running request gets in a unit of time.
func (c *Cores) rate() float64 {
	return c.machine.speed() * min(1, float64(c.machine.Cores)/float64(max(1, len(c.running))))
}

func round(ns float64) time.Duration { return time.Duration(math.Round(ns)) }

// started is a running request and the attained service at which it is done.
type started struct {
	job    int
	finish float64 // ns
}

// byFinish is a heap; of equals the one that came first ends first.
type byFinish []started

func (h byFinish) Len() int { return len(h) }
func (h byFinish) Less(i, j int) bool {
	if h[i].finish != h[j].finish {
		return h[i].finish < h[j].finish
	}
	return h[i].job < h[j].job
}
func (h byFinish) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *byFinish) Push(x any)   { *h = append(*h, x.(started)) }
func (h *byFinish) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	*h = (*h)[:last]
	return x
}
