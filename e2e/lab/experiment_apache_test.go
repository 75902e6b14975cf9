package lab

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"proffer/e2e/kit"
	"proffer/lab/apache"
	"proffer/lab/farmrun"
	"proffer/lab/tables"
)

// TestApacheServesTheExperiment: real httpd and PHP under quotas, at tiny scale: every policy
// of a figure has its run, every request its answer from a server that it was offered to, and
// the work was the loops'. How long it took, and what share a busy machine gave, decide nothing.
func TestApacheServesTheExperiment(t *testing.T) {
	e := apache.Experiment{Figures: []string{"6lb-11e"}, Loads: []float64{0.6}, Servers: 2, Workers: 32, Share: 0.3, Period: 10 * time.Millisecond,
		Mean: 100 * time.Millisecond, For: 2 * time.Second, Seed: 1, Programs: kit.Proffer}
	report, err := e.Run(t.Context(), func(farmrun.Step) {})
	if err != nil {
		t.Fatal(err)
	}
	k := report.Calibration
	t.Logf("%+v", k)
	if k.MostUsed > 1.1*e.Share {
		t.Errorf("the servers got %+v of a core, and their quota is %v", k, e.Share)
	}
	if k.Overhead <= 0 || k.Overhead > e.Mean.Seconds() {
		t.Errorf("a request cost %v s beside its loop", k.Overhead)
	}
	runs := map[string]int{}
	for _, u := range report.Unclaimed { // the machine was busy
		t.Log(u)
		runs[u.Policy[:strings.Index(u.Policy, " ")]]++
	}
	for _, row := range report.Runs {
		runs[row.Policy]++
		if row.Failed+row.Refusals > 0 || row.Requests == 0 || row.Busy <= 0 {
			t.Errorf("%+v", row)
		}
	}
	for _, policy := range []string{"single", "rr", "wrr-feedback", "hunt:dynamic"} {
		if runs[policy] != 2 {
			t.Errorf("%d runs of %s, want one on Apache and one on virtual cores", runs[policy], policy)
		}
	}
	fieldsOf(t, report)
	if len(report.Runs) == 0 {
		return
	}
	if paths, err := tables.Save(t.TempDir(), report.Files()...); err != nil || len(paths) < 3+len(report.Runs) {
		t.Errorf("it wrote %v, %v", paths, err)
	}
}

// fieldsOf checks that the fields of --json, which are an interface, are those promised.
func fieldsOf(t *testing.T, report *apache.Report) {
	t.Helper()
	text, err := json.Marshal(report.JSON())
	var object struct {
		Calibration map[string]any
		Runs        []map[string]any
	}
	if err == nil {
		err = json.Unmarshal(text, &object)
	}
	if err != nil {
		t.Fatal(err)
	}
	wantFields(t, object.Calibration, "share", "share_min", "share_max", "overhead_s", "capacity_per_s", "service_s", "machine_cores")
	for _, run := range object.Runs {
		wantFields(t, run, "servers", "load", "policy", "requests", "refusals", "failed", "mean_s", "mean", "mean_ci", "p50", "p90", "p99",
			"fairness", "busy", "first_accept", "fidelity", "mean_single_over_this", "server_cores", "machine_cores")
	}
}

// TestApacheInterrupted: Ctrl-C while httpd serves leaves no process, namespace or control
// group.
func TestApacheInterrupted(t *testing.T) {
	d := startExperiment(t, "apache", "--servers", "2", "--json")
	kit.Eventually(t, "httpd serves", func() bool {
		select {
		case err := <-d.ended:
			t.Fatalf("it ended: %v\n%s", err, d.stderr.String())
		default:
		}
		return strings.Count(strings.Join(remains(t, d.Process.Pid), "\n"), "httpd.conf") > 2*32
	})
	if err := d.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := d.finish(t); code != 1 || d.stdout.Len() > 0 || !strings.Contains(d.stderr.String(), "interrupted") {
		t.Errorf("exit %d, it said:\n%s%s", code, d.stderr.String(), d.stdout.String())
	}
	d.wantNone(t)
}
