package main

import (
	"strings"
	"testing"

	"proffer/cmd/internal/cli"
)

func TestBenchWrongUsage(t *testing.T) {
	for _, c := range []struct {
		args string // after bench
		want string // the line begins so
	}{
		{"now", "proffer-lab bench takes no argument, got \"now\"; see `proffer-lab bench --help`\n"},
		{"--colour", "unknown flag: --colour; see `proffer-lab bench --help`\n"},
		{"--cpu 4096", "--cpu 4096: this process may use ["},
		{"--cpu -1", "--cpu -1: this process may use ["},
		{"--cpu first", "invalid argument \"first\" for \"--cpu\" flag"},
		{"--runs 0", "--runs 0: want 1 to 10000\n"},
		{"--flows=", "--flows: name at least one number of flows\n"},
		{"--flows 0", "--flows 0: want 1 to 11421772, as a flow table has at most 16777216 entries"},
		{"--flows -5", "--flows -5: want 1 to "},
		{"--flows 1e3,2e7", "--flows 20000000: want 1 to "},
		{"--flows 1e30", "--flows: \"1e30\" is not a whole number"},
		{"--flows 2.5", "--flows: \"2.5\" is not a whole number, as 1000 or 1e6\n"},
		{"--flows NaN", "--flows: \"NaN\" is not a whole number"},
		{"--flows many", "--flows: \"many\" is not a whole number"},
		{"--rows nothing-is-named-so", "--rows \"nothing-is-named-so\" matches none; they are named as lb/hunt/steer/1000 is\n"},
		{"--beside x --out .", "--beside has no figure: leave out --out\n"},
		{"--rows (", "--rows: error parsing regexp: "},
	} {
		wantLine(t, append([]string{"bench"}, strings.Split(c.args, " ")...), cli.Usage, c.want)
	}
}

// TestBenchHelpNamesEveryField: they are the interface of the bench.
func TestBenchHelpNamesEveryField(t *testing.T) {
	_, text, _ := call(t, "help", "bench")
	for _, word := range []string{"program", "mode", "case", "flows", "packets", "min_ns", "median_ns", "spread_ns",
		"clean_runs", "runs", "floor_ratio", "net_ns", "net_floor_ratio", "other_min_ns", "other_net_ns", "net_ratio", "floor, lb, agent, edge or work", "SVG", "PNG", "CSV", "docs/evidence/bench.md"} {
		if !strings.Contains(text, word) {
			t.Errorf("proffer-lab help bench does not name %s", word)
		}
	}
}

// TestBenchInterrupted: bench ends, reports so, and prints nothing that it has not measured.
func TestBenchInterrupted(t *testing.T) {
	code, stdout, stderr := call(t, "bench", "--flows", "1", "--rows", "loop$|not-ours")
	if want := "interrupted; everything the bench made is removed"; code != cli.Failed || stdout != "" || !strings.Contains(stderr, want) {
		t.Errorf("interrupted: exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}
