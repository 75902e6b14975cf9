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
	"time"

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

func TestSimSearch(t *testing.T) {
	args := []string{"sim", "--search", "servers", "--until", "mean<=0.4s", "--policies", "single,guided", "--rho", "0.71", "--seeds", "2", "--requests", "2000"}
	code, table, stderr := play(t, args...)
	if code != cli.OK || !strings.Contains(table, "the fewest servers with mean<=400 ms") {
		t.Fatalf("exit %d, %s\n%s", code, stderr, table)
	}
	_, stdout, _ := play(t, append(args, "--json")...)
	rows := parseRows(t, stdout)
	single, guided := rows[0]["servers"].(float64), rows[1]["servers"].(float64)
	if len(rows) != 2 || single <= guided || guided < 35 || rows[0]["servers_low"].(float64) > single {
		t.Errorf("single needs %v servers, guided %v:\n%s", single, guided, stdout)
	}
	_, lines, _ := play(t, append(args, "--csv")...)
	if strings.Count(lines, ",true\n") != 2 || !strings.HasPrefix(lines, "policy,farm,goal,servers,rho,ms,ci_ms,refused,fewest\n") {
		t.Errorf("lines\n%s", lines)
	}
}

func TestSimSearchRefused(t *testing.T) {
	for args, want := range map[string]string{
		"--search cores --until p99<=5":                       "--search cores: want servers\n",
		"--search servers":                                    "--search servers: --until is missing, such as --until 'p99<=500'\n",
		"--until p99<=5":                                      "--until p99<=5: goes with --search servers\n",
		"--search servers --until p99=5":                      `--until "p99=5": want a mean or percentile and the most it may be, such as mean<=200, p99<=500 (ms) or p99.9<=1.5s` + "\n",
		"--search servers --until p99<=5 --rho 0.5,0.6":       "--search servers: want one --rho, the load of the farm as it is; got 2\n",
		"--search servers --until p99<=5 --groups":            "--search servers: goes without --groups\n",
		"--search servers --until p99<=5 --seeds 1":           "--search servers: a search needs 2 seeds at least: one has no interval\n",
		"--search servers --until p99<=5 --policies guided:9": "--policies: policy \"guided:9\": ",
	} {
		wantLine(t, append([]string{"sim"}, strings.Split(args, " ")...), cli.Usage, want)
	}
}

// TestSimInterruptedInsideARun: Ctrl-C ends it long before its 40 million requests are simulated, without a
// partial file.
func TestSimInterruptedInsideARun(t *testing.T) {
	for name, more := range map[string][]string{
		"rows":   {"--cdf", "cdf.csv", "--percentiles", "99.9"},
		"search": {"--search", "servers", "--until", "p99<=500"},
	} {
		dir := t.TempDir()
		t.Chdir(dir)
		ctx, cancel := context.WithCancel(t.Context())
		var begun time.Time
		time.AfterFunc(300*time.Millisecond, func() { begun = time.Now(); cancel() })
		var out, errOut bytes.Buffer
		code := cli.Run(ctx, newRoot(), append([]string{"sim", "--policies", "single", "--requests", "20000000", "--seeds", "2"}, more...), &out, &errOut)
		if took := time.Since(begun); code != cli.Failed || took > 2*time.Minute || !strings.Contains(errOut.String(), "interrupted: ") {
			t.Errorf("%s: exit %d, %v after the interrupt, %s", name, code, took, errOut.String())
		}
		if left, err := os.ReadDir(filepath.Join(dir)); err != nil || len(left) > 0 {
			t.Errorf("%s: left %v (%v)", name, left, err)
		}
	}
}
