// Package demo compares policies on the same arrivals at a farm of real daemons: SRLB's experiment,
// and what `proffer-lab demo` shows.
package demo

import (
	"context"
	"errors"
	"time"

	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/lab/trace"
)

// Experiment is the experiment of SRLB §V: Poisson arrivals of exponential requests
// on a farm of prefork servers, one run a policy on the same arrivals. Choose fills in Servers,
// Requests and Mean where they are 0.
type Experiment struct {
	farmrun.Kinds
	LBs      int // 0 means 1
	Policies []farmrun.Compared
	Load     float64 // ρ, of the farm's capacity
	Requests int     // a policy
	Mean     time.Duration
	Seed     uint64
	Programs string // path of the proffer binary
	Out      string // gets the rows of each policy when its run is over; empty: nowhere

	chosenMean, chosenRequests bool
	around                     time.Duration // of a run beside its requests, as measured
	until                      time.Time     // a run is not made again beyond; zero: whenever
}

// Progress is how far a run is.
type Progress struct {
	Policy      farmrun.Compared
	Run, Runs   int // the first is 1
	Try         int // 2: the machine was too busy for the first
	Done, Total int // requests of this run
	Left        time.Duration
}

// Duration estimates how long the whole experiment takes.
func (e Experiment) Duration() time.Duration {
	return time.Duration(len(e.Policies)) * (e.runDuration() + e.aroundRun())
}

// rate of arrivals, a second.
func (e Experiment) rate() float64 {
	return e.Load * e.Capacity() / e.Mean.Seconds()
}

func (e Experiment) runDuration() time.Duration {
	return time.Duration(float64(e.Requests) / e.rate() * float64(time.Second))
}

// Run runs every policy. The report has a row for each, whatever became of its run. The error is
// that of an experiment that was ended, had no answer at all, or left something behind.
func (e Experiment) Run(ctx context.Context, progress func(Progress)) (*Report, error) {
	report := &Report{experiment: e}
	farmrun.Prefer()
	bed, err := testbed.Up(ctx, testbed.Config{Servers: e.Servers, LBs: e.LBs, Clients: e.clients() * (farmrun.Tries*len(e.Policies) + slowdowns)})
	if err != nil {
		return report, err
	}
	r := runs{Experiment: e, bed: bed, progress: progress}
	for i := range e.Policies {
		result := r.policy(ctx, i)
		if ctx.Err() != nil {
			return report, errors.Join(ctx.Err(), bed.Close())
		}
		report.experiment = r.Experiment // the load may have changed before its first row
		report.add(result)
		report.keep(result)
	}
	return report, errors.Join(report.nothing(), bed.Close())
}

// clients is how many client addresses a run needs.
func (e Experiment) clients() int { return (e.Requests + farmrun.Ports - 1) / farmrun.Ports }

// runs are those of an experiment, on a bed.
type runs struct {
	Experiment
	bed      *testbed.Bed
	used     int // client addresses
	progress func(Progress)
}

// policy runs policy i, again if requests left late: the first policy with a lower load, if the load
// was chosen, else with the same.
func (r *runs) policy(ctx context.Context, i int) *farmrun.Result {
	slowed := 0
	for k := 1; ; k++ {
		result, err := r.run(ctx, i, k)
		if err != nil {
			return &farmrun.Result{Policy: r.Policies[i], Kinds: r.Kinds, Failed: err}
		}
		after := len(r.Policies) - 1 - i
		switch {
		case result.Late == nil:
			return result
		case i == 0 && r.maySlow() && slowed < slowdowns:
			slowed++
			r.Experiment = r.slower()
		case k-slowed >= farmrun.Tries || !r.inTime(after):
			return result
		}
	}
}

// run measures policy i for the kth time.
func (r *runs) run(ctx context.Context, i, k int) (*farmrun.Result, error) {
	// Other client addresses each run, apart from sockets in TIME_WAIT.
	n := r.clients()
	requests := farmrun.Requests(trace.Poisson(r.Seed, r.Requests, r.rate(), r.Mean), r.bed.ClientAddrs[r.used:][:n])
	r.used += n
	after := time.Duration(len(r.Policies)-1-i) * (r.runDuration() + r.aroundRun())
	start := time.Now()
	p := r.Policies[i]
	return farmrun.Web{
		Kinds: r.Kinds, Policy: p, Weights: r.WeightsOf(p.Inverted), Programs: r.Programs, Requests: requests, Quit: r.quit(),
		Progress: func(done, total int) {
			left := max(r.runDuration()+r.aroundRun()-time.Since(start), 0) + after
			r.progress(Progress{Policy: p, Run: i + 1, Runs: len(r.Policies), Try: k, Done: done, Total: total, Left: left})
		},
	}.Run(ctx, r.bed)
}

// quit is the number of requests that make a row of a run that is late for good: a tenth.
func (e Experiment) quit() int { return (e.Requests + 9) / 10 }
