package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"proffer/cmd/internal/cli"
)

// callModel runs the verb alone.
func callModel(t *testing.T, args string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := newModel()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(strings.Fields(args))
	cmd.SetOut(&out)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestModelTable(t *testing.T) {
	got, err := callModel(t, "--policy single,hunt:static:4 --rho 0.5,0.87 --sla 90:6 --sla 99:20 --servers 48")
	if err != nil {
		t.Fatal(err)
	}
	const want = `times in units of the mean service time

policy         ρ     mean   p50    p90     p99     fairness  wrongful
single         0.5   2.000  1.386  4.605   9.210   0.333     0.00 %
single         0.87  7.692  5.332  17.712  35.424  0.465     0.00 %
hunt:static:4  0.5   1.769  1.298  3.991   7.329   0.388     0.00 %
hunt:static:4  0.87  2.999  2.566  5.999   9.872   0.718     2.59 %

servers needed for the load of 48 at ρ:

policy         ρ     promise         ρ then  servers
single         0.5   90 % within 6   0.6162  39
single         0.5   99 % within 20  0.7697  32
single         0.87  90 % within 6   0.6162  68
single         0.87  99 % within 20  0.7697  55
hunt:static:4  0.5   90 % within 6   0.8701  28
hunt:static:4  0.5   99 % within 20  0.9770  25
hunt:static:4  0.87  90 % within 6   0.8701  48
hunt:static:4  0.87  99 % within 20  0.9770  43
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestModelJSON: one object for one policy and load, an array for several.
func TestModelJSON(t *testing.T) {
	text, err := callModel(t, "--policy hunt:static:4 --rho 0.5 --json")
	if err != nil {
		t.Fatal(err)
	}
	var one map[string]any
	if err := json.Unmarshal([]byte(text), &one); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	for _, key := range []string{"policy", "rho", "mean", "p50", "p90", "p99", "fairness", "wrongful"} {
		if _, ok := one[key]; !ok {
			t.Errorf("no %s in %s", key, text)
		}
	}
	if len(one) != 8 {
		t.Errorf("more than asked for in %s", text)
	}
	text, err = callModel(t, "--policy hunt:always,hunt:static:0 --rho 0.5 --delay 1 --json")
	var many []modelRow
	if err := errors.Join(err, json.Unmarshal([]byte(text), &many)); err != nil || len(many) != 2 {
		t.Fatalf("%v in %s", err, text)
	}
	if many[0].Policy != "hunt:always" || math.Abs(many[0].Mean-2) > 1e-9 || math.Abs(many[1].Mean-3) > 1e-9 {
		t.Errorf("a first candidate that takes all passes nothing on, one that takes nothing passes on all: %+v", many)
	}
}

// TestModelServers: the paper's example, 71 servers for 100 (§V-G), and the most
// demanding promise decides.
func TestModelServers(t *testing.T) {
	text, err := callModel(t, "--rho 0.6162358178343257 --sla 90:6 --sla 90:100 --json")
	var row modelRow
	if err := errors.Join(err, json.Unmarshal([]byte(text), &row)); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	if row.Servers != 71 || len(row.SLA) != 2 || row.SLA[0].Servers != 71 || row.SLA[1].Servers >= 71 {
		t.Errorf("want 71 servers: %s", text)
	}
}

func TestModelRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"":                                     "--rho is missing: the load of a server, more than 0 and less than 1",
		"--rho 1":                              "--rho 1: want more than 0 and less than 1; at 1 and above queues grow without end",
		"--rho 0.5,1.5":                        "--rho 1.5: want more than 0 and less than 1",
		"--rho 0":                              "--rho 0: want more than 0 and less than 1",
		"--rho -0.5":                           "--rho -0.5: want more than 0 and less than 1",
		"--rho NaN":                            "--rho NaN: want more than 0 and less than 1",
		"--rho 0.5 --policy=":                  "--policy: name at least one",
		"--rho 0.5 --policy guess":             "--policy: unknown policy \"guess\": want ",
		"--rho 0.5 --policy hunt:static":       "--policy: unknown policy \"hunt:static\": want ",
		"--rho 0.5 --policy hunt:static:-1":    "--policy: policy \"hunt:static:-1\": threshold \"-1\" is not a whole number",
		"--rho 0.5 --policy hunt:dynamic":      "--policy: hunt:dynamic has no closed form: ask for single or hunt:static:C",
		"--rho 0.5 --delay -1":                 "--delay -1: want 0 to 1e6 mean service times",
		"--rho 0.5 --delay NaN":                "--delay NaN: want 0 to 1e6 mean service times",
		"--rho 0.5 --servers 0":                "--servers 0: want 1 to 1000000",
		"--rho 0.5 --sla 90":                   "--sla 90: want P:T, as 90:6",
		"--rho 0.5 --sla ninety:6":             "--sla ninety:6: want P:T, as 90:6",
		"--rho 0.5 --sla 100:6":                "--sla 100:6: percentile 100: want more than 0 and less than 100",
		"--rho 0.5 --sla 90:-6":                "--sla 90:-6: time -6: want more than 0",
		"--rho 0.5 --sla 90:2":                 "--sla 90:2: no number of servers answers 90 % within 2: even an idle server needs 2.3",
		"--rho 0.5 --policy single --sla 99:4": "--sla 99:4: no number of servers answers 99 % within 4: even an idle server needs 4.61",
	} {
		out, err := callModel(t, args)
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("model %s: %v, want %s…", args, err, want)
		}
		if usage := (cli.UsageError{}); !errors.As(err, &usage) || out != "" {
			t.Errorf("model %s: no usage error (%T), or output %q", args, err, out)
		}
	}
	if _, err := callModel(t, "--rho 0.5 now"); err == nil {
		t.Error("an argument is accepted")
	}
}
