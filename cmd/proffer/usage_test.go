package main

import (
	"regexp"
	"strings"
	"testing"

	"proffer/cmd/internal/cli"
	"proffer/cmd/internal/clitest"
	"proffer/topo"
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
	for _, c := range []struct {
		args string // separated by spaces
		want string // the line begins so; with its \n: the whole line
	}{
		{"lb", "--config FILE is missing: the node's YAML configuration\n"},
		{"agent", "--config FILE is missing: the node's YAML configuration\n"},
		{"edge", "--config FILE is missing: the node's YAML configuration\n"},
		{"nf", "--config FILE is missing: the node's YAML configuration\n"},
		{"agent --config=", "--config FILE is missing: the node's YAML configuration\n"},
		{"lb --config", "flag needs an argument: --config; see `proffer lb --help`\n"},
		{"balance", "unknown verb \"balance\"; see `proffer help` for the list\n"},
		{"balance --json", "unknown flag: --json; see `proffer --help`\n"},
		{"lb lb.yaml", "proffer lb takes no argument, got \"lb.yaml\"; see `proffer lb --help`\n"},
		{"status s1", "proffer status takes no argument, got \"s1\"; see `proffer status --help`\n"},
		{"stauts", "unknown verb \"stauts\"; did you mean status? see `proffer help` for the list\n"},
		{"keys promot", "unknown verb \"keys promot\"; did you mean keys promote? see `proffer help keys` for the list\n"},
		{"help balance", "unknown verb \"balance\"; see `proffer help` for the list\n"},
		{"help keys spin", "unknown verb \"keys spin\"; see `proffer help keys` for the list\n"},
		{"help lb now", "unknown verb \"lb now\"; see `proffer help lb` for the list\n"},
		{"lb --colour", "unknown flag: --colour; see `proffer lb --help`\n"},
	} {
		wantLine(t, strings.Split(c.args, " "), cli.Usage, c.want)
	}
}

// TestVerbsThatMoved: each names the command that has it now, whatever follows.
func TestVerbsThatMoved(t *testing.T) {
	for _, verb := range []string{"demo", "experiment", "bench", "sim", "model", "figures"} {
		want := verb + " moved to proffer-lab: run `proffer-lab " + verb + "`\n"
		for _, args := range [][]string{{verb}, {verb, "--help"}, {verb, "x", "--json", "-c"}, {"help", verb}, {"help", verb, "x"}} {
			wantLine(t, args, cli.Usage, want)
		}
	}
}

// TestVerbThatWasRenamed: the earlier name of nf runs it, and says the new name first.
func TestVerbThatWasRenamed(t *testing.T) {
	program := clitest.Program(newRoot)
	code, _, renamed := program.Call(t, "node", "--config=")
	usual, _, now := program.Call(t, "nf", "--config=")
	if want := "proffer node is called proffer nf now: change the unit that starts it\n" + now; code != usual || renamed != want {
		t.Errorf("exit %d, want %d:\n%s\nwant\n%s", code, usual, renamed, want)
	}
}

func TestHelpIsComplete(t *testing.T) {
	clitest.Program(newRoot).WantHelp(t, "lb", "agent", "edge", "nf", "status", "keys", "pools", "init", "run", "check", "example", "schema", "server-setup", "detach", "version")
}

// TestModesInHelp: an operator meets the modes for use, and apart from them those for comparison.
func TestModesInHelp(t *testing.T) {
	_, help, _ := call(t, "help", "lb")
	use, comparison, _ := strings.Cut(help, "For comparison")
	for _, d := range topo.Dispatches() {
		word := regexp.MustCompile(`(?m)[ ]` + d.String() + `(,|\.|$| or | and )`)
		if word.MatchString(use) == d.Comparison() || word.MatchString(comparison) != d.Comparison() {
			t.Errorf("%s is not in its place in\n%s", d, help)
		}
	}
}
