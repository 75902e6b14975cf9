package edge

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"proffer/api"
	"proffer/lab/edgesim"
	"proffer/lab/farmrun"
	"proffer/lab/tables"
)

// runOf is a run of two cores, sampled each tick: loads and weights as functions of the time in s. Each
// core serves 3,000 packets a tick, which stay 30 µs; the second drops 1,000.
func runOf(c cell, seconds float64, loads, weights func(at float64) [2]float64) *run {
	r := &run{cell: c}
	var core [2]api.VirtualStatus
	tick := edgesim.Period.Seconds()
	for at := 0.0; at < seconds; at += tick {
		load, weight := loads(at), weights(at)
		s := sample{seconds: at, weights: weight[:], predicted: load[:]}
		for i := range core {
			core[i].At = int64(at * 1e9)
			core[i].Busy += int64(load[i] * tick * 1e9)
			core[i].Served += 3000
			core[i].Dropped += uint64(1000 * i)
			core[i].Stayed += 3000 * 30_000
			s.at, s.core = append(s.at, time.Duration(core[i].At)), append(s.core, core[i])
		}
		r.samples = append(r.samples, s)
	}
	return r
}

func always(a, b float64) func(float64) [2]float64 {
	return func(float64) [2]float64 { return [2]float64{a, b} }
}

func near(t *testing.T, name string, got, want, within float64) {
	t.Helper()
	if math.Abs(got-want) > within || math.IsNaN(got) {
		t.Errorf("%s is %v, want %v", name, got, want)
	}
}

// TestEdgeRow: the numbers of a run are those of its samples after the warm-up.
func TestEdgeRow(t *testing.T) {
	e := Experiment{Cost: 7 * time.Microsecond, For: 4 * time.Second}
	r := runOf(cell{"4", "model", 47}, 4, func(at float64) [2]float64 {
		if at < 1 {
			return [2]float64{0, 1}
		}
		return [2]float64{0.9, 0.87}
	}, func(at float64) [2]float64 { return [2]float64{1 + 0.5*math.Copysign(1, math.Mod(at, 0.12)-0.055), 1} })
	r.traffic.WarmUp = 1200 * time.Millisecond
	row := e.row(r)
	near(t, "cpu_difference", float64(row.CPU), 0.03, 1e-3)
	near(t, "cpu_difference_30ms", float64(row.CPUTick), 0.03, 1e-3)
	near(t, "throughput", row.Throughput, 2*3000/0.03, 2000)
	near(t, "offered", row.Offered, 7000/0.03, 2000)
	near(t, "latency_us", float64(row.Latency), 30, 1e-6)
	near(t, "weights_sd", float64(row.Weights), 0.5, 0.05)
	near(t, "scale", row.Scale, 10, 1e-9)
	near(t, "share", row.Share, 0.47, 1e-9)
	if row.Level.Exists() || row.Figure != "4" || row.Balancer != "model" {
		t.Errorf("%+v", row)
	}
}

// TestEdgeLevel: a run of figure 5 is level when its loads first are, after the second node took flows, if they
// stay so.
func TestEdgeLevel(t *testing.T) {
	e := Experiment{Cost: 7 * time.Microsecond, For: 4 * time.Second}
	joined := func(at float64) [2]float64 {
		if at < 2 {
			return [2]float64{1, 0}
		}
		return [2]float64{0.5, 1.5}
	}
	r := runOf(cell{"5", "model", 0}, 6, func(at float64) [2]float64 {
		return [2]float64{1 - 0.2*max(0, min(at-2, 2)), 0.2 * max(0, min(at-2, 2))} // apart by 1 − 0.4·(at − 2)
	}, joined)
	if row := e.row(r); row.Level.Exists() {
		t.Errorf("loads that stay 20 points apart are level after %v s", row.Level)
	}
	r = runOf(cell{"5", "model", 0}, 6, func(at float64) [2]float64 {
		if at > 3.5 && at < 4 {
			return [2]float64{0.6, 0.4}
		}
		return [2]float64{1 - 0.5*max(0, min(at-2, 1)), 0.5 * max(0, min(at-2, 1))} // apart by 1 − (at − 2)
	}, joined)
	near(t, "level_s", float64(e.row(r).Level), 2.2, 0.08) // the mean of an interval is that of its middle
}

// TestEdgeNothing: what a run did not measure is null in its row, and never 0; the contract's fields are in every
// row. A run without samples for its row has none.
func TestEdgeNothing(t *testing.T) {
	report := good()
	joins := func(at float64) [2]float64 {
		if at < 2.28 {
			return [2]float64{1, 0}
		}
		return [2]float64{1, 1}
	}
	report.runs = []*run{runOf(cell{"5", "wrr", 0}, 3, always(1, 0.3), joins)} // .7 s are left, less than an interval
	report.experiment.Cost = 70 * time.Microsecond
	report.predicted = []PredictionRow{{Chain: "cost", Payload: 18, Rate: 5e4, Measured: 0.5, Learned: 0.51, Started: 0.52}}
	text, err := json.Marshal(report.JSON())
	if err != nil {
		t.Fatal(err)
	}
	var rows []map[string]any
	if err := json.Unmarshal(text, &rows); err != nil || len(rows) != 2 {
		t.Fatalf("%v: %s", err, text)
	}
	for i, fields := range []map[string]any{
		{"latency_us": nil, "cpu_difference_30ms": nil, "weights_sd": nil, "level_s": nil, "cpu_difference": 0.02, "predicted_by_start_cost": 0.52, "predicted_load": 0.51},
		{"cpu_difference": 0.7, "cpu_difference_30ms": 0.7, "level_s": nil, "weights_sd": 0.0},
	} {
		for name, want := range fields {
			got, there := rows[i][name]
			number, is := got.(float64)
			if wanted, some := want.(float64); !there || is != some || math.Abs(number-wanted) > 1e-9 {
				t.Errorf("row %d: %s is %v, want %v", i, name, got, want)
			}
		}
		for _, name := range []string{"figure", "balancer", "share", "cpu_difference", "throughput", "latency_us"} {
			if _, there := rows[i][name]; !there {
				t.Errorf("row %d has no %s: %v", i, name, rows[i])
			}
		}
	}
	alone := runOf(cell{"5", "wrr", 0}, 3, always(1, 1), always(1, 0))
	if err := alone.complete(); !errors.Is(err, errNothing) || !strings.Contains(err.Error(), "the second node took no flow") {
		t.Errorf("a run without a second node: %v", err)
	}
	short := runOf(cell{"4", "wrr", 7}, 1, always(1, 1), always(1, 1))
	if short.traffic.WarmUp = 2 * time.Second; !errors.Is(short.complete(), errNothing) {
		t.Errorf("a run that ended before its warm-up: %v", short.complete())
	}
	if err := report.runs[0].complete(); err != nil {
		t.Error(err)
	}
}

