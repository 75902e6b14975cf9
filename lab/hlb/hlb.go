// Package hlb runs HLB's experiments on a farm of real LBs that learn.
package hlb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/lab/traffic"
)

// Experiment is the testbed of HLB §VI (Figures 7–9, 11, 16, 20, 21, 23 and 24, and 14, which the paper
// simulated): two groups of servers, of which the second has more cores, behind LBs that know
// that, learn it, or do not ask.
type Experiment struct {
	Figures  []string // by number; empty: all
	Policies []string // of the figures' policies only these; empty: all
	Servers  int      // half of them in either group
	Mean     time.Duration
	For      time.Duration // of a run's arrivals; an hour of the day takes a quarter of it
	Quick    bool          // fewer points and policies
	Seed     uint64
	Programs string // path of the proffer binary
	Out      string // gets each figure as soon as its runs are done; empty: nowhere
}

const (
	// tries of a run until its generator keeps its schedule.
	tries = 3
	// aroundHLB is how long a run takes beside its arrivals.
	aroundHLB = 3500 * time.Millisecond
	// aroundBed is how long another bed takes.
	aroundBed = 1500 * time.Millisecond
)

// Check returns an error for settings that cannot be run.
func (e Experiment) Check() error {
	for _, name := range e.Figures {
		if !slices.Contains(figureNames(), name) {
			return fmt.Errorf("--figures: unknown figure %q: want %s", name, farmrun.OrList(figureNames()))
		}
	}
	for _, name := range e.Policies {
		if _, err := farmrun.ParseCompared(name); err != nil {
			return fmt.Errorf("--policies: %w", err)
		}
		switch offered := e.offered(); {
		case len(offered) == 0:
			return errors.New("--policies: these figures compare none")
		case !slices.Contains(offered, name):
			return fmt.Errorf("--policies: %s is in none of these figures: want %s", name, farmrun.OrList(offered))
		}
	}
	switch {
	case e.Servers < 2 || e.Servers%2 != 0 || e.Servers > testbed.MaxServers:
		return fmt.Errorf("--servers %d: want an even number from 2 to %d: half of them have more cores", e.Servers, testbed.MaxServers)
	case e.Mean < time.Millisecond || e.Mean > time.Second:
		return fmt.Errorf("--mean %v: want 1ms to 1s", e.Mean)
	case e.For < time.Second || e.For > 10*time.Minute:
		return fmt.Errorf("--for %v: want 1s to 10m", e.For)
	}
	return nil
}

// run is the state of one Run.
type run struct {
	Experiment
	bed    *testbed.Bed
	made   bedOf // that the bed is made for
	ends   int   // of clients that this bed has had
	began  time.Time
	passed time.Duration // estimated time of the runs that are done
	took   time.Duration // that they took
	done   int
	report *Report
	show   func(farmrun.Step)
}

// bedOf has the differences between the beds of cells.
type bedOf struct{ servers, lbs, rtt int }

func (e Experiment) bedOf(c cell) bedOf { return bedOf{e.servers(c), c.lbs, c.rtt} }

// Run makes all runs that the figures need, figure by figure.
func (e Experiment) Run(ctx context.Context, show func(farmrun.Step)) (_ *Report, err error) {
	farmrun.Prefer()
	r := &run{Experiment: e, report: &Report{experiment: e}, show: show, began: time.Now()}
	defer func() { err = errors.Join(err, r.closeBed()) }()
	for _, f := range e.asked() {
		for _, c := range f.runs(e) {
			if r.report.find(c) != nil {
				continue
			}
			if err := r.measure(ctx, c); err != nil {
				return nil, fmt.Errorf("figure %s, %s: %w", f.name, c, err)
			}
		}
		if f.cost {
			if err := r.cost(ctx); err != nil {
				return nil, fmt.Errorf("figure %s: %w", f.name, err)
			}
		}
		r.report.conclude(f)
	}
	r.step("done")
	return r.report, nil
}

// measure runs a cell, again if the generator could not keep its schedule.
func (r *run) measure(ctx context.Context, c cell) (err error) {
	r.step(c.String())
	if err := r.stand(ctx, c); err != nil {
		return err
	}
	for range tries {
		var result *result
		if result, err = r.run(ctx, c); err == nil {
			r.report.results = append(r.report.results, result)
			break
		}
		if !errors.Is(err, traffic.ErrLate) {
			return err
		}
	}
	if err != nil {
		r.report.unclaimed = append(r.report.unclaimed, unclaimed{c, err.Error()})
	}
	r.over(r.lasts(c))
	return nil
}

// over notes that a part is done which was to take so long.
func (r *run) over(estimate time.Duration) {
	r.done++
	r.passed += estimate
	r.took = time.Since(r.began)
}

// stand has the bed that a cell wants, with addresses enough for all its tries.
func (r *run) stand(ctx context.Context, c cell) (err error) {
	of := r.bedOf(c)
	if r.bed != nil && r.made == of {
		return nil
	}
	if err := r.closeBed(); err != nil {
		return err
	}
	ends := 0
	for _, other := range r.allRuns() {
		if r.bedOf(other) == of {
			ends += tries * farmrun.ClientsFor(len(r.arrivals(other).all)) * farmrun.Ports
		}
	}
	r.made, r.ends = of, 0
	r.bed, err = testbed.Up(ctx, testbed.Config{Servers: of.servers, LBs: c.lbs, Clients: farmrun.ClientsFor(ends), Delay: c.delay()})
	return err
}

func (r *run) closeBed() error {
	if r.bed == nil {
		return nil
	}
	err := r.bed.Close()
	r.bed = nil
	return err
}

// lasts estimates a cell.
func (e Experiment) lasts(c cell) time.Duration { return c.length(e) + aroundHLB }

// Duration estimates how long the experiment takes.
func (e Experiment) Duration() (sum time.Duration) {
	of := bedOf{}
	for _, c := range e.allRuns() {
		if e.bedOf(c) != of {
			of = e.bedOf(c)
			sum += aroundBed
		}
		sum += e.lasts(c)
	}
	if e.asksCost() {
		sum += e.costTakes()
	}
	return sum
}

func (r *run) step(doing string) {
	left := r.Duration() - r.passed
	if r.took > 0 { // as long as the runs so far beside their estimate
		left = time.Duration(float64(r.took) / float64(r.passed) * float64(left))
	}
	left = max(left-(time.Since(r.began)-r.took), 0)
	total := len(r.allRuns())
	if r.asksCost() {
		total++
	}
	r.show(farmrun.Step{Doing: doing, Done: r.done, Total: total, Left: left})
}
