package sim

import "math"

// Station is one queue with the cores, or the disk, that serve it. All that run
// get the same service, so one number is the service of each of them, the attained
// service V:
//
//	dV/dt = speed · min(1, cores/n)    with n requests running
//
// and a request of demand d that starts at V is finished when V + d is reached.
// FIFO is the same with at most `cores` running, where the rate is always speed.
type Station struct {
	Attained float64 // ns of service, since the station was last idle
	Rate     float64 // dV/dt
	At       int64   // ns, the instant of attained
	Speed    float64
	Cores    int32
	limit    int32 // at most this many run; the others wait in order of arrival
	Waiting  int32
	Head     int32 // first and last that wait, linked by request.next
	tail     int32
	Running  []job   // a heap by finish
	owed     float64 // ns of service: the sum of running's finish
	lost     float64 // cores that background work takes
	queued   float64 // ns of service that waiting requests need
}

type job struct {
	Finish  float64 // V at which it is done
	request int32
}

const None = -1

// Present is the number of requests that are not finished.
func (s *Station) Present() int32 { return int32(len(s.Running)) + s.Waiting }

// Advance moves on to now.
func (s *Station) Advance(now int64) {
	s.Attained += float64(float64(now-s.At) * s.Rate)
	s.At = now
}

// Work is the work left, in ns of service, as of the last advance.
func (s *Station) Work() float64 {
	return s.queued + s.owed - float64(float64(len(s.Running))*s.Attained)
}

// Slope is how fast work shrinks.
func (s *Station) Slope() float64 { return float64(s.Rate * float64(len(s.Running))) }

// settle computes the rate again and returns when the next completion is due.
func (s *Station) settle() int64 {
	n := len(s.Running)
	if n == 0 {
		s.Attained, s.Rate, s.owed = 0, 0, 0
		return Never
	}
	s.Rate = s.Speed
	if n > int(s.Cores) {
		s.Rate = s.Speed * float64(s.Cores) / float64(n)
	}
	left := s.Running[0].Finish - s.Attained
	if left <= 0 {
		return s.At
	}
	if s.Rate != 1 {
		left /= s.Rate
	}
	return s.At + int64(math.Round(left))
}

// run starts a request that demands so many ns of service.
func (s *Station) run(request int32, demand float64) {
	finish := s.Attained + demand
	s.owed += finish
	s.Running = append(s.Running, job{})
	heap, i := s.Running, len(s.Running)-1
	for i > 0 {
		up := (i - 1) / 2
		if heap[up].Finish <= finish {
			break
		}
		heap[i] = heap[up]
		i = up
	}
	heap[i] = job{finish, request}
}

// finish takes out the first to finish. V is set, not summed: rounding does not
// add up over a busy period.
func (s *Station) finish() int32 {
	heap := s.Running
	first, last := heap[0], heap[len(heap)-1]
	heap = heap[:len(heap)-1]
	s.Running = heap
	s.Attained = first.Finish
	s.owed -= first.Finish
	i := 0
	for {
		c := 2*i + 1
		if c >= len(heap) {
			break
		}
		if c+1 < len(heap) && heap[c+1].Finish < heap[c].Finish {
			c++
		}
		if last.Finish <= heap[c].Finish {
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
