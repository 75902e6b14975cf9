package learned

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"proffer/lab/sim"
	"proffer/weights"
)

var _ = sim.Register(sim.Family{
	Name: "learned", Pairs: true, Sees: sim.OwnFlows,
	Names: []sim.Spelling{
		{Name: "learned", Means: "HLB: power learned from the durations of completed flows, the latest 128; learned:K has another number. It follows a server that changes its speed. A flow counts from its SYN, while most SYNs come to life", Drawn: "vermillion solid"},
		{Name: "learned2", Means: "the same of two random servers", Drawn: ""},
		{Name: "learned:completed", Means: "HLB with its published filter, which follows slowly: a reservoir of 128 and little drift", Drawn: ""},
		{Name: "learned:ages", Means: "HLB with the ages of flows at data packets, reservoir 32 (Algorithm 1, the authors' code)", Drawn: "vermillion dashed"},
		{Name: "learned:ages:fixed", Means: "HLB with a Kalman filter that does not adapt (HLB-FIX)", Drawn: "vermillion dotted"},
		{Name: "learned:literal", Means: "HLB where a flow counts from its first data packet, as the paper has it", Drawn: ""},
		{Name: "learned:syn", Means: "HLB where a flow counts from its SYN, even in a flood of SYNs, and no server is owed a flow", Drawn: ""},
	},
	Parse: parseLearning,
	New: func(e *sim.Engine, p sim.Policy) any {
		switch l := newLearner(e, p); p.Settings.(Learning).From {
		case AtData:
			return literal{l}
		case atAnySYN:
			return l
		default:
			return newWatchful(e, l)
		}
	},
})

// Learning are the settings of learned.
type Learning struct {
	Completed bool    // durations of completed flows, not ages at data packets
	Reservoir int     // samples kept of each server
	FixedR    float64 // R stays at this (HLB-FIX); 0: it adapts
	Published bool    // the filter is HLB's, not Proffer's
	From      begin
}

// begin is when a flow begins to count.
type begin uint8

const (
	AtSYN    begin = iota // while most SYNs come to life
	atAnySYN              // also in a flood
	AtData                // at the first data packet
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
func parseLearning(p *sim.Policy, options string) error {
	s := Learning{Completed: true}
	for o := range strings.SplitSeq(options, ":") {
		k, err := strconv.Atoi(o)
		switch {
		case !p.Refined():
		case o == "completed":
			s.Published = true
		case o == "ages":
			s.Completed, s.Published = false, true
		case o == "fixed":
			s.FixedR, s.Published = 0.5, true
		case o == "literal":
			s.From, s.Published = AtData, true
		case o == "syn":
			s.From = atAnySYN
		case err == nil && k > 0 && k <= 1<<20:
			s.Reservoir = k
		default:
			return fmt.Errorf("%q: want ages, completed, fixed, literal, syn or the size of a reservoir", o)
		}
	}
	switch {
	case s.Reservoir > 0:
	case s.Completed:
		s.Reservoir = 128
	default:
		s.Reservoir = 32
	}
	p.Settings = s
	return nil
}

// Filter are the parameters of the filters.
func (l Learning) Filter() weights.FilterSettings {
	s := weights.QuickFilter()
	if l.Published {
		s = weights.PublishedFilter()
	}
	s.Reservoir = l.Reservoir
	if l.FixedR != 0 {
		s.Noise, s.Alpha = l.FixedR, 0
	}
	return s
}

// StepLength is the time between updates of the weights of learned and awcmp, unless
// the policy has another (HLB §V-C).
const StepLength = 500e6 // ns

// learned is HLB: the weights come from flow durations, every stepLength.
type learned struct {
	*counting
	weighers []*weights.Filter // per LB
	random   sim.Draws
	drawn    uint64
}

func newLearned(e *sim.Engine, policy sim.Policy) *learned {
	settings := policy.Settings.(Learning).Filter()
	n := len(e.Servers)
	p := &learned{
		counting: newCounting(e, policy.TwoChoices, func(int) float64 { return 1 / float64(n) }),
		random:   sim.NewDraws(e.Result.Seed, sim.PacketStream),
	}
	turns := rand.New(rand.NewPCG(e.Result.Seed, sim.TurnStream))
	for lb := range e.Farm.LBs {
		p.scores[lb].InTurn(turns.Perm(n))
		p.weighers = append(p.weighers, weights.NewFilter(n, settings))
	}
	e.Every(policy.Period(StepLength), p.step)
	return p
}

// learner is learned or ages, for the rules of when a flow counts.
type learner interface {
	sim.Chooser
	sim.Tracker
	sim.Flooded
	sim.Member
	sim.Scorer
	Gains() []float64
	begin(lb, server int32, opened int64) // as Open, of a flow that began earlier
	pick(lb int32, word, hash uint64) int32
	count(lb, server int32, by float64)
	owe(lb, server int32)
	filters() []*weights.Filter // per LB
}

func newLearner(e *sim.Engine, p sim.Policy) learner {
	if p.Settings.(Learning).Completed {
		return newLearned(e, p)
	}
	return newAges(e, p)
}

func (p *learned) begin(lb, server int32, _ int64) { p.Open(lb, server) }

func (p *learned) filters() []*weights.Filter { return p.weighers }

func (p *learned) word() uint64 {
	p.drawn++
	return p.random.At(p.drawn)
}

// sample takes the duration of a flow, or its age, seen at an instant.
func (p *learned) sample(lb, server int32, at, duration int64, word uint64) {
	p.weighers[lb].Observe(time.Duration(at), weights.Sample{Server: int(server), Value: float64(duration), Random: word})
}

func (p *learned) step() {
	for lb, w := range p.weighers {
		copy(p.weights[lb], w.Weights(time.Duration(p.Instant)))
		p.rescore(int32(lb))
	}
}

// Close samples the duration of a completed flow.
func (p *learned) Close(lb, server int32, opened int64) {
	p.counting.Close(lb, server, opened)
	p.sample(lb, server, p.Instant, p.Instant-opened, p.word())
}

func (p *learned) Gains() (gains []float64) {
	for _, w := range p.weighers {
		gains = append(gains, w.Gain())
	}
	return gains
}
