package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// call runs the command in this process, already interrupted: a demo or daemon
// that should have refused to start ends at once all the same.
func call(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errOut bytes.Buffer
	code = run(ctx, args, &out, &errOut)
	return code, out.String(), errOut.String()
}

// wantLine demands an exit code, silence on stdout, and one line that begins
// with the program's name.
func wantLine(t *testing.T, args []string, wantCode int, want string) {
	t.Helper()
	code, stdout, stderr := call(t, args...)
	if code != wantCode || stdout != "" {
		t.Errorf("proffer %q: exit %d, stdout %q; want exit %d and silence", args, code, stdout, wantCode)
	}
	if strings.Count(stderr, "\n") != 1 {
		t.Errorf("proffer %q: want one line, got\n%s", args, stderr)
	}
	if want = "proffer: " + want; !strings.HasPrefix(stderr, want) {
		t.Errorf("proffer %q:\ngot  %swant %s…", args, stderr, want)
	}
}

func TestWrongUsage(t *testing.T) {
	const policies = "want single, hunt:always, hunt:static:C or hunt:dynamic\n"
	for _, c := range []struct {
		args string // separated by spaces
		want string // the line begins so; with its \n: the whole line
	}{
		{"lb", "--config FILE is missing: the node's YAML configuration\n"},
		{"agent", "--config FILE is missing: the node's YAML configuration\n"},
		{"agent --config=", "--config FILE is missing: the node's YAML configuration\n"},
		{"lb --config", "flag needs an argument: --config; see `proffer lb --help`\n"},
		{"balance", "unknown verb \"balance\"; see `proffer help` for what there is\n"},
		{"balance --json", "unknown flag: --json; see `proffer --help`\n"},
		{"demo now", "proffer demo takes no argument, got \"now\"; see `proffer demo --help`\n"},
		{"lb lb.yaml", "proffer lb takes no argument, got \"lb.yaml\"; see `proffer lb --help`\n"},
		{"status s1", "proffer status takes no argument, got \"s1\"; see `proffer status --help`\n"},
		{"lb --colour", "unknown flag: --colour; see `proffer lb --help`\n"},
		{"demo --colour", "unknown flag: --colour; see `proffer demo --help`\n"},
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
		{"demo --requests 0", "--requests 0: want 1 to 10000000\n"},
		{"demo --requests -1", "--requests -1: want 1 to 10000000\n"},
		{"demo --requests 10000001", "--requests 10000001: want 1 to 10000000\n"},
		{"demo --mean 0s", "--mean 0s: want 1ms to 1m\n"},
		{"demo --mean -5ms", "--mean -5ms: want 1ms to 1m\n"},
		{"demo --mean 61s", "--mean 1m1s: want 1ms to 1m\n"},
		{"demo --mean 20", "invalid argument \"20\" for \"--mean\" flag"},
		{"demo --seed -1", "invalid argument \"-1\" for \"--seed\" flag"},
	} {
		wantLine(t, strings.Split(c.args, " "), exitUsage, c.want)
	}
}

// TestHelpOfWhatIsNot: a mistyped verb after help is as wrong as without.
func TestHelpOfWhatIsNot(t *testing.T) {
	code, stdout, stderr := call(t, "help", "balance")
	if code != exitUsage {
		t.Errorf("proffer help balance: exit %d, want %d\n%s%s", code, exitUsage, stdout, stderr)
	}
	if !strings.Contains(stderr, "balance") {
		t.Errorf("proffer help balance does not say what is wrong: %q", stderr)
	}
}

func TestHelpIsComplete(t *testing.T) {
	code, general, stderr := call(t, "help")
	if code != exitOK || stderr != "" {
		t.Fatalf("proffer help: exit %d, stderr %q", code, stderr)
	}
	if _, bare, _ := call(t); bare != general {
		t.Errorf("proffer alone prints otherwise than proffer help:\n%s", bare)
	}
	if !strings.Contains(general, "Exit codes: 0 ok, 1 failed, 2 wrong usage.") {
		t.Error("proffer help does not explain the exit codes")
	}
	verbs := 0
	for _, cmd := range newRoot().Commands() {
		verbs++
		if !strings.Contains(general, cmd.Name()+" ") || !strings.Contains(general, cmd.Short) {
			t.Errorf("proffer help does not list %s: %s", cmd.Name(), cmd.Short)
		}
		wantFlagsDescribed(t, cmd)
	}
	for _, verb := range []string{"lb", "agent", "status", "keys", "demo"} {
		if cmd, _, err := newRoot().Find([]string{verb}); err != nil || cmd.Name() != verb {
			t.Errorf("there is no verb %s", verb)
		}
	}
	if verbs < 4 {
		t.Errorf("%d verbs looked at", verbs)
	}
}

func wantFlagsDescribed(t *testing.T, cmd *cobra.Command) {
	t.Helper()
	code, text, stderr := call(t, "help", cmd.Name())
	if code != exitOK || stderr != "" {
		t.Errorf("proffer help %s: exit %d, stderr %q", cmd.Name(), code, stderr)
	}
	if cmd.Long == "" || !strings.Contains(text, cmd.Long) {
		t.Errorf("proffer help %s does not say what it does:\n%s", cmd.Name(), text)
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if len(f.Usage) < 10 || !strings.Contains(text, "--"+f.Name+" ") {
			t.Errorf("proffer help %s: --%s is not described: %q", cmd.Name(), f.Name, f.Usage)
		}
	})
	if _, flag, _ := call(t, cmd.Name(), "--help"); flag != text {
		t.Errorf("proffer %s --help and proffer help %[1]s differ", cmd.Name())
	}
}

// TestDemoHelpNamesEveryPolicyAndField: they are the interface of the demo.
func TestDemoHelpNamesEveryPolicyAndField(t *testing.T) {
	_, text, _ := call(t, "help", "demo")
	for _, word := range []string{"single", "hunt:always", "hunt:static:C", "hunt:dynamic",
		"seed", "load", "requests", "resets", "refusals", "timeouts", "mean_s", "p50_s", "p90_s", "p99_s",
		"fairness", "first_accept", "syn_synack_p50_s", "results.json", "SVG", "PNG"} {
		if !strings.Contains(text, word) {
			t.Errorf("proffer help demo does not name %s", word)
		}
	}
}
