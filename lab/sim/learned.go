package sim

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"proffer/weights"
)

var _ = Register(Family{
	Name: "learned", Pairs: true, Sees: OwnFlows,
	Names: []Spelling{
		{Name: "learned", Means: "HLB: power learned from the durations of completed flows, the latest 128; learned:K has another number. It follows a server that changes its speed. A flow counts from its SYN, while most SYNs come to life", Drawn: "vermillion solid"},
		{Name: "learned2", Means: "the same of two random servers", Drawn: ""},
		{Name: "learned:completed", Means: "HLB with its published filter, which follows slowly: a reservoir of 128 and little drift", Drawn: ""},
		{Name: "learned:ages", Means: "HLB with the ages of flows at data packets, reservoir 32 (Algorithm 1, the authors' code)", Drawn: "vermillion dashed"},
		{Name: "learned:ages:fixed", Means: "HLB with a Kalman filter that does not adapt (HLB-FIX)", Drawn: "vermillion dotted"},
		{Name: "learned:literal", Means: "HLB where a flow counts from its first data packet, as the paper has it", Drawn: ""},
		{Name: "learned:syn", Means: "HLB where a flow counts from its SYN, even in a flood of SYNs, and no server is owed a flow", Drawn: ""},
	},
	Parse: parseLearning,
	New: func(e *Engine, p Policy) any {
		switch l := newLearner(e, p); p.Settings.(learning).from {
		case atData:
			return literal{l}
		case atAnySYN:
			return l
		default:
			return newWatchful(e, l)
		}
	},
})

// learning are the settings of learned.
type learning struct {
	completed bool    // durations of completed flows, not ages at data packets
	reservoir int     // samples kept of each server
	fixedR    float64 // R stays at this (HLB-FIX); 0: it adapts
	published bool    // the filter is HLB's, not Proffer's
	from      begin
}

// begin is when a flow begins to count.
type begin uint8

const (
	atSYN    begin = iota // while most SYNs come to life
	atAnySYN              // also in a flood
	atData                // at the first data packet
)

// parseLearning reads, in any order:
//
//	completed  durations of completed flows, reservoir 128 (the HLB paper's text)
//	ages       ages at data packets, reservoir 32 (its Algorithm 1 and the authors' code)
//	K          a reservoir of K samples
//	fixed      R = 0.5 throughout (HLB-FIX)
//	literal    a flow counts from its first data packet (HLB §IV-A)
//	syn        a flow counts from its SYN, also in a flood of SYNs
//
// All of the paper's have its filter; without any, durations of completed flows have
// weights.QuickFilter.
func parseLearning(p *Policy, options string) error {
	s := learning{completed: true}
	for o := range strings.SplitSeq(options, ":") {
		k, err := strconv.Atoi(o)
		switch {
		case !p.Refined():
		case o == "completed":
			s.published = true
		case o == "ages":
			s.completed, s.published = false, true
		case o == "fixed":
			s.fixedR, s.published = 0.5, true
		case o == "literal":
			s.from, s.published = atData, true
		case o == "syn":
			s.from = atAnySYN
		case err == nil && k > 0 && k <= 1<<20:
			s.reservoir = k
		default:
			return fmt.Errorf("%q: want ages, completed, fixed, literal, syn or the size of a reservoir", o)
		}
	}
	switch {
	case s.reservoir > 0:
	case s.completed:
		s.reservoir = 128
	default:
		s.reservoir = 32
	}
	p.Settings = s
	return nil
}

// filter are the parameters of the filters.
func (l learning) filter() weights.FilterSettings {
	s := weights.QuickFilter()
	if l.published {
		s = weights.PublishedFilter()
	}
	s.Reservoir = l.reservoir
	if l.fixedR != 0 {
		s.Noise, s.Alpha = l.fixedR, 0
	}
	return s
}

// stepLength is the time between updates of the weights of learned and awcmp, unless
// the policy has another (HLB §V-C).
const stepLength = 500e6 // ns

// learned is HLB: the weights come from flow durations, every stepLength.
type learned struct {
	*counting
	weighers []*weights.Filter // per LB
	random   draws
	drawn    uint64
}

func newLearned(e *Engine, policy Policy) *learned {
	settings := policy.Settings.(learning).filter()
	n := len(e.servers)
	p := &learned{
		counting: newCounting(e, policy.TwoChoices, func(int) float64 { return 1 / float64(n) }),
		random:   newDraws(e.result.seed, packetStream),
	}
	turns := rand.New(rand.NewPCG(e.result.seed, turnStream))
	for lb := range e.farm.LBs {
		p.scores[lb].inTurn(turns.Perm(n))
		p.weighers = append(p.weighers, weights.NewFilter(n, settings))
	}
	e.Every(policy.every(stepLength), p.step)
	return p
}

// learner is learned or ages, for the rules of when a flow counts.
type learner interface {
	Chooser
	Tracker
	Flooded
	Member
	scorer
	gains() []float64
	begin(lb, server int32, opened int64) // as Open, of a flow that began earlier
	pick(lb int32, word, hash uint64) int32
	count(lb, server int32, by float64)
	owe(lb, server int32)
	filters() []*weights.Filter // per LB
}

func newLearner(e *Engine, p Policy) learner {
	if p.Settings.(learning).completed {
		return newLearned(e, p)
	}
	return newAges(e, p)
}

func (p *learned) begin(lb, server int32, _ int64) { p.Open(lb, server) }

func (p *learned) filters() []*weights.Filter { return p.weighers }

func (p *learned) word() uint64 {
	p.drawn++
	return p.random.at(p.drawn)
}

// sample takes the duration of a flow, or its age, seen at an instant.
func (p *learned) sample(lb, server int32, at, duration int64, word uint64) {
	p.weighers[lb].Observe(time.Duration(at), weights.Sample{Server: int(server), Value: float64(duration), Random: word})
}

func (p *learned) step() {
	for lb, w := range p.weighers {
		copy(p.weights[lb], w.Weights(time.Duration(p.now)))
		p.rescore(int32(lb))
	}
}

// Close samples the duration of a completed flow.
func (p *learned) Close(lb, server int32, opened int64) {
	p.counting.Close(lb, server, opened)
	p.sample(lb, server, p.now, p.now-opened, p.word())
}

func (p *learned) gains() (gains []float64) {
	for _, w := range p.weighers {
		gains = append(gains, w.Gain())
	}
	return gains
}
