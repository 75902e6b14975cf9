// Package study compares policies: it runs a farm under each of them, at each
// load, with several seeds, on all cores. One seed gives every policy the same
// requests (common random numbers), so that policies differ by less than their
// intervals say. The result is a row a policy and load, with the confidence that
// the papers' figures show (6LB §VI, HLB §V-B).
//
// A run is a function of its seed and rows are summed in the order of seeds, so
// rows do not depend on the number of cores; only events_per_s, a measurement,
// does.
package study

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"proffer/lab/sim"
	_ "proffer/lab/sim/policies"
)

// Study is a set of runs: Seeds seeds from First on.
type Study struct {
	Setting  *Setting
	Policies []sim.Policy
	Loads    []Load
	Seeds    int
	First    uint64 // 0: 1
	Workers  int    // runs at once; 0: as many as Go may use cores

	Percentiles []float64 // in rows besides p50, p90 and p99; above 0, at most 100
	Groups      bool      // rows have the results of each group of servers
	Servers     bool      // rows have the results of each server
	CDF         bool      // rows have the whole distribution, for CDF

	// Each gets every run with a Row of each request, in the order of loads,
	// policies and seeds. Its error ends the study.
	Each func(Load, sim.Policy, sim.Result) error
}

func (s *Study) seed(j job) uint64 { return max(s.First, 1) + uint64(j.seed) }

// Progress is how far a study is.
type Progress struct {
	Done, Total int     // runs
	Part        float64 // of the runs that are under way: the sum of their shares
	Left        time.Duration
}

// share is how much of all runs is over.
func (p Progress) share() float64 {
	return (float64(p.Done) + p.Part) / float64(max(1, p.Total))
}

// Check refuses a policy that the farm cannot run, by running one request.
func (s *Study) Check() error {
	work := s.Loads[0].Work
	work.Requests, work.From, work.To = 1, 0, 0
	for _, p := range s.Policies {
		if _, err := sim.Run(s.Setting.Farm, p, work, 1); err != nil {
			return err
		}
	}
	return nil
}

// job is a run: all seeds of a row come before the next row.
type job struct{ row, seed int }

func (s *Study) job(i int) job { return job{i / s.Seeds, i % s.Seeds} }
func (s *Study) rows() int     { return len(s.Loads) * len(s.Policies) }
func (s *Study) runs() int     { return s.rows() * s.Seeds }

func (s *Study) load(row int) Load         { return s.Loads[row/len(s.Policies)] }
func (s *Study) policy(row int) sim.Policy { return s.Policies[row%len(s.Policies)] }

// outcome is a run that is over.
type outcome struct {
	job
	run    run
	result sim.Result // if the study has an Each
	part   int64      // its share of meter.parts
	took   time.Duration
	err    error
}

// Run runs everything and calls progress after each run and every second. When
// ctx ends it returns at once the rows of which all seeds are complete, and an
// *Interrupted that names the others.
func (s *Study) Run(ctx context.Context, progress func(Progress)) ([]Row, error) {
	b := newBook(s)
	done := s.start(ctx, &b.meter)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for b.done < s.runs() {
		select {
		case o := <-done:
			if errors.Is(o.err, sim.ErrStopped) {
				return b.interrupted(done)
			}
			if o.err == nil {
				o.err = b.add(o)
			}
			if o.err != nil {
				return b.rows(), o.err
			}
		case <-ctx.Done():
			return b.interrupted(done)
		case <-tick.C:
		}
		progress(b.progress())
	}
	return b.rows(), nil
}

// meter is how far the runs under way are, in millionths of a run.
type meter struct{ parts atomic.Int64 }

// start lets workers take one run after the other. When ctx ends, the runs under
// way end too, and their outcomes stay in the channel.
func (s *Study) start(ctx context.Context, m *meter) <-chan outcome {
	done := make(chan outcome, s.runs())
	var next atomic.Int64
	for range s.workers() {
		go func() {
			runtime.LockOSThread() // its CPU time is that of the runs
			defer runtime.UnlockOSThread()
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= s.runs() {
					return
				}
				done <- s.one(ctx, s.job(i), m)
			}
		}()
	}
	return done
}

func (s *Study) workers() int {
	if s.Workers > 0 {
		return s.Workers
	}
	return runtime.GOMAXPROCS(0)
}

func (s *Study) one(ctx context.Context, j job, m *meter) outcome {
	start, before := time.Now(), threadTime()
	work := s.load(j.row).Work
	work.KeepRows = s.Each != nil
	part := int64(0)
	work.Watch = func(answered int) bool {
		now := 1_000_000 * int64(answered) / int64(work.Requests)
		m.parts.Add(now - part)
		part = now
		return ctx.Err() == nil
	}
	result, err := sim.Run(s.Setting.Farm, s.policy(j.row), work, s.seed(j))
	o := outcome{job: j, run: s.summary(result, threadTime()-before), took: time.Since(start), err: err, part: part}
	if s.Each != nil {
		o.result = result
	}
	return o
}

