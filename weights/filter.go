package weights

import (
	"math"
	"time"
)

// FilterSettings are those of HLB's filter. The zero value of a field is no
// default: start from PublishedFilter or QuickFilter.
type FilterSettings struct {
	Reservoir int  // samples kept of each server
	Latest    bool // they are the latest; else a new sample takes the place of a random sample
	Owes      bool // a server that gets too few flows is owed a flow (turns)

	Mean  float64 // μ̃(0)
	Var   float64 // P(0)
	Noise float64 // R(0), the variance of a measurement
	Drift float64 // Q, the variance of the truth's move in a step
	Alpha float64 // how fast R follows the variance of the measurements; 0: R stays (HLB-FIX)
}

// PublishedFilter has the parameters of HLB §IV-B2 (a reservoir of 128, μ̃(0) = 0.5,
// α = 0.01) and, where the paper is silent, those of the authors' simulator.
func PublishedFilter() FilterSettings {
	return FilterSettings{Reservoir: 128, Mean: 0.5, Var: 100, Noise: 0.16, Drift: 1e-4, Alpha: 0.01}
}

// QuickFilter is PublishedFilter with weights that follow a server which changes its speed within
// about 130 of its flows and 2 s: the latest samples stay, and the truth moves by a deviation
// of 0.1 a step. The published filter needs 11 s more.
func QuickFilter() FilterSettings {
	s := PublishedFilter()
	s.Latest, s.Owes, s.Drift = true, true, 1e-2
	return s
}

// Filter learns how fast servers are from packets that a load balancer sees anyway (HLB
// §IV-B): durations of flows, sampled into one reservoir a server, smoothed by
// a Kalman filter a server, turned into weights by a softmax.
type Filter struct {
	settings   FilterSettings
	noise      float64
	reservoirs []Reservoir
	filters    []Kalman
	measured   []float64 // z of the last step
	weights    []float64
	gain       float64
	turns      turns
	last       time.Duration
}

// NewFilter starts at time 0 with equal weights for n servers.
func NewFilter(n int, s FilterSettings) *Filter {
	f := &Filter{settings: s, noise: s.Noise, reservoirs: make([]Reservoir, n),
		filters: make([]Kalman, n), measured: make([]float64, n), weights: make([]float64, n), turns: newTurns(n)}
	for i := range f.filters {
		f.reservoirs[i] = NewReservoir(s.Reservoir)
		f.reservoirs[i].latest = s.Latest
		f.filters[i] = Kalman{Mean: s.Mean, Var: s.Var}
		f.weights[i] = 1 / float64(n)
	}
	return f
}

// Observe samples the duration of a flow into its server's reservoir.
func (f *Filter) Observe(_ time.Duration, s Sample) {
	f.reservoirs[s.Server].Add(s.Value, s.Random)
}

// Weights takes a step of the filters with the mean of each reservoir; the
// weights sum to 1. The papers take a step every half a second.
func (f *Filter) Weights(at time.Duration) []float64 {
	if at <= f.last {
		return f.weights
	}
	f.last = at
	f.step()
	return f.weights
}

// step measures a server that was never seen as the average server: no sample
// distinguishes it.
func (f *Filter) step() {
	mean := f.meanOfSeen()
	if mean == 0 {
		return
	}
	for i := range f.filters {
		f.measured[i] = 1
		if d := f.reservoirs[i].Mean(); d > 0 {
			f.measured[i] = d / mean
		}
		f.gain = f.filters[i].Update(f.measured[i], f.noise, f.settings.Drift)
	}
	a := f.settings.Alpha
	f.noise = float64((1-a)*f.noise) + float64(a*variance(f.measured))
	f.softmax()
}

// Known returns the weights by all that is known, without a step: those of the last step, also after
// servers were inherited. Beside servers that are known, a server that joined is average.
func (f *Filter) Known() []float64 {
	f.softmax()
	return f.weights
}

func (f *Filter) softmax() {
	fresh, sum := Kalman{Mean: f.settings.Mean, Var: f.settings.Var}, 0.0
	for i, k := range f.filters {
		if k == fresh && f.gain > 0 {
			k.Mean = 1 // others took steps
		}
		f.weights[i] = Exp(max(-k.Mean, leastExponent))
		sum += f.weights[i]
	}
	for i := range f.weights {
		f.weights[i] /= sum
	}
}

// leastExponent keeps the weight of the slowest server above 0, which is that of a server that gets
// no flows.
const leastExponent = -600

// Began counts flows that a server began.
func (f *Filter) Began(server int, flows uint32) { f.turns.fresh[server] += uint64(flows) }

// Owed returns the servers that are owed a flow, whatever they weigh, of those that take flows (turns).
// Their samples are of long ago, and count as a few from now on.
func (f *Filter) Owed(takes func(server int) bool) []int {
	if !f.settings.Owes {
		return nil
	}
	owed := f.turns.step(takes)
	for _, i := range owed {
		f.reservoirs[i].condense()
	}
	return owed
}

// Inherit gives server i the samples and the state of server j of another filter, and all servers the
// noise and the gain that it has met. A server that joins begins as any other does at the start.
func (f *Filter) Inherit(i int, from *Filter, j int) {
	f.reservoirs[i] = from.reservoirs[j]
	f.reservoirs[i].samples = append([]float64(nil), from.reservoirs[j].samples...)
	f.filters[i], f.noise, f.gain = from.filters[j], from.noise, from.gain
	f.turns.inherit(i, &from.turns, j)
}

// Recall makes the weights as their inverses are, in any unit, if these differ; a server with 0, of
// which nothing is known, is average. The first samples of each server replace them.
func (f *Filter) Recall(inverses []float64) {
	sum, n, least, most := 0.0, 0, math.Inf(1), 0.0
	for _, x := range inverses {
		if x > 0 {
			sum, n = sum+math.Log(x), n+1
			least, most = min(least, x), max(most, x)
		}
	}
	if n == 0 || least == most {
		return
	}
	for i, x := range inverses {
		if f.filters[i].Mean = 1; x > 0 {
			f.filters[i].Mean += math.Log(x) - sum/float64(n)
		}
	}
}

// Learned is all that a filter knows of a server.
type Learned struct {
	Samples int     // that it holds
	Mean    float64 // of them, in their unit
	Kalman          // of the normalised mean
}

// Learned returns the samples and the state of a server.
func (f *Filter) Learned(server int) Learned {
	r := &f.reservoirs[server]
	return Learned{Samples: r.Len(), Mean: r.Mean(), Kalman: f.filters[server]}
}

// Gain is the Kalman gain of the last step, Noise the R of the next (HLB
// Figure 18b).
func (f *Filter) Gain() float64  { return f.gain }
func (f *Filter) Noise() float64 { return f.noise }

func (f *Filter) meanOfSeen() float64 {
	sum, seen := 0.0, 0
	for i := range f.reservoirs {
		if v := f.reservoirs[i].Mean(); v > 0 {
			sum += v
			seen++
		}
	}
	return sum / float64(max(1, seen))
}

func variance(x []float64) float64 {
	mean := 0.0
	for _, v := range x {
		mean += v
	}
	mean /= float64(len(x))
	sum := 0.0
	for _, v := range x {
		d := v - mean
		sum += float64(d * d)
	}
	return sum / float64(len(x))
}
