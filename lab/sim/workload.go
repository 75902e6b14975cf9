package sim

import "time"

// Workload is the requests of a run.
type Workload struct {
	Requests int
	Arrivals Arrivals
	Service  Distribution // of a request's work on one core of speed 1

	// Stages makes a request pass the server's one disk too, which all share
	// (HLB Figures 6 and 22): 0 or 1 CPU, 2 CPU-IO, 3 CPU-IO-CPU, where the two
	// CPU stages split Service at a uniformly random point.
	Stages int
	IO     Distribution

	// From and To are the shares of the requests, by order of arrival, between
	// which they count; both 0: all do.
	From, To float64

	// After and Until are the instants of arrival, since the run began, between which
	// requests count, of those that From and To leave; Until 0: to the end.
	After, Until time.Duration

	// PacketRate is how many data packets a second a flow in progress has, a
	// Poisson process; learned samples ages at them. 0 means 5. From 2 to 300 the
	// p90 of farm B hardly depends on it.
	PacketRate float64

	KeepRows bool // return one Row a request

	// Watch is called every few milliseconds of real time with the number of
	// requests that have been answered. False ends the run with ErrStopped.
	Watch func(answered int) bool

	Probe      func(Snapshot) // called every ProbeEvery
	ProbeEvery time.Duration
}

func (w Workload) HasIO() bool { return w.Stages > 1 }

// counted is the range of requests that count.
func (w Workload) counted() (from, to int) {
	if w.From == 0 && w.To == 0 {
		return 0, w.Requests
	}
	return int(w.From * float64(w.Requests)), int(w.To * float64(w.Requests))
}

// Arrivals are the instants at which requests come. The zero value is none: use a constructor.
type Arrivals struct {
	steps  []Step
	repeat bool
	list   []time.Duration
}

// Step is a stretch of time with a constant rate of arrivals.
type Step struct {
	Lasting   time.Duration // 0: for ever, in the last step only
	PerSecond float64
}

// Poisson arrivals at a constant rate a second.
func Poisson(perSecond float64) Arrivals {
	return Arrivals{steps: []Step{{PerSecond: perSecond}}}
}

// Stepped is a Poisson stream with a rate that changes; the last step goes on for ever.
func Stepped(steps ...Step) Arrivals {
	return Arrivals{steps: steps}
}

// Diurnal is a Poisson stream with a rate that rises from low to high and falls back
// in every period, as a parabola up and a parabola down, in 96 steps.
func Diurnal(low, high float64, period time.Duration) Arrivals {
	const parts = 96
	a := Arrivals{repeat: true}
	for i := range parts {
		x := (float64(i) + 0.5) / parts
		swing := 16 * x * x * (1 - x) * (1 - x) // 0 at both ends, 1 in the middle
		a.steps = append(a.steps, Step{Lasting: period / parts, PerSecond: low + float64(swing*(high-low))})
	}
	return a
}

// At are arrivals at listed instants, ascending.
func At(list []time.Duration) Arrivals { return Arrivals{list: list} }

// MeanRate is the mean rate: of the last step if it goes on for ever.
func (a Arrivals) MeanRate() float64 {
	if n := len(a.list); n > 0 {
		return float64(n) / max(1e-9, a.list[n-1].Seconds())
	}
	if n := len(a.steps); n > 0 && !a.repeat {
		return a.steps[n-1].PerSecond
	}
	count, seconds := 0.0, 0.0
	for _, s := range a.steps {
		count += float64(s.PerSecond * s.Lasting.Seconds())
		seconds += s.Lasting.Seconds()
	}
	return count / max(1e-9, seconds)
}
