package weights

import "time"

// FilterSettings are those of HLB's filter. The zero value of a field is no
// default: start from PublishedFilter.
type FilterSettings struct {
	Reservoir int // samples kept of each server

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

// Filter learns how fast servers are from packets that a load balancer sees anyway (HLB
// §IV-B): durations of flows, sampled into one reservoir a server, smoothed by
// one Kalman filter a server, turned into weights by a softmax.
type Filter struct {
	settings   FilterSettings
	noise      float64
	reservoirs []Reservoir
	filters    []Kalman
	measured   []float64 // z of the last step
	weights    []float64
	gain       float64
	last       time.Duration
}

// NewFilter starts at time 0 with equal weights for n servers.
func NewFilter(n int, s FilterSettings) *Filter {
	f := &Filter{settings: s, noise: s.Noise, reservoirs: make([]Reservoir, n),
		filters: make([]Kalman, n), measured: make([]float64, n), weights: make([]float64, n)}
	for i := range f.filters {
		f.reservoirs[i] = NewReservoir(s.Reservoir)
		f.filters[i] = Kalman{Mean: s.Mean, Var: s.Var}
		f.weights[i] = 1 / float64(n)
	}
	return f
}

// Observe samples the duration of a flow into its server's reservoir.
func (f *Filter) Observe(_ time.Duration, s Sample) {
	f.reservoirs[s.Server].Add(s.Value, s.Random)
}

// Weights takes one step of the filters with the mean of each reservoir; the
// weights sum to 1. The papers take a step every half a second.
func (f *Filter) Weights(at time.Duration) []float64 {
	if at <= f.last {
		return f.weights
	}
	f.last = at
	f.step()
	return f.weights
}

// step measures a server that was never seen as the average one: no sample
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

func (f *Filter) softmax() {
	sum := 0.0
	for i := range f.filters {
		f.weights[i] = Exp(-f.filters[i].Mean)
		sum += f.weights[i]
	}
	for i := range f.weights {
		f.weights[i] /= sum
	}
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
