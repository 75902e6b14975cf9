package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"proffer/cmd/internal/cli"
	"proffer/cmd/internal/clitest"
	"proffer/lab/farm"
	"proffer/lab/sim"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

func play(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return clitest.Program(newRoot).Play(t, args...)
}

func TestSimList(t *testing.T) {
	const golden = "testdata/sim-list.txt"
	code, got, stderr := play(t, "sim", "--list")
	if code != cli.OK || stderr != "" {
		t.Fatalf("exit %d, %s", code, stderr)
	}
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || got != string(want) {
		t.Errorf("%v; got\n%s\nwant\n%s", err, got, want)
	}
}

func TestSimExampleRuns(t *testing.T) {
	code, example, stderr := play(t, "sim", "--example")
	if code != cli.OK || stderr != "" || example != string(farm.Example) {
		t.Fatalf("exit %d, %s\n%s", code, stderr, example)
	}
	if code, schema, stderr := play(t, "sim", "--schema"); code != cli.OK || stderr != "" || schema != string(farm.Schema()) {
		t.Errorf("--schema: exit %d, %s\n%s", code, stderr, schema)
	}
	file := farmFile(t, example)
	code, stdout, stderr := play(t, "sim", "--farm", file, "--policies", "single,guided", "--seeds", "2", "--requests", "500", "--json")
	rows := parseRows(t, stdout)
	if code != cli.OK || len(rows) != 2 || rows[0]["farm"] != "mixed" || rows[1]["policy"] != "guided" {
		t.Errorf("exit %d, %s\n%s", code, stderr, stdout)
	}
}

func farmFile(t *testing.T, text string) string {
	t.Helper()
	return besideFarm(t, filepath.Join(t.TempDir(), "farm.yaml"), text)
}

func besideFarm(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func parseRows(t *testing.T, text string) []map[string]any {
	t.Helper()
	var rows []map[string]any
	if err := json.Unmarshal([]byte(text), &rows); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return rows
}

var measured = regexp.MustCompile(`"events_per_s": \d+`)

func TestSimIsDeterministic(t *testing.T) {
	var first string
	for _, cores := range []int{1, 2} {
		before := runtime.GOMAXPROCS(cores)
		code, stdout, stderr := play(t, "sim", "--farm", "B", "--policies", "all", "--rho", "0.5,0.9", "--seeds", "2", "--requests", "1000", "--json")
		runtime.GOMAXPROCS(before)
		if code != cli.OK {
			t.Fatalf("exit %d, %s", code, stderr)
		}
		if n := len(parseRows(t, stdout)); n != 2*len(sim.Policies()) {
			t.Errorf("%d rows", n)
		}
		stdout = measured.ReplaceAllString(stdout, "")
		if first == "" {
			first = stdout
		}
		if stdout != first {
			t.Errorf("%d cores give\n%s\n1 gave\n%s", cores, stdout, first)
		}
	}
}

// TestSimFormats: the same rows in all forms, with the fields of the interface.
func TestSimFormats(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "out")
	args := []string{"sim", "--farm", "A", "--policies", "rr,jsq", "--rho", "0.8", "--seeds", "2", "--requests", "500", "--out", dir}
	code, table, stderr := play(t, args...)
	if code != cli.OK || !strings.Contains(table, "jsq") || !strings.Contains(stderr, "written: ") {
		t.Fatalf("exit %d, %s\n%s", code, stderr, table)
	}
	saved, err := os.ReadFile(filepath.Join(dir, "rows.json"))
	if err != nil {
		t.Fatal(err)
	}
	_, printed, _ := play(t, append(args, "--json")...)
	if without := measured.ReplaceAllString(string(saved), ""); without != measured.ReplaceAllString(printed, "") {
		t.Errorf("saved\n%s\nprinted\n%s", saved, printed)
	}
	const fields = "policy,farm,rho,seeds,mean_ms,mean_ci_ms,p50_ms,p90_ms,p90_ci_ms,p99_ms,refused,hops,events,events_per_s,unjudged"
	for _, row := range parseRows(t, printed) {
		for field := range strings.SplitSeq(fields, ",") {
			if row[field] == nil {
				t.Errorf("no %s in %v", field, row)
			}
		}
		if len(row) != strings.Count(fields, ",")+1 {
			t.Errorf("other fields in %v", row)
		}
	}
	data, err := os.ReadFile(filepath.Join(dir, "rows.csv"))
	if err != nil {
		t.Fatal(err)
	}
	lines, err := csv.NewReader(bytes.NewReader(data)).ReadAll()
	if err != nil || len(lines) != 3 || strings.Join(lines[0], ",") != fields || lines[2][0] != "jsq" {
		t.Errorf("%v in\n%s", err, data)
	}
	_, printed, _ = play(t, append(args, "--csv")...)
	again, err := csv.NewReader(strings.NewReader(printed)).ReadAll()
	if err != nil || len(again) != 3 || !reflect.DeepEqual(again[1][:13], lines[1][:13]) {
		t.Errorf("%v in\n%s", err, printed)
	}
}

