package farmrun

import (
	"proffer/lab/traffic"
	"proffer/lab/traffic/responder"
)

// Result is the outcome of one policy.
type Result struct {
	Policy Compared
	Rows   []traffic.Row
	Loads  Loads
	Late   error // the generator could not keep its schedule; nil: it did
	Failed error // there was no run, or none whose rows may be believed; nil: there was

	Drops responder.Drops
	Kinds Kinds
}

// Unclaimed is a policy with a run that measured the generator rather than the farm.
type Unclaimed struct {
	Policy string `json:"policy"`
	Reason string `json:"reason"`
}

// Latencies of the answered requests, in seconds and order of arrival.
func (r *Result) Latencies() []float64 {
	var out []float64
	for _, row := range r.Rows {
		if row.Outcome == traffic.OK {
			out = append(out, row.Latency().Seconds())
		}
	}
	return out
}

// Fairness is the mean over the samples taken while requests arrived.
func (r *Result) Fairness() float64 {
	if len(r.Rows) == 0 {
		return 0
	}
	end := r.Rows[len(r.Rows)-1].Intended.Seconds()
	sum, n := 0.0, 0
	for i, at := range r.Loads.Seconds {
		if at <= end {
			sum += r.Loads.Fairness[i]
			n++
		}
	}
	return sum / float64(max(n, 1))
}
