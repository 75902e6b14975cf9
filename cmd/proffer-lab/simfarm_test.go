package main

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"proffer/cmd/internal/cli"
)

// simRow is the only row of a run, and of another.
func simRow(t *testing.T, args ...string) map[string]any {
	t.Helper()
	code, stdout, stderr := play(t, append([]string{"sim", "--seeds", "2", "--requests", "4000", "--json"}, args...)...)
	if code != cli.OK {
		t.Fatalf("exit %d, %s", code, stderr)
	}
	return parseRows(t, stdout)[0]
}

// TestSimFarmFlags: each flag changes the farm as it should.
func TestSimFarmFlags(t *testing.T) {
	mean := func(args ...string) float64 { return simRow(t, args...)["mean_ms"].(float64) }
	lsq := []string{"--farm", "B", "--policies", "lsq", "--rho", "0.8"}
	plain := mean(lsq...)
	if far := mean(append(lsq, "--client-rtt", "50ms")...); far < plain+90 || far > plain+130 {
		t.Errorf("a round trip of 50 ms makes %v ms of %v, want two of them more", far, plain)
	}
	if many := mean(append(lsq, "--lbs", "64")...); many < 1.1*plain {
		t.Errorf("64 LBs have %v ms, 4 have %v", many, plain)
	}
	if slowed := mean(append(lsq, "--antagonists")...); slowed < 1.1*plain {
		t.Errorf("%v ms beside antagonists, %v without", slowed, plain)
	}
	if flooded := mean(append(lsq, "--syn-flood", "5")...); flooded < 1.1*plain {
		t.Errorf("%v ms in a flood, %v without", flooded, plain)
	}
	file := farmFile(t, farmYAML+"antagonists: {}\nsyn_flood: {times: 2}\nclient_rtt: {distribution: deterministic, mean: 1s}\n")
	lsq[1] = file
	if off := mean(append(lsq, "--antagonists=false", "--syn-flood", "0", "--client-rtt", "0s")...); off != mean("--farm", farmFile(t, farmYAML), "--policies", "lsq", "--rho", "0.8") {
		t.Errorf("%v ms with all that the file has turned off", off)
	}
}

// TestSimWindow: only requests of the window count, by share and by time alike.
func TestSimWindow(t *testing.T) {
	log := filepath.Join(t.TempDir(), "requests.csv")
	args := []string{"--farm", farmFile(t, twoGroups), "--policies", "jsq", "--rho", "0.9", "--seeds", "1"}
	row := simRow(t, append(args, "--count-from", "10s", "--count-to", "30s", "--request-log", log)...)
	sum, n := 0.0, 0.0
	for _, line := range readCSV(t, log) {
		if at := parsed(t, line["arrival_s"]); at >= 10 && at < 30 && line["outcome"] == "served" {
			sum += 1000 * (parsed(t, line["end_s"]) - at)
			n++
		}
	}
	if n < 100 || row["mean_ms"].(float64)-sum/n > 1e-3 || sum/n-row["mean_ms"].(float64) > 1e-3 {
		t.Errorf("a mean of %v ms, the log has %v of %v requests", row["mean_ms"], sum/n, n)
	}
	all, half := simRow(t, args...), simRow(t, append(args, "--count-from", "0.5", "--count-to", "1")...)
	if all["mean_ms"] == half["mean_ms"] || half["refused"].(float64) > all["refused"].(float64) {
		t.Errorf("half of the requests: %v, all: %v", half, all)
	}
}

// TestSimPerServer: the counts of each server are those of the log, in all forms.
func TestSimPerServer(t *testing.T) {
	log := filepath.Join(t.TempDir(), "requests.csv")
	args := []string{"--farm", farmFile(t, twoGroups), "--policies", "hunt:static:1", "--rho", "0.95", "--per-server"}
	row := simRow(t, append(args, "--request-log", log)...)
	served, refused := map[string]float64{}, map[string]float64{}
	total := 0.0
	for _, line := range readCSV(t, log) {
		if line["outcome"] == "refused" {
			refused[line["server"]]++
			continue
		}
		served[line["server"]]++
		total++
	}
	servers := row["per_server"].([]any)
	passed := 0.0
	for i, s := range servers {
		s, number := s.(map[string]any), strconv.Itoa(i)
		passed += s["passed_on"].(float64)
		if s["accepted"] != served[number] || s["refused"] != refused[number] || s["server"] != float64(i) {
			t.Errorf("%v: the log has %v and %v", s, served[number], refused[number])
		}
		if share := s["share"].(float64) - served[number]/total; share > 1e-6 || share < -1e-6 || s["mean_ms"].(float64) < 50 {
			t.Errorf("%v: want a share of %v", s, served[number]/total)
		}
	}
	if len(servers) != 3 || passed == 0 {
		t.Errorf("%d servers, %v passed on", len(servers), passed)
	}
	_, table, _ := play(t, append([]string{"sim", "--seeds", "1", "--requests", "500"}, args...)...)
	_, csv, _ := play(t, append([]string{"sim", "--seeds", "1", "--requests", "500", "--csv"}, args...)...)
	if !strings.Contains(table, "passed on") || !strings.Contains(csv, ",server0_accepted,server0_passed_on,server0_refused,server0_share,server0_mean_ms,server1_accepted,") {
		t.Errorf("got\n%s\n%s", table, csv)
	}
}

// TestSimUnsettled: a run that is too short for its load is marked.
func TestSimUnsettled(t *testing.T) {
	args := []string{"sim", "--policies", "single,jsq", "--rho", "0.95", "--seeds", "10", "--requests", "20000"}
	code, stdout, stderr := play(t, append(args, "--json")...)
	rows := parseRows(t, stdout)
	if code != cli.OK || rows[0]["unsettled"] != true || rows[1]["unsettled"] != nil {
		t.Errorf("exit %d, %s\n%s", code, stderr, stdout)
	}
	if _, stdout, _ = play(t, args...); !strings.Contains(stdout, "!0.95  single") || !strings.Contains(stdout, "! Not settled") {
		t.Errorf("not explained:\n%s", stdout)
	}
}
