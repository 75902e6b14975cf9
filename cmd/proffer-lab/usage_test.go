package main

import (
	"strings"
	"testing"

	"proffer/cmd/internal/cli"
	"proffer/cmd/internal/clitest"
	"proffer/lab/bench"
	"proffer/lab/demo"
	"proffer/lab/edge"
	"proffer/lab/study"
	"proffer/policy"
)

func call(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return clitest.Program(newRoot).Call(t, args...)
}

func wantLine(t *testing.T, args []string, wantCode int, want string) {
	t.Helper()
	clitest.Program(newRoot).WantLine(t, args, wantCode, want)
}

func TestWrongUsage(t *testing.T) {
	all := policy.Spellings()
	policies := "want " + strings.Join(all[:len(all)-1], ", ") + " or " + all[len(all)-1] + "\n"
	for _, c := range []struct {
		args string // separated by spaces
		want string // the line begins so; with its \n: the whole line
	}{
		{"balance", "unknown verb \"balance\"; see `proffer-lab help` for the list\n"},
		{"--colour", "unknown flag: --colour; see `proffer-lab --help`\n"},
		{"demo now", "proffer-lab demo takes no argument, got \"now\"; see `proffer-lab demo --help`\n"},
		{"demo --colour", "unknown flag: --colour; see `proffer-lab demo --help`\n"},
		{"demo edge now", "proffer-lab demo edge takes no argument, got \"now\"; see `proffer-lab demo edge --help`\n"},
		{"demo edge --colour", "unknown flag: --colour; see `proffer-lab demo edge --help`\n"},
		{"demo edge --for 1s", "--for 1s: want 4s to 50s\n"},
		{"demo edge --balancer hash", "--balancer: unknown balancer \"hash\": want one of model, "},
		{"demo --policies random", "--policies: unknown policy \"random\": " + policies},
		{"demo --policies single,hunt", "--policies: unknown policy \"hunt\": " + policies},
		{"demo --policies hunt:static:4,hunt:static:4", "--policies: hunt:static:4 stands there twice\n"},
		{"demo --policies hunt:static:-1", "--policies: policy \"hunt:static:-1\": threshold \"-1\" is not a whole number from 0 to 65535\n"},
		{"demo --policies hunt:static:65536", "--policies: policy \"hunt:static:65536\": threshold \"65536\" is not a whole number from 0 to 65535\n"},
		{"demo --policies=", "--policies: name at least one\n"},
		{"demo --servers 0", "--servers 0: want 1 to 250\n"},
		{"demo --servers -3", "--servers -3: want 1 to 250\n"},
		{"demo --servers 251", "--servers 251: want 1 to 250\n"},
		{"demo --servers 99999999999999999999", "invalid argument \"99999999999999999999\" for \"--servers\" flag"},
		{"demo --load -0.5", "--load -0.5: want more than 0 and less than 1"},
		{"demo --load 0", "--load 0: want more than 0 and less than 1"},
		{"demo --load 1", "--load 1: want more than 0 and less than 1"},
		{"demo --load 1.2", "--load 1.2: want more than 0 and less than 1"},
		{"demo --load NaN", "--load NaN: want more than 0 and less than 1"},
		{"demo --load +Inf", "--load +Inf: want more than 0 and less than 1"},
		{"demo --load much", "invalid argument \"much\" for \"--load\" flag"},
		{"demo --cores 0", "--cores 0: want 1 to 1024\n"},
		{"demo --workers 0", "--workers 0: want 1 to 65535\n"},
		{"demo --cores 4 --workers 3", "--workers 3: fewer than --cores 4, so some cores could never work\n"},
		{"demo --fast-servers -1", "--fast-servers -1: want 0 to 12, the number of servers\n"},
		{"demo --fast-servers 13 --speed 2", "--fast-servers 13: want 0 to 12, the number of servers\n"},
		{"demo --fast-servers 6", "--fast-servers 6: say how fast by --speed or --fast-cores\n"},
		{"demo --speed 2", "--speed 2: of how many servers? --fast-servers is 0\n"},
		{"demo --fast-cores 4", "--fast-cores 4: of how many servers? --fast-servers is 0\n"},
		{"demo --fast-servers 6 --speed -2", "--speed -2: want 0.1 to 10 times\n"},
		{"demo --fast-servers 6 --speed NaN", "--speed NaN: want 0.1 to 10 times\n"},
		{"demo --fast-servers 6 --fast-cores 33", "--fast-cores 33: want 1 to 32, the number of workers\n"},
		{"demo --lbs 0", "--lbs 0: want 1 to 16\n"},
		{"demo --lbs 17", "--lbs 17: want 1 to 16\n"},
		{"demo --policies learned:inverted", "--policies: policy \"learned:inverted\": learned heeds no configured weights\n"},
		{"demo --policies random:inverted", "--policies: unknown policy \"random\": " + policies},
		{"demo --policies single:inverted,single:inverted", "--policies: single:inverted stands there twice\n"},
		{"demo --requests 0", "--requests 0: want 1 to 10000000\n"},
		{"demo --requests -1", "--requests -1: want 1 to 10000000\n"},
		{"demo --requests 10000001", "--requests 10000001: want 1 to 10000000\n"},
		{"demo --mean 0s", "--mean 0s: want 1ms to 1m\n"},
		{"demo --mean -5ms", "--mean -5ms: want 1ms to 1m\n"},
		{"demo --mean 61s", "--mean 1m1s: want 1ms to 1m\n"},
		{"demo --mean 20", "invalid argument \"20\" for \"--mean\" flag"},
		{"demo --seed -1", "invalid argument \"-1\" for \"--seed\" flag"},
	} {
		wantLine(t, strings.Split(c.args, " "), cli.Usage, c.want)
	}
}

