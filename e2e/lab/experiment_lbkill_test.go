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

// TestLBsDieUnnoticed: a host and a daemon die under traffic; the router sends frames to the
// dead host for half a second. How long a request
// waits is for the experiment to say, not for a test.
func TestLBsDieUnnoticed(t *testing.T) {
	e := storms.LBKill{Every: 2 * time.Second, For: 6 * time.Second, Detect: 500 * time.Millisecond, LBs: 2, Servers: 4,
		Rate: 100, Idle: 200, Bulk: 4, Seed: 1, Programs: kit.Proffer}
	report, err := e.Run(t.Context(), func(farmrun.Step) {})
	if err != nil {
		t.Fatal(err)
	}
	s := report.Summary()
	t.Logf("%+v", s)
	if s.Kills != 2 || s.HostKills != 1 {
		t.Errorf("%d kills, %d of hosts; want 2 and 1", s.Kills, s.HostKills)
	}
	if s.Carrying != 2 {
		t.Errorf("%d of 2 LBs carry traffic in the end", s.Carrying)
	}
	if s.Requests != 600 || s.IdleFlows != 200 || s.BulkFlows != 4 || s.BulkBytes == 0 {
		t.Errorf("there was too little traffic: %+v", s)
	}
	if s.Swallowed < 10 {
		t.Errorf("%d frames met the dead host in %.0f ms: its death was known before", s.Swallowed, s.Detect)
	}
	if s.Failed+s.IdleLost+s.BulkLost != 0 {
		t.Errorf("%v", report.Holds())
	}
	paths, err := tables.Save(t.TempDir(), report.Files()...)
	if err != nil || len(paths) != 6 {
		t.Errorf("it wrote %v, %v", paths, err)
	}
}

// TestLBKillPrintsWhatItPromises: the fields of --json are an interface.
func TestLBKillPrintsWhatItPromises(t *testing.T) {
	out := experimentJSON(t, "lbkill", "--every", "2s", "--for", "4s", "--rate", "20", "--idle", "10", "--bulk", "2", "--servers", "2", "--lbs", "2")
	var object map[string]any
	if err := json.Unmarshal(out, &object); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	wantFields(t, object, "kills", "host_kills", "requests", "failed", "detect_ms", "swallowed", "longest_stall_ms", "idle_flows", "idle_lost",
		"bulk_flows", "bulk_lost", "bulk_bytes", "carrying", "lbs", "servers", "seed")
}
