package lab

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"image/png"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proffer/e2e/kit"
	"proffer/lab/demo"
	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/lab/traffic"
)

// lateness is the reason of a row that is marked as late: a machine that is too slow or busy
// cannot send on time.
const lateness = "could not keep its schedule"

// demoRun is `proffer-lab demo` as a process.
type demoRun struct {
	*exec.Cmd
	out            string // its --out
	stdout, stderr bytes.Buffer
	ended          chan error
}

func startDemo(t *testing.T, args ...string) *demoRun {
	t.Helper()
	d := newDemo(t, args...)
	d.begin(t)
	return d
}

func newDemo(t *testing.T, args ...string) *demoRun {
	t.Helper()
	d := &demoRun{out: filepath.Join(t.TempDir(), "out"), ended: make(chan error, 1)}
	d.Cmd = exec.Command(kit.ProfferLab, append([]string{"demo", "--out", d.out}, args...)...)
	d.Stdout, d.Stderr = &d.stdout, &d.stderr
	return d
}

func (d *demoRun) begin(t *testing.T) {
	t.Helper()
	if err := testbed.StartChild(d.Cmd, unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	go func() { d.ended <- d.Wait() }()
}

// finish waits for the end and returns the exit code.
func (d *demoRun) finish(t *testing.T) int {
	t.Helper()
	select {
	case <-d.ended:
	case <-time.After(4 * kit.Patience): // it says how long it takes, twice that where it tries again
		d.Process.Kill()
		t.Fatalf("the demo does not end:\n%s", d.stderr.String())
	}
	return d.ProcessState.ExitCode()
}

// remains lists what the runs of a process have on the machine.
func remains(t *testing.T, pid int) (left []string) {
	t.Helper()
	return remainsOf(t, strconv.Itoa(pid)+".")
}

// remainsOf lists what the runs have whose name begins so.
func remainsOf(t *testing.T, run string) (left []string) {
	t.Helper()
	state := "/run/proffer/testbed/" + run
	group := "proffer-" + run + "*"
	for _, pattern := range []string{state + "*", "/run/netns/" + group, "/sys/fs/cgroup/" + group, "/sys/fs/cgroup/*/" + group} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, found...)
	}
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range processes {
		if line, err := os.ReadFile(p); err == nil && bytes.Contains(line, []byte(state)) {
			left = append(left, p+": "+string(bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
		}
	}
	return left
}

// wantNone demands that a demo left nothing behind.
func (d *demoRun) wantNone(t *testing.T) {
	t.Helper()
	if left := remains(t, d.Process.Pid); len(left) > 0 {
		t.Errorf("demo %d left behind:\n%s", d.Process.Pid, strings.Join(left, "\n"))
	}
}

var small = []string{"--servers", "4", "--requests", "600", "--policies", "single,hunt:static:4",
	"--load", "0.5", "--seed", "7"}

// unhurried runs a demo, again at half the requests a second, by twice the mean service time,
// as long as the machine is too slow to send them on time.
func unhurried(t *testing.T, mean time.Duration, args ...string) *demoRun {
	t.Helper()
	for longest := 16 * mean; mean <= longest; mean *= 2 {
		d := startDemo(t, append(args, "--json", "--mean", mean.String())...)
		if code := d.finish(t); code != 0 {
			t.Fatalf("exit %d:\n%s", code, d.stderr.String())
		}
		d.wantNone(t)
		if d.late(t) == nil {
			return d
		}
		t.Logf("services of %v in the mean are too short for this machine: %v", mean, d.late(t))
	}
	t.Fatal("requests leave late on this machine even at a sixteenth of the load")
	return nil
}

// late are the reasons of the rows that are marked as late.
func (d *demoRun) late(t *testing.T) (reasons []string) {
	t.Helper()
	var report demo.Report
	if err := json.Unmarshal(d.stdout.Bytes(), &report); err != nil {
		t.Fatalf("--json: %v\n%s", err, d.stdout.String())
	}
	for _, p := range report.Policies {
		if p.Mark == "late" {
			reasons = append(reasons, p.Policy+": "+p.Reason)
		}
	}
	return reasons
}

// TestDemo: what it prints, draws and writes.
func TestDemo(t *testing.T) {
	d := unhurried(t, 20*time.Millisecond, small...)
	wantReport(t, d)
	wantPictures(t, d.out)
	for _, name := range []string{"single", "hunt-static-4"} {
		wantRows(t, filepath.Join(d.out, "rows-"+name+".csv"), name)
	}
}

// TestDemoLate: more requests a second than any machine sends singly. The demo ends
// each try of a policy early, prints a row for each all the same, with the reason, has
// its files, and is content.
func TestDemoLate(t *testing.T) {
	d := startDemo(t, "--servers", "24", "--requests", "3000", "--policies", "single,hunt:static:4", "--mean", "1ms", "--load", "0.9", "--json")
	if code := d.finish(t); code != 0 {
		t.Fatalf("exit %d:\n%s", code, d.stderr.String())
	}
	d.wantNone(t)
	for _, name := range []string{"rows-single.csv", "rows-hunt-static-4.csv", "cdf.png", "results.json"} {
		if file, err := os.Stat(filepath.Join(d.out, name)); err != nil || file.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	var report demo.Report
	if err := json.Unmarshal(d.stdout.Bytes(), &report); err != nil || len(report.Policies) != 2 {
		t.Fatalf("%v\n%s", err, d.stdout.String())
	}
	for _, p := range report.Policies {
		if p.Mark != "late" || !strings.Contains(p.Reason, lateness) || p.Requests < 300 || p.Requests >= 3000 || p.VsSingle != 0 {
			t.Errorf("%+v", p)
		}
	}
}

// TestDemoChooses: without a load the demo measures this machine and chooses one. Every policy has its row,
// which has numbers and is drawn, and an answer to all requests or a mark with its reason.
func TestDemoChooses(t *testing.T) {
	d := startDemo(t, "--requests", "1500", "--json")
	if code := d.finish(t); code != 0 {
		t.Fatalf("exit %d:\n%s", code, d.stderr.String())
	}
	d.wantNone(t)
	t.Log(d.stderr.String())
	var report demo.Report
	if err := json.Unmarshal(d.stdout.Bytes(), &report); err != nil {
		t.Fatalf("%v\n%s", err, d.stdout.String())
	}
	if report.Servers < 4 || report.Servers > demo.MostServers || report.Service < 0.01 || report.Service > 2 || len(report.Policies) != 4 {
		t.Errorf("%s", d.stdout.String())
	}
	svg, err := os.ReadFile(filepath.Join(d.out, "cdf.svg"))
	kit.Must(t, err)
	for i, want := range []string{"single", "hunt:static:4", "hunt:dynamic", "learned"} {
		p := report.Policies[i]
		whole := p.Requests == 1500 && p.Resets+p.Timeouts+p.Errors == 0
		if p.Policy != want || p.Mean <= 0 || p.P50 > p.P99 || !whole && p.Mark == "" || (p.Mark == "") != (p.Reason == "") {
			t.Errorf("%+v", p)
		}
		if p.Mark != "" {
			want += " (" + p.Mark + ")"
		}
		if !strings.Contains(string(svg), ">"+want+"<") {
			t.Errorf("cdf.svg does not name %q", want)
		}
		if rows := readRows(t, filepath.Join(d.out, "rows-"+strings.ReplaceAll(p.Policy, ":", "-")+".csv")); len(rows) != p.Requests {
			t.Errorf("%s: %d rows of %d", p.Policy, len(rows), p.Requests)
		}
	}
}

// TestDemoRowFails: a policy whose daemons do not start costs its own row, which says so. The experiment fails
// if there is no other.
func TestDemoRowFails(t *testing.T) {
	wrapper := filepath.Join(t.TempDir(), "proffer")
	script := "#!/bin/sh\nif grep -q 'dispatch: hunt' \"$3\"; then echo no hunting here >&2; exit 1; fi\nexec " + kit.Proffer + " \"$@\"\n"
	kit.Must(t, os.WriteFile(wrapper, []byte(script), 0o700))
	e := demo.Experiment{Kinds: farmrun.Kinds{Servers: 4, Cores: 2, Workers: 32}, Load: 0.5, Requests: 200, Mean: 20 * time.Millisecond, Seed: 1, Programs: wrapper}
	hunt := farmrun.Compared{Policy: parsed(t, "hunt:static:4")}
	e.Policies = []farmrun.Compared{hunt, {Policy: parsed(t, "single")}}
	report, err := e.Run(t.Context(), func(demo.Progress) {})
	if err != nil || len(report.Policies) != 2 {
		t.Fatalf("%+v, %v", report, err)
	}
	if p := report.Policies[0]; p.Mark != "failed" || !strings.Contains(p.Reason, "no hunting here") {
		t.Errorf("%+v", p)
	}
	if p := report.Policies[1]; p.Mark == "failed" || p.Mean == 0 {
		t.Errorf("%+v", p)
	}
	e.Policies = []farmrun.Compared{hunt}
	if report, err = e.Run(t.Context(), func(demo.Progress) {}); err == nil || !strings.Contains(err.Error(), "no hunting here") {
		t.Errorf("%+v, %v", report, err)
	}
}

// TestTwoDemos: neither sees the other.
func TestTwoDemos(t *testing.T) {
	other := startDemo(t, append(small, "--mean", "40ms", "--json")...)
	wantReport(t, unhurried(t, 40*time.Millisecond, small...))
	if code := other.finish(t); code != 0 {
		t.Errorf("exit %d:\n%s", code, other.stderr.String())
	}
	other.wantNone(t)
	if other.late(t) == nil { // else it ended early
		wantRows(t, filepath.Join(other.out, "rows-single.csv"), "single")
	}
}

// wantReport checks the object that --json prints: the fields that the issue
// fixed, with sensible values, and the same as results.json.
func wantReport(t *testing.T, d *demoRun) {
	t.Helper()
	saved, err := os.ReadFile(filepath.Join(d.out, "results.json"))
	if err != nil || !bytes.Equal(saved, d.stdout.Bytes()) {
		t.Errorf("results.json differs from what was printed: %v\n%s\n%s", err, saved, d.stdout.String())
	}
	var report struct {
		Seed     *uint64                      `json:"seed"`
		Load     *float64                     `json:"load"`
		Policies []map[string]json.RawMessage `json:"policies"`
	}
	if err := json.Unmarshal(d.stdout.Bytes(), &report); err != nil {
		t.Fatalf("--json: %v\n%s", err, d.stdout.String())
	}
	if report.Seed == nil || *report.Seed != 7 || report.Load == nil || *report.Load != 0.5 || len(report.Policies) != 2 {
		t.Fatalf("report: %s", d.stdout.String())
	}
	for i, name := range []string{"single", "hunt:static:4"} {
		p := report.Policies[i]
		if got := string(p["policy"]); got != strconv.Quote(name) {
			t.Errorf("policy %d is %s, want %s", i, got, name)
		}
		number := func(field string, least, most float64) float64 {
			v, err := strconv.ParseFloat(string(p[field]), 64)
			if err != nil || !(v >= least && v <= most) {
				t.Errorf("%s of %s is %q, want a number from %v to %v", field, name, p[field], least, most)
			}
			return v
		}
		number("requests", 600, 600)
		for _, none := range []string{"resets", "refusals", "timeouts"} {
			number(none, 0, 0)
		}
		p50, p90, p99 := number("p50_s", 0.0001, 10), number("p90_s", 0.0001, 10), number("p99_s", 0.0001, 10)
		if number("mean_s", 0.005, 10); p50 > p90 || p90 > p99 {
			t.Errorf("quantiles of %s: %v, %v, %v", name, p50, p90, p99)
		}
		number("fairness", 0.01, 1)
		first := number("first_accept", 0, 1)
		number("syn_synack_p50_s", 1e-6, 0.1)
		if name == "single" && first != 1 {
			t.Errorf("single's first candidate took %v", first)
		}
	}
}

func wantPictures(t *testing.T, dir string) {
	t.Helper()
	for _, name := range []string{"cdf", "load"} {
		f, err := os.Open(filepath.Join(dir, name+".png"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if img, err := png.Decode(f); err != nil || img.Bounds().Dx() < 200 || img.Bounds().Dy() < 200 {
			t.Errorf("%s.png: %v", name, err)
		}
		svg, err := os.ReadFile(filepath.Join(dir, name+".svg"))
		if err != nil {
			t.Fatal(err)
		}
		elements, texts, err := readXML(svg)
		if err != nil || elements["svg"] != 1 || elements["path"] < 2 {
			t.Errorf("%s.svg has elements %v: %v", name, elements, err)
		}
		for _, policy := range []string{"single", "hunt:static:4"} {
			if !strings.Contains(texts, policy) {
				t.Errorf("%s.svg does not name %s", name, policy)
			}
		}
	}
}

// readXML counts the elements of a well-formed document and returns its text.
func readXML(data []byte) (elements map[string]int, text string, err error) {
	elements = map[string]int{}
	for d := xml.NewDecoder(bytes.NewReader(data)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return elements, text, nil
		}
		if err != nil {
			return elements, text, err
		}
		switch e := token.(type) {
		case xml.StartElement:
			elements[e.Name.Local]++
		case xml.CharData:
			text += string(e)
		}
	}
}

func wantRows(t *testing.T, path, policy string) {
	t.Helper()
	rows := readRows(t, path)
	if len(rows) != 600 {
		t.Fatalf("%s: %d rows", path, len(rows))
	}
	most := 2
	if policy == "single" {
		most = 1
	}
	for i, r := range rows {
		ordered := r.Intended <= r.Started && r.Started < r.Connected && r.Connected < r.Done
		if r.ID != i || r.Outcome != traffic.OK || r.Hops < 1 || r.Hops > most || !strings.HasPrefix(r.Server, "s") || r.LB != "lb1" || !ordered {
			t.Fatalf("%s: row %d: %+v", path, i, r)
		}
	}
}

func readRows(t *testing.T, path string) []traffic.Row {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := traffic.ReadRows(f)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return rows
}