// TestVerbsOfProffer: each names the command that has it, whatever follows.
func TestVerbsOfProffer(t *testing.T) {
	for _, verb := range []string{"lb", "agent", "status", "keys"} {
		want := verb + " is a verb of proffer: run `proffer " + verb + "`\n"
		for _, args := range [][]string{{verb}, {verb, "--config", "lb.yaml"}, {"help", verb}} {
			wantLine(t, args, cli.Usage, want)
		}
	}
}

func TestHelpIsComplete(t *testing.T) {
	clitest.Program(newRoot).WantHelp(t, "demo", "experiment", "bench", "sim", "model", "figures", "results")
}

// TestDemoHelpNamesEveryPolicyAndField: they are the interface of the demo.
func TestDemoHelpNamesEveryPolicyAndField(t *testing.T) {
	_, text, _ := call(t, "help", "demo")
	for _, word := range []string{"single", "hunt:always", "hunt:static:C", "hunt:dynamic", "learned",
		"seed", "load", "requests", "resets", "refusals", "timeouts", "mean_s", "p50_s", "p90_s", "p99_s",
		"fairness", "first_accept", "fast_share", ":inverted", "syn_synack_p50_s", "mark", "reason", "results.json", "SVG", "PNG"} {
		if !strings.Contains(text, word) {
			t.Errorf("proffer-lab help demo does not name %s", word)
		}
	}
}

// TestHelpNamesEveryField: they are the interface of --json.
func TestHelpNamesEveryField(t *testing.T) {
	for _, c := range []struct {
		verb   string
		prints any
	}{
		{"demo", demo.Report{}},
		{"sim", study.Row{}},
		{"sim", study.Found{}},
		{"model", modelRow{}},
		{"bench", bench.Result{}},
		{"demo edge", edge.DemoReport{}},
	} {
		clitest.Program(newRoot).WantFields(t, c.prints, strings.Fields(c.verb)...)
	}
}

// TestEdgeDemoHelp: it names every field of --json and every balancer.
func TestEdgeDemoHelp(t *testing.T) {
	clitest.Program(newRoot).WantFlags(t, "demo", "edge")
	_, text, _ := call(t, "help", "demo", "edge")
	for _, word := range append(edge.Balancers(), "balancer", "seconds", "cores", "node", "predicted", "measured", "weight", "flows", "packets", "curl", "curl_inward", "dns",
		"asked", "answered", "dns_p50_ms", "iperf3_up_mbit", "iperf3_down_mbit", "nat_bound", "firewall_denied", "SVG", "PNG") {
		if !strings.Contains(text, word) {
			t.Errorf("proffer-lab help demo edge does not name %s", word)
		}
	}
}

// TestLiveTable: at a terminal the table replaces itself; elsewhere the cores are a line.
func TestLiveTable(t *testing.T) {
	var out strings.Builder
	v := edge.View{Seconds: 2, Of: 20, Cores: []edge.Core{{Node: "n0", Predicted: 0.5, Measured: 0.25, Weight: 1.5, Flows: 7, Packets: 90}, {Node: "n1"}}}
	table := liveTable{progress: &progress{w: &out, live: true}}
	table.update(v)
	table.update(v)
	first, second, two := strings.Cut(out.String(), "\x1b[4A\x1b[J")
	if !two || first != second || !strings.Contains(first, "n0     50.0 %    25.0 %    1.50      7       90") {
		t.Errorf("%q", out.String())
	}
	if line := edgeLine(v); !strings.HasPrefix(line, "[2/20 s]  n0: load 50 % predicted, 25 % measured, weight 1.50, 7 flows  n1: ") {
		t.Errorf("%q", line)
	}
}
