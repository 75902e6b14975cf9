package lab

import (
	"encoding/json"
	"testing"

	"proffer/e2e/kit"
	"proffer/lab/farmrun"
	"proffer/lab/storms"
	"proffer/lab/tables"
)

// TestLostFramesServeOnce: one frame in fifty is lost on every link. How
// many connections are answered in time is the network's doing.
func TestLostFramesServeOnce(t *testing.T) {
	e := storms.Loss{Losses: []float64{0.02}, Requests: 300, Servers: 4, Seed: 1, Programs: kit.Proffer}
	report, err := e.Run(t.Context(), func(farmrun.Step) {})
	if err != nil {
		t.Fatal(err)
	}
	if err := report.Holds(); err != nil {
		t.Error(err)
	}
	rows := report.Summaries()
	if len(rows) != 3 {
		t.Fatalf("%d rows, want hunt, single and route", len(rows))
	}
	for _, row := range rows {
		t.Logf("%+v", row)
		if row.Requests != 300 || row.OK < 200 {
			t.Errorf("%s: %d of %d answered: nothing is shown", row.Method, row.OK, row.Requests)
		}
		if row.LostFrames < 50 { // about a hundred of a plain route, by chance
			t.Errorf("%s: %d frames were lost: nothing is shown", row.Method, row.LostFrames)
		}
	}
	if paths, err := tables.Save(t.TempDir(), report.Files()...); err != nil || len(paths) != 4 {
		t.Errorf("it wrote %v, %v", paths, err)
	}
}

// TestLossPrintsWhatItPromises: the fields of --json are an interface.
func TestLossPrintsWhatItPromises(t *testing.T) {
	out := experimentJSON(t, "loss", "--loss", "0", "--requests", "20", "--servers", "2")
	var rows []map[string]any
	if err := json.Unmarshal(out, &rows); err != nil || len(rows) != 3 {
		t.Fatalf("%v: %s", err, out)
	}
	for i, method := range []string{"hunt", "single", "route"} {
		wantFields(t, rows[i], "loss", "method", "requests", "ok", "failed", "resets", "served_twice", "unserved", "accepted_twice", "requested_twice", "lost_frames")
		if rows[i]["method"] != method || rows[i]["ok"] != 20.0 || rows[i]["lost_frames"] != 0.0 {
			t.Errorf("%v", rows[i])
		}
	}
}
