package bench

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"proffer/lab/farmrun"
)

// build is a script that prints rows as a build of proffer-lab does, and notes its arguments.
func build(t *testing.T, text string, code string) (path, called string) {
	t.Helper()
	path, called = filepath.Join(t.TempDir(), "build"), filepath.Join(t.TempDir(), "called")
	script := "#!/bin/sh\necho \"$@\" >> " + called + "\necho '" + text + "'\necho 'two lines\nthe CPU was too busy' >&2\nexit " + code + "\n"
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return path, called
}

// TestBenchBuilds: the rows of two builds are measured in turns; the least times of either
// stand beside each other, those of a busy CPU and of an older build without `packets`, too.
func TestBenchBuilds(t *testing.T) {
	other, called := build(t, `[{"program": "lb", "mode": "hunt", "case": "steer", "flows": 1000, "min_ns": 100, "net_ns": 60},
{"program": "lb", "mode": "hunt", "case": "old", "flows": 1, "min_ns": 9, "net_ns": 5}]`, "1")
	this, _ := build(t, `[{"program": "lb", "mode": "hunt", "case": "steer", "flows": 1000, "packets": 1, "min_ns": 80, "net_ns": 45},
{"program": "lb", "mode": "hunt", "case": "steer", "flows": 1000, "packets": 1, "min_ns": 75, "net_ns": 48}]`, "0")
	b := &Builds{&Bench{CPU: 1, Turns: 8, Flows: []int{1, 1000}, Rows: regexp.MustCompile("steer|old")}, other, this}
	var steps, notes []string
	r, err := b.Run(t.Context(), func(s farmrun.Step) { steps = append(steps, s.Doing) }, func(line string) { notes = append(notes, line) })
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := r.Print(&text); err != nil {
		t.Fatal(err)
	}
	want := `program  mode  case   flows  other min ns  min ns  ×     other net  net  ×
lb       hunt  steer  1000   100           75      0.75  60         45   0.75
rows of one build only: lb/hunt/old/1
`
	if got := text.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	asked, err := os.ReadFile(called)
	if line := "bench --json --cpu 1 --runs 2 --flows 1,1000 --rows steer|old\n"; err != nil || string(asked) != strings.Repeat(line, rounds) {
		t.Errorf("the other build was called so: %s, %v", asked, err)
	}
	if len(notes) != rounds || notes[0] != other+": the CPU was too busy" {
		t.Errorf("notes: %q", notes)
	}
}

// TestBenchBuildsMistakes: a build that prints no rows is an error with the words that it left.
func TestBenchBuildsMistakes(t *testing.T) {
	good, _ := build(t, `[{"program": "lb", "case": "steer", "flows": 1000, "min_ns": 80}]`, "0")
	mute, _ := build(t, "", "2")
	alone, _ := build(t, `[{"program": "lb", "case": "old", "flows": 1000, "min_ns": 80}]`, "0")
	for other, want := range map[string]string{
		mute:           "exit status 2: the CPU was too busy",
		alone:          "the two builds have no row in common",
		"/nowhere/lab": "no such file",
	} {
		b := &Builds{&Bench{Turns: 1, Flows: []int{1}}, other, good}
		if _, err := b.Run(t.Context(), func(farmrun.Step) {}, func(string) {}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