func TestSimWrongUsage(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--farm C", `--farm: unknown farm "C": want A, B, B:c1:K, B:v1:K, B:hom or a FILE.yaml` + "\n"},
		{"--farm B:c2", `--farm: farm B of kind "c2": want `},
		{"--farm=", `--farm: unknown farm "": want `},
		{"--policies random", `--policies: unknown policy "random": want one of ecmp rr single `},
		{"--policies guided:9", `--policies: policy "guided:9": `},
		{"--policies jsq,rr,jsq", "--policies: jsq stands there twice\n"},
		{"--policies=", "--policies: name at least one\n"},
		{"--rho 0", "--rho 0: want more than 0\n"},
		{"--rho -0.5", "--rho -0.5: want more than 0\n"},
		{"--rho NaN", "--rho NaN: want more than 0\n"},
		{"--rho Inf --bounded", "--rho +Inf: want more than 0\n"},
		{"--rho 0.5,much", `invalid argument "0.5,much" for "--rho" flag`},
		{"--rho 0.5,0.8,0.5", "--rho: 0.5 stands there twice\n"},
		{"--rho 1", "--rho 1: asks for all of the farm's capacity, so queues grow without end; add --bounded to run its 80000 requests all the same\n"},
		{"--rho 0.5,1.2 --requests 7", "--rho 1.2: asks for 1.2 times the farm's capacity, so queues grow without end; add --bounded to run its 7 requests all the same\n"},
		{"--rho 1e-300", "--rho 1e-300: 80000 requests at 1e-300 of the farm's capacity can take centuries: "},
		{"--seeds 0", "--seeds 0: want 1 to 100000\n"},
		{"--seeds -1", "--seeds -1: want 1 to 100000\n"},
		{"--requests 0", "--requests 0: want 1 to 100000000\n"},
		{"--requests -4", "--requests -4: want 1 to 100000000\n"},
		{"--farm B --requests 1", "--requests 1: none of so few lies in the part that counts, 0.25 to 0.75 of them; want more\n"},
		{"--lbs 0", "--lbs 0: want 1 to 1024\n"},
		{"--lbs 2000", "--lbs 2000: want 1 to 1024\n"},
		{"--client-rtt -1s", "--client-rtt -1s: want 0s to 1h0m0s\n"},
		{"--syn-flood -1", "--syn-flood -1: want 0 to 1000\n"},
		{"--syn-flood NaN", "--syn-flood NaN: want 0 to 1000\n"},
		{"--count-from 1.5", `--count-from "1.5": want a share of the requests from 0 to 1, such as 0.25, or a time, such as 30s` + "\n"},
		{"--count-to half", `--count-to "half": want a share `},
		{"--count-from 30s --count-to 10s", "--count-from, --count-to: no time lies from 30s to 10s\n"},
		{"--count-from 0.5 --count-to 0.5", "--count-from, --count-to: none of 80000 requests lies from 0.5 to 0.5 of them\n"},
		{"--count-from 1h --rho 0.5", "--count-from: at rho 0.5 the 80000 requests come within 5m16.667s, so none counts\n"},
		{"--json --csv", "--json and --csv: want one of them\n"},
		{"now", "proffer-lab sim takes no argument, got \"now\"; see `proffer-lab sim --help`\n"},
		{"--colour", "unknown flag: --colour; see `proffer-lab sim --help`\n"},
	} {
		wantLine(t, append([]string{"sim"}, strings.Split(c.args, " ")...), cli.Usage, c.want)
	}
}

