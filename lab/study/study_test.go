package study

import (
	"context"
	"errors"
	"math"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"proffer/lab/sim"
)

// small is a study of farm A that takes a fraction of a second.
func small(t *testing.T, seeds int, policies ...string) *Study {
	t.Helper()
	setting, err := Named("A")
	if err != nil {
		t.Fatal(err)
	}
	if err := setting.SetRequests(2000); err != nil {
		t.Fatal(err)
	}
	s := &Study{Setting: setting, Seeds: seeds}
	for _, name := range policies {
		p, err := sim.ParsePolicy(name)
		if err != nil {
			t.Fatal(err)
		}
		s.Policies = append(s.Policies, p)
	}
	for _, rho := range []float64{0.5, 0.9} {
		s.Loads = append(s.Loads, at(t, setting, rho))
	}
	return s
}

func at(t *testing.T, s *Setting, rho float64) Load {
	t.Helper()
	load, err := s.At(rho)
	if err != nil {
		t.Fatal(err)
	}
	return load
}

func runAll(t *testing.T, s *Study) []Row {
	t.Helper()
	rows, err := s.Run(t.Context(), func(Progress) {})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func TestRowsDoNotDependOnCores(t *testing.T) {
	var want []Row
	for _, cores := range []int{1, 2} {
		for _, workers := range []int{0, 1, 5} {
			before := runtime.GOMAXPROCS(cores)
			s := small(t, 3, "single", "guided", "learned", "jsq2")
			s.Workers = workers
			rows := runAll(t, s)
			runtime.GOMAXPROCS(before)
			for i := range rows {
				rows[i].Speed = 0
			}
			if want == nil {
				want = rows
			}
			if !reflect.DeepEqual(rows, want) {
				t.Errorf("%d cores, %d workers:\n got %+v\nwant %+v", cores, workers, rows, want)
			}
		}
	}
}

// TestRowIsMadeOfRuns compares with the runs themselves.
func TestRowIsMadeOfRuns(t *testing.T) {
	s := small(t, 3, "hunt:static:4", "jsq")
	rows := runAll(t, s)
	if len(rows) != 4 || rows[2].Rho != 0.9 || rows[3].Policy != "jsq" {
		t.Fatalf("rows are not by load, then policy: %+v", rows)
	}
	var means [3]float64
	events := 0
	for i := range means {
		result, err := sim.Run(s.Setting.Farm, s.Policies[1], s.Loads[1].Work, uint64(i+1))
		if err != nil {
			t.Fatal(err)
		}
		means[i] = result.Mean
		events += result.Events
	}
	mean := (means[0] + means[1] + means[2]) / 3
	sd := math.Sqrt((math.Pow(means[0]-mean, 2) + math.Pow(means[1]-mean, 2) + math.Pow(means[2]-mean, 2)) / 2)
	half := 4.302653 * sd / math.Sqrt(3) // t(0.975, 2 degrees of freedom)
	row := rows[3]
	if math.Abs(float64(row.Mean)-mean) > 1e-6 || math.Abs(float64(row.MeanCI)-half) > 1e-5*half || row.Events != events || row.Seeds != 3 || row.Counted != 6000 {
		t.Errorf("got %+v, want mean %v ± %v, %d events", row, mean, half, events)
	}
	if row.Speed < 1e4 {
		t.Errorf("%v events a second of CPU", row.Speed)
	}
}

func TestOneSeedHasNoInterval(t *testing.T) {
	row := runAll(t, small(t, 1, "rr"))[0]
	if row.MeanCI.Exists() || row.P90CI.Exists() || !row.Mean.Exists() {
		t.Errorf("got %+v", row)
	}
}

func TestInterruptedKeepsCompleteRows(t *testing.T) {
	s := small(t, 2, sim.Policies()...)
	s.Workers = 1
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	rows, err := s.Run(ctx, func(p Progress) {
		if p.Done == 3 { // the worker may be ahead
			cancel()
		}
	})
	var cut *Interrupted
	if !errors.As(err, &cut) || len(rows) == 0 || cut.Rows != len(rows) || cut.Of != 2*len(s.Policies) {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	if last := cut.Missing[len(cut.Missing)-1]; last != "rho 0.9: all policies" {
		t.Errorf("missing %q", last)
	}
	s.Policies = s.Policies[:len(rows)]
	for i, want := range runAll(t, s)[:len(rows)] {
		row := rows[i]
		row.Speed, want.Speed = 0, 0
		if !reflect.DeepEqual(row, want) {
			t.Errorf("got %+v, want as without interruption %+v", row, want)
		}
	}
}

// TestMissing: begun runs are distinguished from others.
func TestMissing(t *testing.T) {
	b := newBook(small(t, 2, "single", "rr", "jsq"))
	b.complete = []int{2, 1, 0, 0, 0, 0}
	for load, want := range []string{"rr (1 of 2 seeds done), jsq", "all policies"} {
		if got := b.missing(load); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestInterruptedAtOnce(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := small(t, 2, "single")
	rows, err := s.Run(ctx, func(Progress) {})
	const want = "interrupted: 0 of 2 rows are complete; missing: rho 0.5: all policies; rho 0.9: all policies"
	if rows == nil || len(rows) != 0 || err == nil || err.Error() != want {
		t.Errorf("got %v, %v", rows, err)
	}
}

func TestProgressEnds(t *testing.T) {
	var seen []Progress
	s := small(t, 2, "single", "rr")
	if _, err := s.Run(t.Context(), func(p Progress) { seen = append(seen, p) }); err != nil {
		t.Fatal(err)
	}
	last := seen[len(seen)-1]
	if last.Done != 8 || last.Total != 8 || last.Left != 0 {
		t.Errorf("last is %+v", last)
	}
}

// TestProgressExpects what the runs of a policy took, or else all.
func TestProgressExpects(t *testing.T) {
	s := small(t, 2, "single", "rr") // rows: single, rr at 0.5, single, rr at 0.9
	s.Workers = 1
	b := newBook(s)
	b.add(outcome{job: job{0, 0}, took: 10 * time.Minute})
	b.add(outcome{job: job{1, 0}, took: 20 * time.Minute})
	want := (10 + 20 + 2*10 + 2*20) * time.Minute
	if left := b.progress().Left; left > want || left < want-time.Minute {
		t.Errorf("%v left, want %v", left, want)
	}
}

func TestCheckRefusesTooFewServers(t *testing.T) {
	s := small(t, 1, "single", "guided")
	s.Setting.Farm.Servers = s.Setting.Farm.Servers[:3]
	if err := s.Check(); err == nil || !strings.Contains(err.Error(), "policy guided") {
		t.Errorf("got %v", err)
	}
}
