package lab

import (
	"encoding/csv"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"proffer/e2e/kit"
	"proffer/lab/farmrun"
	"proffer/lab/storms"
	"proffer/lab/tables"
)

// TestFlowsOfLivingServersSurvive: three replacements, each with another LB,
// two of which are started just then. Without the history, and by consistent hashing alone, flows
// are lost all the same, or the changes would prove nothing.
func TestFlowsOfLivingServersSurvive(t *testing.T) {
	e := storms.Resiliency{
		Methods: []storms.Method{storms.WithHistory, storms.ByHash, storms.Presuming, storms.WithoutHistory},
		Flows:   100, Changes: 3, Servers: 6, Buckets: 4096, Seed: 3, Programs: kit.Proffer,
	}
	report, err := e.Run(t.Context(), func(farmrun.Step) {})
	if err != nil {
		t.Fatal(err)
	}
	if err := report.Holds(); err != nil {
		t.Error(err)
	}
	rows := report.Summaries()
	hunt, stateless, single, paper := rows[0], rows[1], rows[2], rows[3]
	for _, row := range rows {
		t.Logf("%s: %d removed, %d extra resets, %d recovered", row.Method, row.Removed, row.ExtraResets, row.Recovered)
		if row.Removed == 0 || row.Removed > 80 {
			t.Errorf("%s: %d of 100 flows were on removed servers", row.Method, row.Removed)
		}
	}
	if hunt.ExtraResets != 0 || hunt.Recovered < 100 {
		t.Errorf("hunt: %d extra resets, %d recovered", hunt.ExtraResets, hunt.Recovered)
	}
	if hunt.FirstTakes < 0.3 || hunt.FirstTakes > 0.7 {
		t.Errorf("the first candidates took %.2f of the flows: recovery by the second was hardly tried", hunt.FirstTakes)
	}
	if single.ExtraResets != 0 {
		t.Errorf("single: %d extra resets: the oldest pool names the owner of each", single.ExtraResets)
	}
	if stateless.ExtraResets == 0 || paper.ExtraResets == 0 || paper.Recovered < 100 {
		t.Errorf("consistent hashing lost %d flows, 6LB without the history %d, and recovered %d", stateless.ExtraResets, paper.ExtraResets, paper.Recovered)
	}
	wantResiliencyRows(t, report)
}

// wantResiliencyRows checks what --out writes: a row a flow that was there before
// a change.
func wantResiliencyRows(t *testing.T, report *storms.ResiliencyReport) {
	t.Helper()
	dir := t.TempDir()
	if _, err := tables.Save(dir, report.Files()...); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"resiliency.svg", "resiliency.png", "resiliency.csv"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	f, err := os.Open(filepath.Join(dir, "resiliency-rows.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	want := 1
	for _, row := range report.Summaries() {
		left := row.Flows
		for _, c := range row.PerChange {
			want += left
			left -= c.Removed + c.Extra
			if left != c.Live {
				t.Errorf("%s, change %d: %d flows live, want %d", row.Method, c.Number, c.Live, left)
			}
		}
	}
	if len(rows) != want {
		t.Errorf("%d rows, want %d", len(rows), want)
	}
}

// TestExperimentPrintsWhatItPromises: the fields of --json are an interface.
func TestExperimentPrintsWhatItPromises(t *testing.T) {
	out := experimentJSON(t, "resiliency", "--methods", "hunt", "--changes", "1", "--flows", "20", "--servers", "3")
	var rows []map[string]any
	if err := json.Unmarshal(out, &rows); err != nil || len(rows) != 1 {
		t.Fatalf("%v: %s", err, out)
	}
	wantFields(t, rows[0], "method", "changes", "flows", "removed", "extra_resets", "silent", "recovered", "first_takes", "seed", "servers", "buckets", "per_change")
	changes, _ := rows[0]["per_change"].([]any)
	if len(changes) != 1 {
		t.Fatalf("changes: %v", rows[0]["per_change"])
	}
	wantFields(t, changes[0].(map[string]any), "change", "cold", "live", "removed", "extra_resets", "silent", "recovered")
}
