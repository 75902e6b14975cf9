package lab

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"proffer/e2e/kit"
	"proffer/lab/edge"
	"proffer/lab/farmrun"
	"proffer/lab/tables"
)

// edgeFields are the fields of a row of --json.
var edgeFields = []string{"figure", "balancer", "share", "cpu_difference", "cpu_difference_30ms", "throughput", "offered", "latency_us", "weights_sd", "level_s", "scale", "report_noise"}

// TestEdgeExperiment: with an elephant, round robin loses a fifth of the packets, at the core that has it;
// model serves at least half of these in a run without stalls of the machine, and its cores are less
// far apart: real flows follow real weights. By how much decides nothing here.
func TestEdgeExperiment(t *testing.T) {
	e := edge.Experiment{
		Figures: []string{"4"}, Balancers: []string{"model", "wrr"}, Shares: []int{47},
		Cost: 300 * time.Microsecond, For: time.Second, Quick: true, Seed: 1, Programs: kit.Proffer,
	}
	var report *edge.Report
	kit.Eventually(t, "model serves more than wrr", func() bool {
		var err error
		if report, err = e.Run(t.Context(), func(farmrun.Step) {}); err != nil {
			t.Fatal(err)
		}
		if report.Holds() != nil { // the generator's schedule: nothing else is held with Quick
			return false
		}
		rows := rowsOfEdge(t, report)
		served := map[string]float64{}
		for _, row := range rows {
			t.Logf("%v", row)
			served[row["balancer"].(string)] = row["throughput"].(float64) / row["offered"].(float64)
		}
		return served["model"] > served["wrr"]+0.1 && rows[0]["cpu_difference"].(float64) < rows[1]["cpu_difference"].(float64)
	})
	for _, row := range rowsOfEdge(t, report) {
		wantFields(t, row, edgeFields...)
		if row["latency_us"].(float64) < 300 {
			t.Errorf("packets of 300 µs stayed %v µs", row["latency_us"])
		}
	}
	out := filepath.Join(t.TempDir(), "out")
	if paths, err := tables.Save(out, report.Files()...); err != nil || len(paths) != 3+1 {
		t.Errorf("it wrote %v, %v", paths, err)
	}
}

// rowsOfEdge are the two rows of a report's --json.
func rowsOfEdge(t *testing.T, report *edge.Report) (all []map[string]any) {
	t.Helper()
	text, err := json.Marshal(report.JSON())
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &all); err != nil || len(all) != 2 {
		t.Fatalf("%v: %s", err, text)
	}
	return all
}
