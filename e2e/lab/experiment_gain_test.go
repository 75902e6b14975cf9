package lab

import (
	"encoding/json"
	"testing"
	"time"

	"proffer/e2e/kit"
	"proffer/lab/farmrun"
	"proffer/lab/loads"
	"proffer/lab/tables"
)

// TestGainServes: each way has its run, all requests are answered, and the quotas are used. How long
// requests took decides nothing here.
func TestGainServes(t *testing.T) {
	e := loads.Gain{
		Programs: []string{"nginx-h1"}, Policy: "hunt:static:2", Servers: 2, Share: 0.2, Mean: 5 * time.Millisecond,
		Load: 0.6, For: time.Second, Seed: 1, Proffer: kit.Proffer, Lab: kit.ProfferLab,
	}
	report, err := e.Run(t.Context(), func(farmrun.Step) {})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(report.JSON())
	if err != nil {
		t.Fatal(err)
	}
	var rows []map[string]any
	if err := json.Unmarshal(text, &rows); err != nil || len(rows) != 3 {
		t.Fatalf("%v: %s", err, text)
	}
	for i, row := range rows {
		t.Logf("%v", row)
		wantFields(t, row, "program", "load", "policy", "requests", "failed", "mean_s", "p50_s", "p90_s", "gain_s", "gain_share", "offered", "late_s")
		if want := []string{"single", "default", "true"}[i]; row["load"] != want {
			t.Errorf("row %d is of the load %v, want %s", i, row["load"], want)
		}
		if row["failed"] != 0.0 || row["requests"] != rows[0]["requests"] || row["requests"].(float64) < 10 {
			t.Errorf("not all requests were answered: %v", row)
		}
	}
	if paths, err := tables.Save(t.TempDir(), report.Files()...); err != nil || len(paths) != 4 {
		t.Errorf("it wrote %v, %v", paths, err)
	}
}
