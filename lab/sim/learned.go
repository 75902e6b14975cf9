package sim

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"proffer/weights"
)

var _ = Register(Family{
	Name: "learned", Pairs: true, Sees: OwnFlows,
	Names: []Spelling{
		{"learned", "HLB: power learned from the durations of completed flows, reservoir 128; learned:K has another size", "vermillion solid"},
		{"learned2", "the same of two random servers", ""},
		{"learned:ages", "HLB with the ages of flows at data packets, reservoir 32 (Algorithm 1, the authors' code)", "vermillion dashed"},
		{"learned:ages:fixed", "HLB with a Kalman filter that does not adapt (HLB-FIX)", "vermillion dotted"},
	},
	Parse: parseLearning,
	New: func(e *Engine, p Policy) any {
		if p.Settings.(learning).completed {
			return newLearned(e, p)
		}
		return newAges(e, p)
	},
})

// learning are the settings of learned.
type learning struct {
	completed bool    // durations of completed flows, not ages at data packets
	reservoir int     // samples kept of each server
	fixedR    float64 // R stays at this (HLB-FIX); 0: it adapts
}

// parseLearning reads, in any order:
//
//	completed  durations of completed flows, reservoir 128 (the HLB paper's text); the default
//	ages       ages at data packets, reservoir 32 (its Algorithm 1 and the authors' code)
//	K          a reservoir of K samples
//	fixed      R = 0.5 throughout (HLB-FIX)
func parseLearning(p *Policy, options string) error {
	s := learning{completed: true}
	for o := range strings.SplitSeq(options, ":") {
		k, err := strconv.Atoi(o)
		switch {
		case o == "completed" || !p.Refined():
		case o == "ages":
			s.completed = false
		case o == "fixed":
			s.fixedR = 0.5
		case err == nil && k > 0 && k <= 1<<20:
			s.reservoir = k
		default:
			return fmt.Errorf("%q: want ages, completed, fixed or the size of a reservoir", o)
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
	chosen := policy.Settings.(learning)
	n := len(e.servers)
	settings := weights.PublishedFilter()
	settings.Reservoir = chosen.reservoir
	if chosen.fixedR != 0 {
		settings.Noise, settings.Alpha = chosen.fixedR, 0
	}
	p := &learned{
		counting: newCounting(e, policy.TwoChoices, func(int) float64 { return 1 / float64(n) }),
		random:   newDraws(e.result.seed, packetStream),
	}
	for range e.farm.LBs {
		p.weighers = append(p.weighers, weights.NewFilter(n, settings))
	}
	e.timers = append(e.timers, timer{policy.every(stepLength), p.step})
	return p
}

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
