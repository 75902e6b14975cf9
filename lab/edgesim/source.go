package edgesim

import (
	"math"
	"math/rand/v2"
	"time"

	"proffer/weights"
)

// Streams of a seed. Traffic, costs and reports have their own, so that every
// policy meets the same packets with the same costs.
const (
	costStream = iota + 1
	noiseStream
	phaseStream
	calibrationStream
	classStream // and on

	ecmpStream   = 1000
	stallStream  = 999
	choiceStream = 1001 // and on: for each LB
)

const never = math.MaxInt64

// source makes the packets of a class in the order of time. The gap is the same
// for all its flows, so the first flow is due first again: a ring will do.
type source struct {
	Class
	rng     *rand.Rand
	begins  int64 // ns, the next flow
	clock   float64
	flows   int
	spread  float64 // of even lengths: the next one's quantile
	pending fifo
}

// packet is one that is due; left of its flow are as many, this one included,
// or 0 for ever.
type packet struct {
	at   int64
	born int64 // as the LB sees it
	core int32
	lb   uint16
	left int32
}

func newSource(c Class, seed uint64, number int) *source {
	s := &source{Class: c, rng: rand.New(rand.NewPCG(seed, uint64(classStream+number))), clock: float64(c.From)}
	s.spread = s.rng.Float64()
	s.advance()
	return s
}

// advance finds when the next flow begins.
func (s *source) advance() {
	switch {
	case s.Elephants > 0 && s.flows == s.Elephants:
		s.begins = never
		return
	case s.Elephants > 0: // spread over a gap
		s.begins = int64(s.From) + int64(s.Gap)*int64(s.flows)/int64(s.Elephants)
	case s.flows < s.underWay(): // likewise
		s.begins = int64(s.From) + int64(s.Gap)*int64(s.flows)/int64(s.underWay())
	default:
		gap := 1.0
		if !s.Even {
			gap = s.rng.ExpFloat64()
		}
		s.clock += float64(gap / s.PerSecond * float64(time.Second))
		s.begins = int64(s.clock)
	}
	s.flows++
}

// due is when the next packet comes; first: it begins a flow.
func (s *source) due() (at int64, first bool) {
	if next := s.pending.due(); next < s.begins {
		return next, false
	}
	return s.begins, true
}

// open begins the flow that is due.
func (s *source) open(lb uint16, core int32) packet {
	p := packet{at: s.begins, born: s.begins, core: core, lb: lb, left: s.length()}
	s.advance()
	return p
}

// later puts the flow's next packet in line.
func (s *source) later(p packet) {
	if p.left == 1 {
		return
	}
	p.left = max(0, p.left-1)
	p.at += int64(s.Gap)
	s.pending.push(p)
}

const golden = 0.6180339887498949 // its multiples fill the unit interval evenly

func (s *source) length() int32 {
	switch {
	case s.Elephants > 0:
		return 0
	case s.flows <= s.underWay(): // flows counts this one
		return whole(s.rests(1 - (float64(s.flows)-0.5)/float64(s.underWay())))
	case s.Tail == 0:
		return int32(math.Round(s.Packets))
	}
	s.spread += golden
	s.spread -= math.Floor(s.spread)
	u := s.spread
	if !s.Even {
		u = s.rng.Float64()
	}
	// Pareto: x_m·(1 − u)^(−1/a), its mean x_m·a/(a − 1).
	return whole(s.least() * weights.Exp(-math.Log1p(-u)/s.Tail))
}

// whole is a number of packets.
func whole(x float64) int32 { return int32(max(1, min(math.Round(x), math.MaxInt32))) }

// fifo is a ring of packets that grows.
type fifo struct {
	ring        []packet
	head, count int
}

func (f *fifo) due() int64 {
	if f.count == 0 {
		return never
	}
	return f.ring[f.head].at
}

func (f *fifo) push(p packet) {
	if f.count == len(f.ring) {
		grown := make([]packet, max(64, 2*len(f.ring)))
		n := copy(grown, f.ring[f.head:])
		copy(grown[n:], f.ring[:f.head])
		f.ring, f.head = grown, 0
	}
	f.ring[(f.head+f.count)&(len(f.ring)-1)] = p
	f.count++
}

func (f *fifo) pop() packet {
	p := f.ring[f.head]
	f.head = (f.head + 1) & (len(f.ring) - 1)
	f.count--
	return p
}
