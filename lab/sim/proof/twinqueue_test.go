package proof

import (
	"math"
	"slices"

	"proffer/lab/sim"
)

// The slow twin's servers.

func (s *slow) enqueue(_ *host, q *queue, r *flow) {
	r.left, r.waits = r.stages[0], true
	q.waiting = append(q.waiting, r)
	q.admit()
}

func (q *queue) admit() {
	for len(q.waiting) > 0 && len(q.running) < q.limit {
		q.running = append(q.running, q.waiting[0])
		q.waiting = q.waiting[1:]
	}
}

func (q *queue) rate() float64 {
	return q.speed * min(1, q.cores/float64(max(1, len(q.running))))
}

// pass lets time go by at every queue.
func (s *slow) pass(to int64) {
	for _, h := range s.hosts {
		for _, q := range []*queue{&h.cpu, &h.disk} {
			for _, r := range q.running {
				r.left -= float64(to-s.now) * q.rate()
			}
		}
	}
	s.now = to
}

func (s *slow) firstCompletion() (at int64, first *queue, of *host) {
	at = sim.Never
	for disk := range 2 {
		for _, h := range s.hosts {
			q := &h.cpu
			if disk == 1 {
				q = &h.disk
			}
			for _, r := range q.running {
				if due := s.now + int64(math.Round(max(0, r.left)/q.rate())); due < at {
					at, first, of = due, q, h
				}
			}
		}
	}
	return at, first, of
}

func (s *slow) finish(h *host, q *queue) {
	r := slices.MinFunc(q.running, func(a, b *flow) int {
		if a.left < b.left {
			return -1
		}
		return 1
	})
	q.running = slices.DeleteFunc(q.running, func(x *flow) bool { return x == r })
	q.admit()
	r.waits = false
	r.stages = r.stages[1:]
	r.onDisk = !r.onDisk
	switch {
	case len(r.stages) == 0:
		h.taken--
		h.mean.Add(float64(r.Service) / h.cpu.speed)
		s.unassign(r)
		if s.served != nil {
			s.served(r)
		}
		s.answer(r, false)
	case r.onDisk:
		s.enqueue(h, &h.disk, r)
	default:
		s.enqueue(h, &h.cpu, r)
	}
}
