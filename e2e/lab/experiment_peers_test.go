package lab

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"proffer/e2e/kit"
	"proffer/lab/farmrun"
	"proffer/lab/peers"
	"proffer/lab/tables"
)

// TestPeers: every way of the comparison works, was the one it is named after, and
// has been counted. Speed and cost are not claimed.
func TestPeers(t *testing.T) {
	e := peers.Experiment{Rounds: 2, For: 200 * time.Millisecond, Servers: 3, Seed: 1, Programs: kit.Proffer}
	report, err := e.Run(t.Context(), func(farmrun.Step) {})
	if err != nil {
		t.Fatal(err)
	}
	if err := report.Went(); err != nil {
		t.Error(err)
	}
	rows := report.Summaries()
	ways := []string{"route", "ecmp", "hunt", "single", "haproxy", "nginx"}
	if len(rows) != len(ways) {
		t.Fatalf("%d rows, want %v", len(rows), ways)
	}
	for i, row := range rows {
		t.Logf("%+v", row)
		if row.Way != ways[i] {
			t.Errorf("row %d is of %s, want %s", i, row.Way, ways[i])
		}
		for what, value := range map[string]float64{
			"connections": row.Connections, "requests": row.Requests, "download": row.Download, "upload": row.Upload,
			"p50": row.P50, "p99": row.P99, "counted": float64(row.Counted),
		} {
			if value <= 0 {
				t.Errorf("%s: %s is %v", row.Way, what, value)
			}
		}
		forwards := row.Way == "route" || row.Way == "ecmp"
		proffers := row.Way == "hunt" || row.Way == "single"
		for what, c := range map[string]struct {
			value float64
			some  bool
		}{
			"own":           {row.OwnConnection, !forwards},
			"own of upload": {row.OwnUpload, !forwards},
			"runs":          {row.Runs, proffers},
			"agents":        {row.Agents, proffers},
		} {
			if (c.value > 0) != c.some {
				t.Errorf("%s: %s is %v", row.Way, what, c.value)
			}
		}
		if row.Way != "ecmp" && (row.AroundConnection > 0) == forwards { // that of ecmp may be lost in the noise
			t.Errorf("%s: with softirq is %v", row.Way, row.AroundConnection)
		}
		if (row.OverRoute == 0) != (row.Way == "route") || (row.OverECMP == 0) != (row.Way == "ecmp") {
			t.Errorf("%s: p50 is %v, %v %% over route, %v %% over ecmp", row.Way, row.P50, row.OverRoute, row.OverECMP)
		}
	}
	paths, err := tables.Save(t.TempDir(), report.Files()...)
	if err != nil || len(paths) != 4 {
		t.Errorf("it wrote %v, %v", paths, err)
	}
	wantPeersJSON(t, report)
	if left := remains(t, os.Getpid()); len(left) > 0 {
		t.Errorf("it left behind %v", left)
	}
}

// wantPeersJSON: the fields are an interface.
func wantPeersJSON(t *testing.T, report *peers.Report) {
	t.Helper()
	text, err := json.Marshal(report.JSON())
	if err != nil {
		t.Fatal(err)
	}
	var rows []map[string]any
	if err := json.Unmarshal(text, &rows); err != nil || len(rows) != 6 {
		t.Fatalf("%v: %s", err, text)
	}
	for _, row := range rows {
		wantFields(t, row, "way", "connections_per_s", "requests_per_s", "gbit_per_s", "upload_gbit_per_s", "p50_us", "p99_us", "p50_over_route", "p50_over_ecmp", "late_p99_us",
			"cpu_us_per_connection", "cpu_us_per_request", "cpu_s_per_gb", "cpu_s_per_upload_gb",
			"with_softirq_us_per_connection", "with_softirq_us_per_request", "with_softirq_s_per_gb", "with_softirq_s_per_upload_gb",
			"with_agents_us_per_connection", "with_agents_us_per_request", "with_agents_s_per_gb", "with_agents_s_per_upload_gb",
			"machine_us_per_connection", "machine_us_per_request", "machine_s_per_gb", "machine_s_per_upload_gb",
			"agents_us_per_connection", "runs_per_connection", "ns_per_run", "connections", "errors")
	}
}