const farmYAML = "servers: [{count: 3, cores: 1}]\nservice: {distribution: deterministic, mean: 1s}\n"

func TestSimBadFarmFile(t *testing.T) {
	for text, want := range map[string]string{
		"lsb: 2":                ":3:1: lsb: unknown key; did you mean lbs? want name, servers, ",
		"lbs: 0":                `:3:6: lbs: "0" is not a whole number from 1 to 1024` + "\n",
		"hop: {least: -1ms}":    `:3:14: hop.least: "-1ms" is not a duration from 0s to 4s` + "\n",
		"arrivals: {rate: 1.5}": ":3:18: arrivals.rate: asks for 1.5 times the farm's capacity, ",
		"arrivals: {process: diurnal, low: 0.9, high: 1.5, period: 1h}": ":3:46: arrivals.high: asks for 1.22 times the farm's capacity, ",
		"arrivals: {process: trace, file: burst.csv}":                   ":3:34: arrivals.file: asks for 2 times the farm's capacity, so queues grow without end; add --bounded to run its 6 requests all the same\n",
		"arrivals: {process: trace, file: none.csv}":                    ":3:34: arrivals.file: open ",
	} {
		file := farmFile(t, farmYAML+text+"\n")
		besideFarm(t, filepath.Join(filepath.Dir(file), "burst.csv"), "arrival_s\n0\n0\n0\n0\n0\n1\n")
		wantLine(t, []string{"sim", "--farm", file, "--policies", "single"}, cli.Failed, file+want)
	}
	missing := filepath.Join(t.TempDir(), "no.yaml")
	wantLine(t, []string{"sim", "--farm", missing}, cli.Failed, "read farm: open "+missing+": no such file or directory\n")
}

func TestSimBrokenTrace(t *testing.T) {
	file := farmFile(t, farmYAML+"arrivals: {process: trace, file: requests.txt}\n")
	besideFarm(t, filepath.Join(filepath.Dir(file), "requests.txt"), "0 1\n2 1\nthree 1\n")
	wantLine(t, []string{"sim", "--farm", file, "--policies", "single"}, cli.Failed,
		filepath.Join(filepath.Dir(file), "requests.txt")+`:3: arrival_s "three" is not a number of seconds from 0 to 4000000000; want "arrival_s service_s", such as "0.25 0.019"`+"\n")
}

func TestSimFarmAgainstFlags(t *testing.T) {
	file := farmFile(t, farmYAML+"arrivals: {process: trace, file: requests.txt}\n")
	besideFarm(t, filepath.Join(filepath.Dir(file), "requests.txt"), "0 1\n2 1\n3 1\n9 1\n")
	wantLine(t, []string{"sim", "--farm", file, "--rho", "0.5"}, cli.Usage, "--rho: "+file+" itself states when requests come (arrivals.process: trace); leave --rho out\n")
	wantLine(t, []string{"sim", "--farm", file, "--requests", "5"}, cli.Usage, "--requests 5: the trace of arrivals has only 4\n")
	wantLine(t, []string{"sim", "--farm", file, "--policies", "guided"}, cli.Usage, "--policies: ")
	code, stdout, stderr := play(t, "sim", "--farm", file, "--policies", "rr", "--seeds", "1", "--json")
	rows := parseRows(t, stdout)
	if code != cli.OK || len(rows) != 1 || rows[0]["rho"] != 0.148148148 || rows[0]["mean_ci_ms"] != nil {
		t.Errorf("exit %d, %s\n%s", code, stderr, stdout)
	}
}

