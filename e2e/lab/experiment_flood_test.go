package lab

import (
	"encoding/json"
	"testing"
	"time"

	"proffer/e2e/kit"
	"proffer/lab/farmrun"
	"proffer/lab/storms"
	"proffer/lab/tables"
)

// TestFloodCostsNoEstablishedFlow: a short flood, as fast as it goes. No established flow
// is displaced, even for a moment, and new connections come through. How long they take is
// for the experiment to judge.
func TestFloodCostsNoEstablishedFlow(t *testing.T) {
	e := storms.Flood{Rates: []int{0}, For: time.Second, Flows: 200, Servers: 4, Seed: 1, Programs: kit.Proffer}
	report, err := e.Run(t.Context(), func(farmrun.Step) {})
	if err != nil {
		t.Fatal(err)
	}
	if err := report.Kept(); err != nil {
		t.Error(err)
	}
	row := report.Summaries()[0]
	t.Logf("%+v", row)
	if row.Offered < 1000 || row.SentPPS < 1000 {
		t.Errorf("%d SYNs came: that was no flood", row.Offered)
	}
	if row.Established != 200 || row.Tried != 50 || row.TriedSpin != 50 {
		t.Errorf("%+v", row)
	}
	if paths, err := tables.Save(t.TempDir(), report.Files()...); err != nil || len(paths) != 4 {
		t.Errorf("it wrote %v, %v", paths, err)
	}
}

// TestFloodPrintsWhatItPromises: the fields of --json are an interface.
func TestFloodPrintsWhatItPromises(t *testing.T) {
	out := experimentJSON(t, "flood", "--rates", "1000,2000", "--for", "1s", "--flows", "20", "--servers", "2")
	var rows []map[string]any
	if err := json.Unmarshal(out, &rows); err != nil || len(rows) != 2 {
		t.Fatalf("%v: %s", err, out)
	}
	wantFields(t, rows[1], "rate", "sent_pps", "offered", "cpu", "established", "lost", "silent_during", "recovered", "table_full",
		"tried", "ok", "p90_ms", "tried_spin", "ok_spin", "p90_spin_ms")
	if rows[0]["rate"] != 1000.0 || rows[1]["rate"] != 2000.0 {
		t.Errorf("rates %v and %v", rows[0]["rate"], rows[1]["rate"])
	}
}
