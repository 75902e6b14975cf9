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

// TestStorm: docs/failures.md, Hardened: all troubles at once, in short. How long a request
// waits is for the experiment to say, not for a test.
func TestStorm(t *testing.T) {
	e := storms.Storm{For: 20 * time.Second, Every: 2 * time.Second, LBs: 2, Servers: 5, Rate: 100, Flows: 200, Seed: 1, Programs: kit.Proffer}
	report, err := e.Run(t.Context(), func(farmrun.Step) {})
	if err != nil {
		t.Fatal(err)
	}
	s := report.Summary()
	t.Logf("%+v", s)
	if s.Requests != 2200 || s.Flows != 200 {
		t.Errorf("%d requests and %d flows, want 2200 and 200", s.Requests, s.Flows)
	}
	if s.Failed+s.FlowsLost > 0 || s.Excused > s.Requests/100 {
		t.Errorf("%d requests excused: %v", s.Excused, report.Holds())
	}
	if len(s.Abuses) < 15 {
		t.Errorf("%d abuses", len(s.Abuses))
	}
	for _, a := range s.Abuses { // a slow machine's attacks went on until each was counted
		if a.Times == 0 || a.Counted == 0 {
			t.Errorf("%+v", a)
		}
	}
	paths, err := tables.Save(t.TempDir(), report.Files()...)
	if err != nil || len(paths) != 3 {
		t.Errorf("it wrote %v, %v", paths, err)
	}
}

// TestStormPrintsWhatItPromises: the fields of --json are an interface.
func TestStormPrintsWhatItPromises(t *testing.T) {
	data, err := json.Marshal(storms.StormSummary{})
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := json.Unmarshal(data, &object); err != nil {
		t.Fatal(err)
	}
	wantFields(t, object, "seconds", "lbs", "servers", "requests", "failed", "excused", "longest_ms", "flows", "flows_lost", "abuses", "seed")
}
