package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"proffer/cmd/internal/cli"
)

func readCSV(t *testing.T, path string) []map[string]string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := csv.NewReader(bytes.NewReader(data)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var rows []map[string]string
	for _, line := range lines[1:] {
		row := map[string]string{}
		for i, name := range lines[0] {
			row[name] = line[i]
		}
		rows = append(rows, row)
	}
	return rows
}

func parsed(t *testing.T, text string) float64 {
	t.Helper()
	x, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

const twoGroups = `servers:
  - {count: 2, cores: 1, discipline: fifo, backlog: 2}
  - {count: 1, cores: 4, discipline: fifo, backlog: 2}
service: {distribution: exponential, mean: 100ms}
`

// TestSimRequestLog: a line a request of every run, in order; times ascend, and
// the lines have the sums of the rows.
func TestSimRequestLog(t *testing.T) {
	log := filepath.Join(t.TempDir(), "requests.csv")
	code, stdout, stderr := play(t, "sim", "--farm", farmFile(t, twoGroups), "--policies", "single,jsq", "--rho", "0.95",
		"--seeds", "2", "--first-seed", "7", "--requests", "800", "--groups", "--json", "--request-log", log)
	if code != cli.OK || !strings.Contains(stderr, "written: "+log) {
		t.Fatalf("exit %d, %s", code, stderr)
	}
	refused := map[string][2]int{}
	lines := readCSV(t, log)
	for i, line := range lines {
		policy, seed := []string{"single", "jsq"}[i/1600], strconv.Itoa(7+i/800%2)
		if line["policy"] != policy || line["seed"] != seed || line["request"] != strconv.Itoa(i%800) {
			t.Fatalf("line %d is %v, want request %d of %s with seed %s", i, line, i%800, policy, seed)
		}
		group := int(parsed(t, line["group"]))
		if want := map[string]int{"0": 0, "1": 0, "2": 1}[line["server"]]; group != want {
			t.Fatalf("line %d: server %s in group %d", i, line["server"], group)
		}
		if line["outcome"] == "refused" {
			n := refused[policy]
			n[group]++
			refused[policy] = n
			continue
		}
		if at, start, end := parsed(t, line["arrival_s"]), parsed(t, line["start_s"]), parsed(t, line["end_s"]); at >= start || start >= end {
			t.Fatalf("line %d: arrival %v, start %v, end %v", i, at, start, end)
		}
	}
	rows := parseRows(t, stdout)
	for _, row := range rows {
		for i, g := range row["groups"].([]any) {
			group := g.(map[string]any)
			want := refused[row["policy"].(string)][i]
			if int(group["refused"].(float64)) != want || group["utilisation"].(float64) <= 0.3 || group["utilisation"].(float64) > 1 {
				t.Errorf("%v, group %d: %v, the log has %d refused", row["policy"], i, group, want)
			}
		}
	}
	if len(lines) != 3200 || refused["single"][0] == 0 {
		t.Errorf("%d lines, refused %v: the run does not show anything", len(lines), refused)
	}
}

// TestSimCDF: the distribution ascends and meets the row's percentiles, and those
// of --percentiles.
func TestSimCDF(t *testing.T) {
	cdf := filepath.Join(t.TempDir(), "cdf.csv")
	code, stdout, stderr := play(t, "sim", "--policies", "rr", "--rho", "0.8", "--seeds", "2", "--requests", "2000", "--json", "--percentiles", "50,99.9,25", "--cdf", cdf)
	if code != cli.OK {
		t.Fatalf("exit %d, %s", code, stderr)
	}
	row, at, last := parseRows(t, stdout)[0], map[string]float64{}, 0.0
	for _, line := range readCSV(t, cdf) {
		ms := parsed(t, line["response_ms"])
		if ms < last {
			t.Fatalf("%v ms at %s, after %v", ms, line["share"], last)
		}
		last = ms
		at[line["share"]] = ms
	}
	for share, field := range map[string]string{"0.5": "p50_ms", "0.9": "p90_ms", "0.99": "p99_ms"} {
		if at[share] != row[field] {
			t.Errorf("%v ms at %s, the row has %v", at[share], share, row[field])
		}
	}
	list := row["percentiles"].([]any)
	for i, share := range []string{"0.5", "0.999", "0.25"} {
		if p := list[i].(map[string]any); p["ms"] != at[share] || p["ci_ms"].(float64) <= 0 {
			t.Errorf("percentile %v, the distribution has %v", p, at[share])
		}
	}
	if len(at) != 1010 {
		t.Errorf("%d shares", len(at))
	}
}

// TestSimFirstSeed: seeds 3 and 4 are those of a longer run, and the CSV has the
// columns that were asked for.
func TestSimFirstSeed(t *testing.T) {
	mean := func(first, seeds string) float64 {
		_, stdout, _ := play(t, "sim", "--policies", "rr", "--seeds", seeds, "--first-seed", first, "--requests", "500", "--json")
		return parseRows(t, stdout)[0]["mean_ms"].(float64)
	}
	if both, one, two := mean("3", "2"), mean("3", "1"), mean("4", "1"); both-(one+two)/2 > 1e-5 || (one+two)/2-both > 1e-5 || one == two {
		t.Errorf("mean %v of seeds 3 and 4, which have %v and %v", both, one, two)
	}
	_, stdout, _ := play(t, "sim", "--policies", "rr", "--seeds", "2", "--requests", "500", "--csv", "--percentiles", "50,99.9", "--groups")
	if header, _, _ := strings.Cut(stdout, "\n"); !strings.HasSuffix(header, "events_per_s,unjudged,p50_ci_ms,p99.9_ms,p99.9_ci_ms,group0_utilisation,group0_refused") {
		t.Errorf("header %s", header)
	}
	_, stdout, _ = play(t, "sim", "--policies", "rr", "--seeds", "2", "--first-seed", "5", "--requests", "500", "--percentiles", "99.9", "--groups")
	for _, want := range []string{"seeds 5 to 6\n", " p99.9 ", " group 0 busy "} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
}

func TestSimOutputRefused(t *testing.T) {
	for args, want := range map[string]string{
		"--percentiles 0":         "--percentiles 0: want more than 0, at most 100\n",
		"--percentiles 50,100.5":  "--percentiles 100.5: want more than 0, at most 100\n",
		"--percentiles 50,50":     "--percentiles: 50 stands there twice\n",
		"--first-seed 0":          "--first-seed 0: want 1 to 4294967296\n",
		"--cdf x --request-log x": "--cdf and --request-log: want two files, got x for both\n",
	} {
		wantLine(t, append([]string{"sim"}, strings.Split(args, " ")...), cli.Usage, want)
	}
	wantLine(t, []string{"sim", "--cdf", "/proc/none/cdf.csv"}, cli.Failed, "write /proc/none/cdf.csv: ")
}

// TestSimInterruptedLeavesNoFile: an incomplete file does not exist.
func TestSimInterruptedLeavesNoFile(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errOut bytes.Buffer
	code := cli.Run(ctx, newRoot(), []string{"sim", "--policies", "rr", "--cdf", filepath.Join(dir, "cdf.csv"), "--request-log", filepath.Join(dir, "log.csv")}, &out, &errOut)
	left, err := os.ReadDir(dir)
	if code != cli.Failed || err != nil || len(left) > 0 {
		t.Errorf("exit %d, left %v (%v), %s", code, left, err, errOut.String())
	}
}
