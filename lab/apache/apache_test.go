package apache

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"proffer/lab/farmrun"
	"proffer/lab/tables"
	"proffer/lab/traffic"
)

// TestRounds: equal weights are round robin; others share the turns in proportion, and a
// busy server gets fewer.
func TestRounds(t *testing.T) {
	r := newRounds(3)
	var order []int
	for range 6 {
		order = append(order, r.next())
	}
	if want := []int{0, 1, 2, 0, 1, 2}; !slices.Equal(order, want) {
		t.Errorf("the turns were %v, want %v", order, want)
	}
	r.weigh([]float64{0, 8, 32}, 32)
	want := []float64{1, 0.1 + 0.9*math.Exp(-0.5), 0.1 + 0.9*math.Exp(-8)}
	count := make([]float64, 3)
	const turns = 10_000
	for range turns {
		count[r.next()]++
	}
	for i, w := range want {
		if share := w / (want[0] + want[1] + want[2]); math.Abs(count[i]/turns-share) > 0.001 {
			t.Errorf("server %d had %.4f of the turns, want %.4f", i, count[i]/turns, share)
		}
	}
}

// TestApacheCells: each run is made once, and every figure finds its runs.
func TestApacheCells(t *testing.T) {
	for _, e := range []Experiment{{}, {Loads: []float64{lightLoad}}, {Figures: []string{"srlb-4"}}} {
		cells := e.cells()
		seen := map[cell]bool{}
		for _, c := range cells {
			if seen[c] {
				t.Errorf("%s is run twice", c)
			}
			seen[c] = true
		}
		for _, f := range e.asked() {
			for _, load := range f.loads(e) {
				for _, p := range f.policies {
					if !seen[cell{p, load, false}] || !seen[cell{p, load, true}] {
						t.Errorf("%s has no run of %s at %v", f.name, p, load)
					}
				}
			}
		}
	}
	if n := len((Experiment{Figures: []string{"srlb-4"}}).cells()); n != 4 {
		t.Errorf("srlb-4 has %d runs, want 4", n)
	}
}

// TestApacheHolds: a server without its share, a failed request and a run without a result
// are failures.
func TestApacheHolds(t *testing.T) {
	good := func() *Report {
		return &Report{experiment: Experiment{Share: 0.2}, Calibration: Calibration{LeastUsed: 0.19, MostUsed: 0.21}, Runs: []Row{{}}}
	}
	if err := good().Holds(); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*Report){
		"little": func(r *Report) { r.Calibration.LeastUsed = 0.17 },
		"much":   func(r *Report) { r.Calibration.MostUsed = 0.23 },
		"failed": func(r *Report) { r.Runs[0].Failed = 1 },
		"late":   func(r *Report) { r.Unclaimed = []farmrun.Unclaimed{{}} },
	} {
		r := good()
		spoil(r)
		if r.Holds() == nil {
			t.Errorf("%s: it holds", name)
		}
	}
}

// TestApacheLate: lateness is held to the time that a request takes on its share of a core, and on
// a virtual core to its row's.
func TestApacheLate(t *testing.T) {
	r := &run{Experiment: Experiment{Share: 0.1}}
	late := func(by time.Duration) []traffic.Row {
		return []traffic.Row{{Started: by, Service: 15 * time.Millisecond}}
	}
	for _, c := range []struct {
		virtual bool
		late    time.Duration
		kept    bool
	}{
		{false, 2 * time.Millisecond, true},
		{false, 4 * time.Millisecond, false},
		{true, 200 * time.Microsecond, true},
		{true, 2 * time.Millisecond, false},
	} {
		rows := late(c.late)
		if err := r.kept(cell{virtual: c.virtual}, rows); (err == nil) != c.kept {
			t.Errorf("%+v: %v", c, err)
		}
		if rows[0].Service != 15*time.Millisecond {
			t.Errorf("%+v: the row's service is %v now", c, rows[0].Service)
		}
	}
}

// TestCalibration: the cost of a request beside its loop, and the farm's capacity.
func TestCalibration(t *testing.T) {
	second := time.Second
	c := calibration(sharesOr{shares: []float64{0.1, 0.3}}, []time.Duration{0, second}, []time.Duration{second, 2 * second}, 15*time.Millisecond, 100)
	want := Calibration{Share: 0.2, LeastUsed: 0.1, MostUsed: 0.3, Overhead: 0.005, Alone: 0.1, Capacity: 20}
	if fmt.Sprintf("%.6f", c) != fmt.Sprintf("%.6f", want) {
		t.Errorf("%+v, want %+v", c, want)
	}
}

// TestApacheReport: ratios over single of the same servers and load, in units of a request
// alone; and a figure each kind of servers.
func TestApacheReport(t *testing.T) {
	e := Experiment{Figures: []string{"srlb-2", "srlb-4"}, Loads: []float64{lightLoad, heavyLoad}, Servers: 2, Workers: 32, Mean: 10 * time.Millisecond}
	r := &Report{experiment: e, Calibration: Calibration{Share: 0.1, Alone: 0.1}}
	for _, c := range e.cells() {
		latency := 100 * time.Millisecond
		if c.policy == "single" {
			latency *= 2
		}
		result := &farmrun.Result{Kinds: e.kinds(), Loads: farmrun.Loads{Seconds: []float64{0, 1}, Busy: []float64{1, 2}, Fairness: []float64{1, 0.5}}}
		for i := range 4 {
			at := time.Duration(i) * time.Second
			result.Rows = append(result.Rows, traffic.Row{Intended: at, Done: at + latency, Service: e.Mean, Server: "s1", Outcome: traffic.OK})
		}
		r.add(&outcome{Result: result, cell: c})
	}
	for _, row := range r.Runs {
		vs, mean := 2.0, 1.0
		if row.Policy == "single" {
			vs, mean = 1, 2
		}
		if row.Servers == "virtual" {
			mean *= 10
		}
		if row.VsSingle != vs || math.Abs(row.Mean-mean) > 1e-9 || row.Busy != 1.5 || row.Requests != 4 {
			t.Errorf("%+v: want %v over single and a mean of %v", row, vs, mean)
		}
	}
	paths, err := tables.Save(t.TempDir(), r.Files()...)
	if want := 3*3 + len(e.cells()); err != nil || len(paths) != want {
		t.Errorf("%d files, want %d: %v (%v)", len(paths), want, paths, err)
	}
}
