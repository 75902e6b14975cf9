package queue

import (
	"fmt"
	"math"
)

// SLA promises that Percentile per cent of flows are answered within Time, in mean
// service times.
type SLA struct {
	Percentile float64
	Time       float64
}

func (s SLA) check() error {
	switch {
	case !(s.Percentile > 0 && s.Percentile < 100):
		return fmt.Errorf("percentile %v: want more than 0 and less than 100", s.Percentile)
	case !(s.Time > 0) || math.IsInf(s.Time, 1):
		return fmt.Errorf("time %v: want more than 0", s.Time)
	}
	return nil
}

// MaxLoad is π⁻¹(μ_0) of §V-G: the greatest load λ at which policy p keeps the
// promise (10), for a delay as in Solve. For Single that is 1 − ln(100/(100−x))/μ_0.
// It fails for a promise that not even an idle farm keeps.
func MaxLoad(p Policy, sla SLA, delay float64) (float64, error) {
	if err := sla.check(); err != nil {
		return 0, err
	}
	late := 1 - sla.Percentile/100
	low, high := 0.0, 1.0
	for {
		lambda := low + (high-low)/2
		if lambda <= low || lambda >= high || high < 1e-12 {
			break
		}
		m, err := Solve(p, lambda, delay)
		if err != nil {
			return 0, err
		}
		if m.Survival(sla.Time) > late {
			high = lambda
		} else {
			low = lambda
		}
	}
	if low == 0 {
		return 0, fmt.Errorf("no number of servers answers %v %% within %v: even an idle server needs %.3g", sla.Percentile, sla.Time, idle(p, sla, delay))
	}
	return low, nil
}

// idle is π_x as λ → 0: one exponential service, after the delay if the first
// candidate takes nothing.
func idle(p Policy, sla SLA, delay float64) float64 {
	t := -math.Log1p(-sla.Percentile / 100)
	if p == 0 {
		t += delay
	}
	return t
}

// Servers is N' of §V-G: how many servers keep the promise under policy p when
// flows arrive at rate Λ_0, in flows a mean service time.
func Servers(p Policy, rate float64, sla SLA, delay float64) (int, error) {
	if !(rate > 0) || math.IsInf(rate, 1) {
		return 0, fmt.Errorf("rate %v: want more than 0", rate)
	}
	lambda, err := MaxLoad(p, sla, delay)
	if err != nil {
		return 0, err
	}
	return max(1, int(math.Ceil(rate/lambda-1e-9))), nil // the bisection's last bit is no server
}

// Reduction is N'/N (11): servers that policy p needs for one that Single needs.
func Reduction(p Policy, sla SLA, delay float64) (float64, error) {
	single, err := MaxLoad(Single, sla, 0)
	if err != nil {
		return 0, err
	}
	lambda, err := MaxLoad(p, sla, delay)
	if err != nil {
		return 0, err
	}
	return single / lambda, nil
}
