package e2e

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"proffer/lab/experiment"
)

// edgeFields are the fields of a row of --json.
var edgeFields = []string{"figure", "balancer", "share", "cpu_difference", "cpu_difference_30ms", "throughput", "offered", "latency_us", "weights_sd", "level_s", "scale"}

// TestEdgeExperiment: with an elephant, round robin loses packets at the core that has it and the model
// none, so real flows follow real weights. By how much decides nothing here.
func TestEdgeExperiment(t *testing.T) {
	e := experiment.Edge{
		Figures: []string{"4"}, Balancers: []string{"model", "wrr"}, Shares: []int{47},
		Cost: 300 * time.Microsecond, For: time.Second, Quick: true, Seed: 1, Programs: proffer,
	}
	var report *experiment.EdgeReport
	eventually(t, "the machine is free", func() bool {
		var err error
		if report, err = e.Run(t.Context(), func(experiment.Step) {}); err != nil {
			t.Fatal(err)
		}
		return report.Holds() == nil // but for the generator's schedule nothing is held with Quick
	})
	text, err := json.Marshal(report.JSON())
	if err != nil {
		t.Fatal(err)
	}
	var all []map[string]any
	if err := json.Unmarshal(text, &all); err != nil || len(all) != 2 {
		t.Fatalf("%v: %s", err, text)
	}
	served := map[string]float64{}
	for _, row := range all {
		wantFields(t, row, edgeFields...)
		t.Logf("%v", row)
		served[row["balancer"].(string)] = row["throughput"].(float64) / row["offered"].(float64)
		if row["latency_us"].(float64) < 300 {
			t.Errorf("packets of 300 µs stayed %v µs", row["latency_us"])
		}
	}
	if all[0]["cpu_difference"].(float64) >= all[1]["cpu_difference"].(float64) {
		t.Errorf("model's cores are as far apart as wrr's: %v", all)
	}
	if served["model"] < 0.95 || served["wrr"] > 0.9 {
		t.Errorf("of the packets were served %v, want nearly all by model and four fifths by wrr", served)
	}
	out := filepath.Join(t.TempDir(), "out")
	if paths, err := report.Save(out); err != nil || len(paths) != 3+1 {
		t.Errorf("it wrote %v, %v", paths, err)
	}
}