// book holds the state of each run, in the order of rows and seeds.
type book struct {
	*Study
	runs     [][]run
	complete []int // seeds of each row that are done
	done     int
	spent    []time.Duration // of each row
	begun    time.Time
	meter    meter

	early map[int]sim.Result // runs for Each that came before their turn
	given int                // runs that Each got
}

func newBook(s *Study) *book {
	b := &book{Study: s, runs: make([][]run, s.rows()), complete: make([]int, s.rows()), spent: make([]time.Duration, s.rows()), begun: time.Now(), early: map[int]sim.Result{}}
	for i := range b.runs {
		b.runs[i] = make([]run, s.Seeds)
	}
	return b
}

func (b *book) add(o outcome) error {
	b.runs[o.row][o.seed] = o.run
	b.complete[o.row]++
	b.spent[o.row] += o.took
	b.done++
	b.meter.parts.Add(-o.part)
	if b.Each == nil {
		return nil
	}
	b.early[o.row*b.Seeds+o.seed] = o.result
	return b.give()
}

// give hands on the runs that are next in order.
func (b *book) give() error {
	for {
		result, there := b.early[b.given]
		if !there {
			return nil
		}
		delete(b.early, b.given)
		row := b.job(b.given).row
		if err := b.Each(b.load(row), b.policy(row), result); err != nil {
			return err
		}
		b.given++
	}
}

// rows are those that are complete.
func (b *book) rows() []Row {
	rows := []Row{}
	for i, runs := range b.runs {
		if b.complete[i] == b.Seeds {
			rows = append(rows, b.row(b.policy(i), b.load(i), runs))
		}
	}
	return rows
}

// progress expects a run to take the mean time of the runs of its row, else of its
// policy, else of all.
func (b *book) progress() Progress {
	byPolicy, all := make([]mean, len(b.Policies)), mean{}
	for i, spent := range b.spent {
		byPolicy[i%len(b.Policies)].add(spent, b.complete[i])
		all.add(spent, b.complete[i])
	}
	var left time.Duration
	for i, n := range b.complete {
		each := mean{b.spent[i], n}
		left += time.Duration(b.Seeds-n) * each.or(byPolicy[i%len(b.Policies)]).or(all).value()
	}
	p := Progress{Done: b.done, Total: b.Study.runs(), Part: float64(b.meter.parts.Load()) / 1e6}
	if b.done == 0 { // only the runs under way show how long a run takes
		p.Left = time.Duration(float64(time.Since(b.begun)) * (1/max(1e-3, p.share()) - 1))
		return p
	}
	left -= time.Duration(p.Part * float64(all.value()))
	p.Left = max(left, 0) / time.Duration(b.workers())
	return p
}

type mean struct {
	sum time.Duration
	n   int
}

func (m *mean) add(sum time.Duration, n int) { m.sum, m.n = m.sum+sum, m.n+n }
func (m mean) value() time.Duration          { return m.sum / time.Duration(max(m.n, 1)) }

func (m mean) or(other mean) mean {
	if m.n == 0 {
		return other
	}
	return m
}

// Interrupted lists the rows that a study lacks.
type Interrupted struct {
	Rows, Of int
	Missing  []string // for each load
}

func (e *Interrupted) Error() string {
	return fmt.Sprintf("interrupted: %d of %d rows are complete; missing: %s", e.Rows, e.Of, strings.Join(e.Missing, "; "))
}

// interrupted takes in runs that have just been completed and closes the book.
func (b *book) interrupted(done <-chan outcome) ([]Row, error) {
	for len(done) > 0 {
		if o := <-done; o.err == nil {
			if err := b.add(o); err != nil {
				return b.rows(), err
			}
		}
	}
	rows := b.rows()
	if len(rows) == b.Study.rows() {
		return rows, nil
	}
	e := &Interrupted{Rows: len(rows), Of: b.Study.rows()}
	for i, load := range b.Loads {
		if missing := b.missing(i); missing != "" {
			e.Missing = append(e.Missing, fmt.Sprintf("rho %v: %s", load.Rho, missing))
		}
	}
	return rows, e
}

// missing names the policies that are not complete at a load.
func (b *book) missing(load int) string {
	var names []string
	begun := false
	for i, p := range b.Policies {
		n := b.complete[load*len(b.Policies)+i]
		begun = begun || n > 0
		switch {
		case n == 0:
			names = append(names, p.Name)
		case n < b.Seeds:
			names = append(names, fmt.Sprintf("%s (%d of %d seeds done)", p, n, b.Seeds))
		}
	}
	if !begun {
		return "all policies"
	}
	return strings.Join(names, ", ")
}
