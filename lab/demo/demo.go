// Package demo compares policies on the same arrivals at a farm of real daemons: SRLB's experiment,
// and what `proffer-lab demo` shows.
package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/lab/trace"
	"proffer/lab/traffic"
)

// Experiment is the experiment of SRLB §V: Poisson arrivals of exponential requests
// on a farm of prefork servers, one run a policy on the same arrivals.
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
	return time.Duration(len(e.Policies)) * (e.runDuration() + farmrun.AroundRun)
}

// rate of arrivals, a second.
func (e Experiment) rate() float64 {
	return e.Load * e.Capacity() / e.Mean.Seconds()
}

func (e Experiment) runDuration() time.Duration {
	return time.Duration(float64(e.Requests) / e.rate() * float64(time.Second))
}

// Run runs every policy. Results are in the report even if it fails, or their rows cannot be
// written. A result is marked as late if its generator could not keep its schedule.
func (e Experiment) Run(ctx context.Context, progress func(Progress)) (*Report, error) {
	report := &Report{Seed: e.Seed, Load: e.Load, experiment: e}
	farmrun.Prefer()
	bed, err := testbed.Up(ctx, testbed.Config{Servers: e.Servers, LBs: e.LBs, Clients: e.clients() * farmrun.Tries * len(e.Policies)})
	if err != nil {
		return report, err
	}
	arrivals := trace.Poisson(e.Seed, e.Requests, e.rate(), e.Mean)
	for i, p := range e.Policies {
		result, err := e.try(ctx, bed, i, arrivals, progress)
		if err != nil {
			return report, errors.Join(fmt.Errorf("%s: %w", p, err), bed.Close())
		}
		report.add(result)
		report.keep(result)
	}
	return report, bed.Close()
}

// clients is how many client addresses a run needs.
func (e Experiment) clients() int { return (e.Requests + farmrun.Ports - 1) / farmrun.Ports }

// try runs policy i, again if the machine was too busy.
func (e Experiment) try(ctx context.Context, bed *testbed.Bed, i int, arrivals []trace.Arrival, progress func(Progress)) (result *farmrun.Result, err error) {
	after := time.Duration(len(e.Policies)-1-i) * (e.runDuration() + farmrun.AroundRun)
	for k := range farmrun.Tries {
		// Other client addresses each run, apart from sockets in TIME_WAIT.
		first := (i*farmrun.Tries + k) * e.clients()
		requests := farmrun.Requests(arrivals, bed.ClientAddrs[first:first+e.clients()])
		start := time.Now()
		result, err = e.run(ctx, bed, e.Policies[i], requests, func(done, total int) {
			left := max(e.runDuration()-time.Since(start), 0) + after
			progress(Progress{Policy: e.Policies[i], Run: i + 1, Runs: len(e.Policies), Try: k + 1, Done: done, Total: total, Left: left})
		})
		if err != nil || result.Late == nil {
			break
		}
	}
	return result, err
}

// quit is the number of requests that make a row of a run that is late for good: a tenth.
func (e Experiment) quit() int { return (e.Requests + 9) / 10 }

// run measures one policy on the bed.
func (e Experiment) run(ctx context.Context, bed *testbed.Bed, p farmrun.Compared, requests []traffic.Request, progress func(done, total int)) (*farmrun.Result, error) {
	return farmrun.Web{Kinds: e.Kinds, Policy: p, Weights: e.WeightsOf(p.Inverted), Programs: e.Programs, Requests: requests, Quit: e.quit(), Progress: progress}.Run(ctx, bed)
}
