package edgesim

import (
	"math/rand/v2"
	"slices"
	"time"

	"proffer/weights"
)

// Stalls are moments, at random, in which no packet reaches an LB; those that were due come at
// the end, all at once, as from a generator or a host that pauses. Cores go by the instants at
// which packets were due, as virtual ones do in the kernel.
type Stalls struct {
	Every   time.Duration // on average, from one's end to the next; 0: none
	Longest time.Duration // of a stall; the mean is half of it
}

// stalls are those of a run.
type stalls struct {
	ends  []int64 // of each, ns
	begun []int64
	after int // the first that ends after the last packet
	late  []latePacket
}

// latePacket is one that an LB has not seen yet.
type latePacket struct {
	at      int64 // when it does
	packets *weights.Packets
	class   int
}

func newStalls(s Stalls, until time.Duration, seed uint64) *stalls {
	all := &stalls{}
	if s.Every == 0 {
		return all
	}
	rng := rand.New(rand.NewPCG(seed, stallStream))
	for at := int64(0); at < int64(until); {
		at += int64(rng.ExpFloat64() * float64(s.Every))
		all.begun = append(all.begun, at)
		at += int64(rng.Float64() * float64(s.Longest))
		all.ends = append(all.ends, at)
	}
	return all
}

// seen is when an LB sees a packet that is due, in the order of time.
func (s *stalls) seen(at int64) int64 {
	for s.after < len(s.ends) && s.ends[s.after] <= at {
		s.after++
	}
	if s.after < len(s.ends) && s.begun[s.after] < at {
		return s.ends[s.after]
	}
	return at
}

// count counts a packet now, or at the end of a stall.
func (s *stalls) count(p packet, to *weights.Packets) {
	at := s.seen(p.at)
	class := weights.AgeClass(time.Duration(at - p.born))
	if at == p.at {
		to[class]++
		return
	}
	s.late = append(s.late, latePacket{at, to, class})
}

// end counts the packets of stalls that are over.
func (s *stalls) end(now int64) {
	for _, p := range s.late {
		if p.at <= now {
			p.packets[p.class]++
		}
	}
	s.late = slices.DeleteFunc(s.late, func(p latePacket) bool { return p.at <= now })
}
