package sim

import "math"

// station is one queue with the cores, or the disk, that serve it. All that run
// get the same service, so one number is the service of each of them, the attained
// service V:
//
//	dV/dt = speed · min(1, cores/n)    with n requests running
//
// and a request of demand d that starts at V is finished when V + d is reached.
// FIFO is the same with at most `cores` running, where the rate is always speed.
type station struct {
	attained float64 // ns of service, since the station was last idle
	rate     float64 // dV/dt
	at       int64   // ns, the instant of attained
	speed    float64
	cores    int32
	limit    int32 // at most this many run; the others wait in order of arrival
	waiting  int32
	head     int32 // first and last that wait, linked by request.next
	tail     int32
	running  []job   // a heap by finish
	owed     float64 // ns of service: the sum of running's finish
	lost     float64 // cores that background work takes
	queued   float64 // ns of service that waiting requests need
}

type job struct {
	finish  float64 // V at which it is done
	request int32
}

const none = -1

// present is the number of requests that are not finished.
func (s *station) present() int32 { return int32(len(s.running)) + s.waiting }

// advance moves on to now.
func (s *station) advance(now int64) {
	s.attained += float64(float64(now-s.at) * s.rate)
	s.at = now
}

// work is the work left, in ns of service, as of the last advance.
func (s *station) work() float64 {
	return s.queued + s.owed - float64(float64(len(s.running))*s.attained)
}

// slope is how fast work shrinks.
func (s *station) slope() float64 { return float64(s.rate * float64(len(s.running))) }

// settle computes the rate again and returns when the next completion is due.
func (s *station) settle() int64 {
	n := len(s.running)
	if n == 0 {
		s.attained, s.rate, s.owed = 0, 0, 0
		return never
	}
	s.rate = s.speed
	if n > int(s.cores) {
		s.rate = s.speed * float64(s.cores) / float64(n)
	}
	left := s.running[0].finish - s.attained
	if left <= 0 {
		return s.at
	}
	if s.rate != 1 {
		left /= s.rate
	}
	return s.at + int64(math.Round(left))
}

// run starts a request that demands so many ns of service.
func (s *station) run(request int32, demand float64) {
	finish := s.attained + demand
	s.owed += finish
	s.running = append(s.running, job{})
	heap, i := s.running, len(s.running)-1
	for i > 0 {
		up := (i - 1) / 2
		if heap[up].finish <= finish {
			break
		}
		heap[i] = heap[up]
		i = up
	}
	heap[i] = job{finish, request}
}

// finish takes out the first to finish. V is set, not summed: rounding does not
// add up over a busy period.
func (s *station) finish() int32 {
	heap := s.running
	first, last := heap[0], heap[len(heap)-1]
	heap = heap[:len(heap)-1]
	s.running = heap
	s.attained = first.finish
	s.owed -= first.finish
	i := 0
	for {
		c := 2*i + 1
		if c >= len(heap) {
			break
		}
		if c+1 < len(heap) && heap[c+1].finish < heap[c].finish {
			c++
		}
		if last.finish <= heap[c].finish {
			break
		}
		heap[i] = heap[c]
		i = c
	}
	if len(heap) > 0 {
		heap[i] = last
	}
	return first.request
}
