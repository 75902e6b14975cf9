// Package queue is the analytic model of hunting (6LB §V): a farm of many
// servers at a given load, with no simulation and no randomness. Flows
// arrive as a Poisson process of rate λ a server, service is exponential with
// mean 1 (so times are in units of the mean service time), each server works
// first come first served on one core, the two candidates of a flow are any two
// servers, and their number N → ∞.
//
// s_n is the share of servers with n or more flows. All else follows from it.
package queue

import (
	"fmt"
	"math"
)

// Policy is a policy that the model describes: c of hunt:static:c (SR_c of the paper),
// where the first candidate takes a flow if it has less than c, or Single.
type Policy int

// Single sends each flow to one random server (SC of the paper). So does a first
// candidate that takes every flow.
const Single Policy = -1

func (p Policy) String() string {
	if p == Single {
		return "single"
	}
	return fmt.Sprintf("hunt:static:%d", int(p))
}

// Model is a farm in equilibrium.
type Model struct {
	lambda float64
	s      []float64 // s_0 … s_c
	ratio  float64   // s_{n+1} / s_n from n = c on: λ·s_c (4)
	passed float64   // share of flows that the first candidate passes on: s_c

	// A flow that no threshold looks at meets a random server. Under hunting that
	// is one passed on, which pays the delay; under Single it is every flow.
	forced float64
	delay  float64
}

// Solve finds the equilibrium (2) of policy p at load λ, 0 < λ < 1, where a
// passed-on flow loses delay (δ of (7), in mean service times) on its way.
func Solve(p Policy, lambda, delay float64) (*Model, error) {
	switch {
	case p < Single:
		return nil, fmt.Errorf("model of threshold %d: want 0 or more", int(p))
	case !(lambda > 0 && lambda < 1):
		return nil, fmt.Errorf("model at load %v: want more than 0 and less than 1", lambda)
	case !(delay >= 0) || math.IsInf(delay, 1):
		return nil, fmt.Errorf("model with delay %v: want 0 or more", delay)
	}
	if p == Single || negligible(lambda, int(p)) {
		return &Model{lambda: lambda, s: []float64{1}, ratio: lambda, forced: 1}, nil
	}
	sc := threshold(lambda, int(p))
	return &Model{
		lambda: lambda, s: shares(lambda, sc, int(p)), ratio: lambda * sc,
		passed: sc, forced: sc, delay: delay,
	}, nil
}

// negligible means that s_c ≤ λ^c is too small for a float64 to hold precisely:
// no flow is ever passed on.
func negligible(lambda float64, c int) bool { return math.Pow(lambda, float64(c)) < 1e-290 }

// threshold is s_c: the x for which the recursion before (3),
//
//	s_n = λ [s_{n-1} (1 + x) − x],  s_0 = 1,
//
// ends at s_c = x. Its end falls as x grows, from λ^c at x = 0 to under 1 at x = 1,
// so there is one x. Equation (5) is not solved, since it has a second root,
// (1−λ)/λ, that is none of the recursion's.
func threshold(lambda float64, c int) float64 {
	low, high := 0.0, math.Pow(lambda, float64(c))
	for {
		x := low + (high-low)/2
		if x <= low || x >= high {
			return high
		}
		if recursion(lambda, x, c) > x {
			low = x
		} else {
			high = x
		}
	}
}

func recursion(lambda, x float64, c int) float64 {
	s := 1.0
	for range c {
		s = lambda * (s - x*(1-s))
	}
	return s
}

// shares is s_0 … s_c by the recursion run backwards, s_{n-1} = (s_n/λ + s_c)/(1 +
// s_c): a sum of positive terms, where the forward one and (3) lose digits.
func shares(lambda, sc float64, c int) []float64 {
	s := make([]float64, c+1)
	s[c] = sc
	for n := c; n > 1; n-- {
		s[n-1] = (s[n]/lambda + sc) / (1 + sc)
	}
	s[0] = 1
	return s
}

// c is where s turns geometric.
func (m *Model) c() int { return len(m.s) - 1 }