// good are runs with which all goals are met.
func good() *Report {
	e := Experiment{Cost: 7 * time.Microsecond, For: 4 * time.Second}
	r := &Report{experiment: e}
	for _, share := range []int{7, 47} {
		r.runs = append(r.runs, runOf(cell{"4", "model", share}, 3, always(0.9, 0.89), always(1, 1)), runOf(cell{"4", "wrr", share}, 3, always(1, 0.6), always(1, 1)))
	}
	r.runs = append(r.runs, runOf(cell{"5", "model", 0}, 3, always(0.9, 0.89), always(1, 1)))
	for _, run := range r.runs { // wrr serves half as much, and four times as late
		for i := range run.samples {
			for k := range run.samples[i].core {
				if c := &run.samples[i].core[k]; run.cell.balancer == "wrr" {
					c.Served /= 2
					c.Stayed *= 2
				}
			}
		}
	}
	return r
}

// TestEdgeHolds: each goal that is missed is named; with Quick only the claims are held.
func TestEdgeHolds(t *testing.T) {
	if err := good().Holds(); err != nil {
		t.Error(err)
	}
	for want, spoil := range map[string]func(*Report){
		"cores are 50.0 % apart":                   func(r *Report) { r.runs[2] = runOf(r.runs[2].cell, 3, always(0.9, 0.4), always(1, 1)) },
		"serves 1.00 times wrr's packets":          func(r *Report) { r.runs[3] = runOf(r.runs[3].cell, 3, always(1, 1), always(1, 1)) },
		"latency is 1.00 of wrr's":                 func(r *Report) { r.runs[3] = runOf(r.runs[3].cell, 3, always(1, 1), always(1, 1)) },
		"figure 5: model was level after: not yet": func(r *Report) { r.runs[4] = runOf(r.runs[4].cell, 3, always(1, 0), always(1, 1)) },
		"figure 4, wrr, elephant of 7 %: so late": func(r *Report) {
			r.unclaimed = []farmrun.Unclaimed{{Policy: "figure 4, wrr, elephant of 7 %", Reason: "so late"}}
		},
		"figure 3: predictions by the start's cost are 2.5 points off": func(r *Report) {
			r.predicted = []PredictionRow{{Measured: 0.5, Started: 0.525, Learned: 0.5}}
		},
	} {
		r := good()
		spoil(r)
		if err := r.Holds(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
		if r.experiment.Quick = true; (r.Holds() != nil) != (len(r.unclaimed) > 0) {
			t.Errorf("with Quick: %v", r.Holds())
		}
	}
}

// TestEdgeFiles: both figures are drawn, the samples are rows, and the table has the published values.
func TestEdgeFiles(t *testing.T) {
	r, dir := good(), t.TempDir()
	r.predicted = []PredictionRow{{Chain: "cost", Payload: 18, Rate: 5e4, Measured: 0.5, Started: 0.52, Learned: 0.51}, {Chain: "cost", Payload: 18, Rate: 8e4, Measured: 0.8, Started: 0.84, Learned: 0.8}}
	paths, err := tables.Save(dir, r.Files()...)
	if err != nil || len(paths) != 3+3+3+1 {
		t.Fatalf("%v, %v", paths, err)
	}
	rows, err := os.ReadFile(filepath.Join(dir, "edge-samples.csv"))
	if err != nil || strings.Count(string(rows), "\n") != 1+5*(len(r.runs[0].samples)-1) {
		t.Errorf("%v: %d lines of samples", err, strings.Count(string(rows), "\n"))
	}
	var out strings.Builder
	if err := r.Print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"10 times the paper's cost", "above 300 µs", "5: level after, model", "47 %", "start's cost, as published: mean 3.0 points (published: 1.8), greatest 4.0; goals 1.8 and 3.0", "learns from the core's load: mean 0.5 points, greatest 1.0; no goal", "% in 30 ms"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// TestEdgeFrames: flows of a class have a tuple each, which comes again after a long time alone.
func TestEdgeFrames(t *testing.T) {
	f := &frames{}
	seen := map[string]edgesim.Packet{}
	for _, class := range []int{0, 1} {
		for flow := 0; flow < ports*addrs; flow += 997 {
			p := edgesim.Packet{Class: class, Flow: flow}
			source := f.source(p).String()
			if was, twice := seen[source]; twice {
				t.Fatalf("%+v and %+v come from %s", was, p, source)
			}
			seen[source] = p
		}
	}
}