func TestSimBoundedIsMarked(t *testing.T) {
	args := []string{"sim", "--policies", "single", "--rho", "0.5,1.5", "--seeds", "2", "--requests", "500", "--bounded"}
	code, stdout, stderr := play(t, append(args, "--json")...)
	rows := parseRows(t, stdout)
	if code != cli.OK || len(rows) != 2 || rows[0]["bounded"] != nil || rows[1]["bounded"] != true {
		t.Errorf("exit %d, %s\n%s", code, stderr, stdout)
	}
	if _, stdout, _ = play(t, args...); !strings.Contains(stdout, "*1.5") || !strings.Contains(stdout, "* More than the farm can serve") {
		t.Errorf("not explained:\n%s", stdout)
	}
}

func TestSimOutThatCannotBeWritten(t *testing.T) {
	file := farmFile(t, "")
	for _, out := range []string{"/proc/sim", file, file + "/below"} {
		wantLine(t, []string{"sim", "--out", out}, cli.Failed, "--out "+out+": cannot be ")
	}
}

func TestSimFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("/dev/full", filepath.Join(dir, "rows.csv")); err != nil {
		t.Fatal(err)
	}
	args := []string{"sim", "--policies", "single", "--seeds", "1", "--requests", "100"}
	code, stdout, stderr := play(t, append(args, "--json", "--out", dir)...)
	want := "proffer-lab: write rows.csv: write " + dir + "/rows.csv: no space left on device\n"
	if code != cli.Failed || !strings.HasSuffix(stderr, want) || len(parseRows(t, stdout)) != 1 {
		t.Errorf("exit %d, %s\n%s", code, stderr, stdout)
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for _, form := range []string{"--json", "--csv", "--json=false"} {
		var errOut bytes.Buffer
		if code := cli.Run(t.Context(), newRoot(), append(args, form), full, &errOut); code != cli.Failed || !strings.Contains(errOut.String(), "no space left on device") {
			t.Errorf("%s: exit %d, %s", form, code, errOut.String())
		}
	}
}

// canceller is a stderr that presses Ctrl-C at the first word.
type canceller struct {
	bytes.Buffer
	cancel func()
}

func (c *canceller) Write(p []byte) (int, error) {
	c.cancel()
	return c.Buffer.Write(p)
}

func TestSimInterrupted(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stderr := &canceller{cancel: cancel}
	var stdout bytes.Buffer
	code := cli.Run(ctx, newRoot(), []string{"sim", "--policies", "all", "--rho", "0.5,0.6,0.7,0.8,0.9", "--seeds", "1", "--requests", "20000", "--json", "--out", dir}, &stdout, stderr)
	rows := parseRows(t, stdout.String())
	if code != cli.Failed || len(rows) == 0 || len(rows) > 100 || rows[0]["rho"] != 0.5 || rows[0]["seeds"] != 1.0 {
		t.Fatalf("exit %d, %d rows\n%s", code, len(rows), stderr.String())
	}
	saved, err := os.ReadFile(filepath.Join(dir, "rows.json"))
	if err != nil || string(saved) != stdout.String() {
		t.Errorf("%v; saved\n%s\nprinted\n%s", err, saved, stdout.String())
	}
	want := regexp.MustCompile(`(?m)^proffer-lab: interrupted: \d+ of \d+ rows are complete; missing: rho 0.5: .*; rho 0.9: all policies$`)
	if !want.MatchString(stderr.String()) {
		t.Errorf("the error does not name the missing rows:\n%s", stderr.String())
	}
}
