// Package apache runs the papers' own application: Apache httpd with PHP, on real CPU time.
package apache

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/lab/trace"
	"proffer/lab/traffic"
)

// Experiment is the papers' own application (SRLB §IV–V, 6LB §VI-B): Apache httpd with PHP that
// computes, on real CPU time under quotas, and the same arrivals on the testbed's virtual
// cores.
type Experiment struct {
	Figures  []string // empty: all
	Servers  int
	Workers  int // a server
	Share    float64
	Period   time.Duration // over which the quota counts
	Mean     time.Duration // CPU time of a request's loop
	For      time.Duration // of a run's arrivals
	Loads    []float64     // of the figures over ρ; empty: six from .45 to .95
	Seed     uint64
	Programs string // path of the proffer binary
}

// aroundHTTPD is how long a run takes beside its arrivals.
const aroundHTTPD = 3 * time.Second

// httpdTries of a run until its generator keeps its schedule.
const httpdTries = 3

// calibrateFor is how long every server is kept busy to find the capacity of the farm.
const calibrateFor = 5 * time.Second

// cell is a run: a policy at a load, on one kind of servers.
type cell struct {
	policy  string
	load    float64
	virtual bool
}

// Check returns an error for settings that cannot be run.
func (e Experiment) Check() error {
	for _, name := range e.Figures {
		if !slices.Contains(figureNames(), name) {
			return fmt.Errorf("--figures: unknown figure %q: want %s", name, farmrun.OrList(figureNames()))
		}
	}
	for _, load := range e.Loads {
		if !(load > 0 && load < 1) {
			return fmt.Errorf("--loads: %v: want loads above 0 and below 1", load)
		}
	}
	switch {
	case e.Servers < 2 || e.Servers > testbed.MaxServers:
		return fmt.Errorf("--servers %d: want 2 to %d: an offer goes from one to another", e.Servers, testbed.MaxServers)
	case !(e.Share >= 0.05 && e.Share <= 1):
		return fmt.Errorf("--share %v: want 0.05 to 1 of a core", e.Share)
	case e.Period < time.Millisecond || e.Period > time.Second || e.Share*e.Period.Seconds() < 0.001:
		return fmt.Errorf("--period %v: want 1ms to 1s, and a quota of a millisecond at least: Linux grants no less", e.Period)
	case e.Mean < time.Millisecond || e.Mean > time.Second:
		return fmt.Errorf("--mean %v: want 1ms to 1s", e.Mean)
	case e.For < time.Second || e.For > 10*time.Minute:
		return fmt.Errorf("--for %v: want 1s to 10m", e.For)
	}
	return nil
}

// Asks is about what the run at the highest load asks for.
func (e Experiment) Asks() farmrun.Asks {
	return farmrun.Asks{Rate: float64(e.Servers) * e.Share / e.Mean.Seconds(), Mean: e.Mean, Punctual: true}
}

// Ready returns an error if a program that the experiment needs is missing.
func (e Experiment) Ready() error {
	_, _, err := httpdPrograms()
	return err
}

// kinds are the servers on virtual cores.
func (e Experiment) kinds() farmrun.Kinds {
	return farmrun.Kinds{Servers: e.Servers, Cores: 1, Workers: e.Workers}
}

// run is the state of one Run.
type run struct {
	Experiment
	bed    *testbed.Bed
	ends   int // of clients that were used
	began  time.Time
	passed time.Duration // estimated time of the runs that are done
	report *Report
	show   func(farmrun.Step)
}

// Run runs all cells that the figures need.
func (e Experiment) Run(ctx context.Context, show func(farmrun.Step)) (_ *Report, err error) {
	if err := e.Ready(); err != nil {
		return nil, err
	}
	farmrun.Prefer()
	r := &run{Experiment: e, report: &Report{experiment: e}, show: show, began: time.Now()}
	r.step("building a farm")
	// The ends of all cells, each twice over for runs that are tried again.
	ends := 2 * (len(e.cells()) + 2) * int(2*e.For.Seconds()*float64(e.Servers)*e.Share/e.Mean.Seconds())
	r.bed, err = testbed.Up(ctx, testbed.Config{Servers: e.Servers, Clients: farmrun.ClientsFor(ends) + 1})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.bed.Close()) }()
	if err := r.calibrate(ctx); err != nil {
		return nil, err
	}
	for _, c := range e.cells() {
		r.step(c.String())
		if err := r.measure(ctx, c); err != nil {
			return nil, fmt.Errorf("%s: %w", c, err)
		}
		r.report.cellsDone++
		r.passed += r.lasts(c)
	}
	r.step("done")
	return r.report, nil
}

func (c cell) String() string {
	return fmt.Sprintf("%s at ρ = %.2f on %s", c.policy, c.load, c.kind())
}

func (c cell) kind() string {
	if c.virtual {
		return "virtual"
	}
	return "apache"
}

// Duration estimates how long the experiment takes.
func (e Experiment) Duration() time.Duration {
	sum := calibrateFor + aroundHTTPD
	for _, c := range e.cells() {
		sum += e.lasts(c)
	}
	return sum
}

// lasts estimates a cell: the virtual cores' time is shorter by the ratio of services.
func (e Experiment) lasts(c cell) time.Duration {
	if !c.virtual {
		return e.For + aroundHTTPD
	}
	return time.Duration(float64(e.For)*e.Share) + farmrun.AroundRun
}

func (r *run) step(doing string) {
	left := max(r.Duration()-r.passed, 0)
	total := len(r.cells())
	r.show(farmrun.Step{Doing: doing, Done: r.report.cellsDone, Total: total, Left: left})
}

// arrivals of a cell: the same for all policies of a load, and in proportion on both kinds of
// servers: a virtual core is whole.
func (r *run) arrivals(c cell) []trace.Arrival {
	rate := c.load * r.report.Calibration.Capacity
	n := max(int(rate*r.For.Seconds()), 1)
	if c.virtual {
		return trace.Poisson(r.Seed, n, c.load*float64(r.Servers)/r.Mean.Seconds(), r.Mean)
	}
	return trace.Poisson(r.Seed, n, rate, r.Mean)
}

// requests gives arrivals fresh client ends.
func (r *run) requests(arrivals []trace.Arrival) []traffic.Request {
	requests := make([]traffic.Request, len(arrivals))
	for i, a := range arrivals {
		from := netip.AddrPortFrom(r.bed.ClientAddrs[r.ends/farmrun.Ports%len(r.bed.ClientAddrs)], uint16(farmrun.FirstPort+r.ends%farmrun.Ports))
		requests[i] = traffic.Request{At: a.At, Service: a.Service, From: from}
		r.ends++
	}
	return requests
}

// measure runs a cell, again if the generator could not keep its schedule.
func (r *run) measure(ctx context.Context, c cell) (err error) {
	for range httpdTries {
		var result *outcome
		result, err = r.run(ctx, c, r.arrivals(c))
		if err == nil {
			r.report.add(result)
			return nil
		}
		if !errors.Is(err, traffic.ErrLate) {
			return err
		}
	}
	r.report.Unclaimed = append(r.report.Unclaimed, farmrun.Unclaimed{Policy: c.String(), Reason: err.Error()})
	return nil
}
