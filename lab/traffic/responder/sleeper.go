package responder

import (
	"sync"
	"time"
)

// sleeper puts requests to sleep for as long as a Machine would work on them.
type sleeper struct {
	clock *Clock
	alarm *alarm
	quit  chan struct{} // closed: no sleeper is left

	mu    sync.Mutex
	cores *Cores
	ready map[int]chan struct{} // by job, closed at its completion
}

func newSleeper(m Machine, clock *Clock) *sleeper {
	s := &sleeper{
		clock: clock,
		quit:  make(chan struct{}),
		cores: NewCores(m),
		ready: map[int]chan struct{}{},
	}
	s.alarm = clock.newAlarm(s.ring)
	return s
}

// sleep returns when demand has been worked off, or false at close.
func (s *sleeper) sleep(demand time.Duration) bool {
	ready := make(chan struct{})
	s.begin(demand, ready)
	select {
	case <-ready:
		return true
	case <-s.quit:
		return false
	}
}

func (s *sleeper) begin(demand time.Duration, ready chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.now()
	s.ready[s.cores.Arrive(now, demand)] = ready
	s.settle(now)
}

func (s *sleeper) ring(now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle(now)
}

// settle wakes the requests that are done by now and sets the alarm to the next completion.
// The caller holds mu.
func (s *sleeper) settle(now time.Duration) {
	for _, done := range s.cores.Advance(now) {
		close(s.ready[done.Job])
		delete(s.ready, done.Job)
	}
	next, some := s.cores.Next()
	if !some {
		next = never
	}
	s.alarm.set(next)
}

// setSpeed changes the speed of the cores from now on.
func (s *sleeper) setSpeed(speed float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.now()
	s.cores.SetSpeed(now, speed)
	s.settle(now)
}

func (s *sleeper) counts() (inHand, inService int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cores.InHand(), s.cores.InService()
}

func (s *sleeper) close() {
	s.alarm.remove()
	close(s.quit)
}
