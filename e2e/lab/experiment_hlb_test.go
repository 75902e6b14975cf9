package lab

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"proffer/e2e/kit"
	"proffer/lab/farmrun"
	"proffer/lab/hlb"
	"proffer/lab/tables"
)

// hlbFields are the fields of --json.
var (
	hlbFigureFields = []string{"figure", "shows", "scale", "runs", "costs", "beside", "unclaimed"}
	hlbRunFields    = []string{"policy", "lbs", "cores", "load", "requests", "course", "rtt_ms", "answered", "failed", "mean_s", "sd_s", "p50_s", "p90_s", "p99_s",
		"slow_mean_s", "fast_mean_s", "fast_share", "fast_queue_share", "weights_ratio", "fidelity"}
)

// unhurriedHLB runs two figures, again with requests twice as long, and so half as many a second,
// while the machine is too slow or busy to send them on time.
func unhurriedHLB(t *testing.T) (hlb.Experiment, *hlb.Report) {
	t.Helper()
	for slower := time.Duration(1); slower <= 16; slower *= 2 {
		e := hlb.Experiment{
			Figures: []string{"9", "23"}, Policies: []string{"learned"}, Servers: 4, Mean: slower * 40 * time.Millisecond,
			For: slower * time.Second, Quick: true, Seed: 1, Programs: kit.Proffer, Out: filepath.Join(t.TempDir(), "out"),
		}
		report, err := e.Run(t.Context(), func(farmrun.Step) {})
		if err != nil {
			t.Fatal(err)
		}
		if err = report.Holds(); err == nil { // but for the generator's schedule nothing is held with Quick
			return e, report
		}
		t.Log(err)
	}
	t.Fatal("requests leave late on this machine even at a sixteenth of the load")
	return hlb.Experiment{}, nil
}

// TestHLBServes: a figure of each course has its runs, in which the LBs learn, and its files.
// How long requests took decides nothing.
func TestHLBServes(t *testing.T) {
	e, report := unhurriedHLB(t)
	text, err := json.Marshal(report.JSON())
	if err != nil {
		t.Fatal(err)
	}
	var all []map[string]any
	if err := json.Unmarshal(text, &all); err != nil || len(all) != 2 {
		t.Fatalf("%v: %s", err, text)
	}
	for i, figure := range all {
		wantFields(t, figure, hlbFigureFields...)
		if want := e.Figures[i]; figure["figure"] != want || len(figure["beside"].([]any)) == 0 {
			t.Errorf("figure %v, want %s: %v", figure["figure"], want, figure)
		}
		for _, one := range figure["runs"].([]any) {
			run := one.(map[string]any)
			t.Logf("%v", run)
			wantFields(t, run, hlbRunFields...)
			if run["answered"].(float64) < 50 || run["failed"] != 0.0 || run["weights_ratio"].(float64) <= 0 || run["fast_share"].(float64) <= 0.3 {
				t.Errorf("%v", run)
			}
		}
	}
	if paths, err := tables.Save(t.TempDir(), report.Files()...); err != nil || len(paths) != 3+1+3*3+1 {
		t.Errorf("it wrote %v, %v", paths, err)
	}
}
