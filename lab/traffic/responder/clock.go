package responder

import (
	"slices"
	"sync"
	"time"
)

// Clock wakes servers at exact instants: one timer for all servers of a
// process, so that 48 cost no more than one.
type Clock struct {
	start time.Time
	timer *Timer
	ended chan struct{}

	mu     sync.Mutex
	alarms []*alarm // scanned, not a heap: a process runs some dozens of servers
	armed  time.Duration
	closed bool
}

// alarm calls ring on the clock's goroutine at the instant it was last set to.
// ring must be short and may set alarms.
type alarm struct {
	clock *Clock
	at    time.Duration // guarded by clock.mu
	ring  func(now time.Duration)
}

// NewClock starts the clock; Close ends it.
func NewClock() (*Clock, error) {
	timer, err := NewTimer()
	if err != nil {
		return nil, err
	}
	c := &Clock{start: time.Now(), timer: timer, armed: never, ended: make(chan struct{})}
	go c.run()
	return c, nil
}

// Close returns when no alarm rings any more. A second Close does nothing.
func (c *Clock) Close() error {
	c.mu.Lock()
	c.closed = true
	c.timer.Interrupt()
	c.mu.Unlock()
	<-c.ended
	c.timer.Close()
	return nil
}

// now is the time since the clock was made.
func (c *Clock) now() time.Duration { return time.Since(c.start) }

func (c *Clock) newAlarm(ring func(now time.Duration)) *alarm {
	a := &alarm{clock: c, at: never, ring: ring}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.alarms = append(c.alarms, a)
	return a
}

// remove forgets the alarm. It may still ring once if it is doing so just now.
func (a *alarm) remove() {
	c := a.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	c.alarms = slices.DeleteFunc(c.alarms, func(other *alarm) bool { return other == a })
}

// set moves the alarm; one instant a time, never for none.
func (a *alarm) set(at time.Duration) {
	a.clock.mu.Lock()
	defer a.clock.mu.Unlock()
	a.at = at
	a.clock.rearm()
}

// rearm sets the timer to the earliest alarm. The caller holds mu.
func (c *Clock) rearm() {
	earliest := never
	for _, a := range c.alarms {
		earliest = min(earliest, a.at)
	}
	if earliest != c.armed && !c.closed {
		c.armed = earliest
		c.timer.Set(c.delay(earliest))
	}
}

func (c *Clock) delay(at time.Duration) time.Duration {
	if at == never {
		return never
	}
	return at - c.now()
}

func (c *Clock) run() {
	defer close(c.ended)
	for c.timer.Wait() {
		now := c.now()
		for _, a := range c.due(now) {
			a.ring(now)
		}
	}
}

// due takes the alarms that ring at now and arms the timer for the others.
func (c *Clock) due(now time.Duration) (due []*alarm) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed = never // the timer has expired
	for _, a := range c.alarms {
		if a.at <= now {
			a.at = never
			due = append(due, a)
		}
	}
	c.rearm()
	return due
}
