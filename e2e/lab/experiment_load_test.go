package lab

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"proffer/e2e/kit"
	"proffer/lab/farmrun"
	"proffer/lab/loads"
	"proffer/lab/tables"
)

// TestLoadTruth: the default reads 0 with idle connections of redis and nginx and follows the
// requests in progress; busy counts the connections of redis that wait in BLPOP, alone and under
// load, which shows that they are open and that the experiment sees a signal that is wrong. Programs
// that are exceptions report their load themselves.
func TestLoadTruth(t *testing.T) {
	e := loads.Experiment{
		Programs: []string{"nginx-h1", "node-timers", "grpc-proxy", "sshd", "redis"}, Each: 300 * time.Millisecond, Idle: 100, Seed: 1, Proffer: kit.Proffer, Lab: kit.ProfferLab,
	}
	report, err := e.Run(t.Context(), func(farmrun.Step) {})
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	for _, row := range report.Rows() {
		t.Logf("%+v", row)
		if row.Requests == "wait" {
			seen = append(seen, row.Program+" "+row.Signal)
		}
		usual := row.Program == "nginx-h1" || row.Program == "redis"
		if (row.Signal == "page" || row.Default && usual) && (row.Idle >= 1 || row.R < 0.6 || row.Bias < -0.8 || row.Bias > 1) {
			t.Errorf("another load: %+v", row)
		}
		if row.Default != (row.Signal == "work") {
			t.Errorf("the default is %s", row.Signal)
		}
		if row.Program == "redis" && row.Signal == "busy" && (row.Idle != 50 || row.Over < 40) {
			t.Errorf("busy reads %v of 50 that wait in BLPOP, and %v more than the requests under load", row.Idle, row.Over)
		}
	}
	want := []string{
		"nginx-h1 work", "nginx-h1 busy", "nginx-h1 nginx", "node-timers work", "node-timers busy", "node-timers page",
		"grpc-proxy work", "grpc-proxy busy", "grpc-proxy page", "sshd work", "sshd busy", "sshd page", "redis work", "redis busy",
	}
	if !slices.Equal(seen, want) {
		t.Errorf("rows of %v, want %v", seen, want)
	}
	paths, err := tables.Save(t.TempDir(), report.Files()...)
	if err != nil || len(paths) != 4 {
		t.Errorf("it wrote %v, %v", paths, err)
	}
	wantLoadJSON(t, report)
}

// wantLoadJSON: the fields are an interface.
func wantLoadJSON(t *testing.T, report *loads.Report) {
	t.Helper()
	text, err := json.Marshal(report.JSON())
	if err != nil {
		t.Fatal(err)
	}
	var rows []map[string]any
	if err := json.Unmarshal(text, &rows); err != nil || len(rows) != 39 {
		t.Fatalf("%v: %s", err, text)
	}
	for _, row := range rows {
		wantFields(t, row, "program", "requests", "signal", "default", "bias", "bias_requests", "correlation", "idle")
	}
}
