package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"proffer/cmd/internal/cli"
	"proffer/lab/bench"
	"proffer/lab/demo"
	"proffer/lab/storms"
)

// TestCommandLine: the command that a result names has all that changes the result, as a shell reads it.
func TestCommandLine(t *testing.T) {
	var got string
	root := &cobra.Command{Use: "proffer-lab"}
	verb := &cobra.Command{Use: "verb", Run: func(cmd *cobra.Command, _ []string) { got = commandLine(cmd) }}
	flags := verb.Flags()
	flags.String("rows", "", "")
	flags.String("out", "", "")
	flags.String("result", "", "")
	flags.Bool("quick", false, "")
	flags.Bool("json", false, "")
	flags.Float64Slice("rho", nil, "")
	root.AddCommand(verb)
	root.SetArgs(strings.Fields("verb name --rows ^lb/(a|b's) --rho 0.5,0.7 --quick --json --out x --result results/a.json"))
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	if want := `proffer-lab verb name --quick --rho 0.5,0.7 --rows '^lb/(a|b'\''s)'`; got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// TestPackagesOf: a result is of the package of its report, and of the daemons where they ran.
func TestPackagesOf(t *testing.T) {
	for _, c := range []struct {
		found   finding
		daemons bool
		want    string
	}{
		{&bench.Report{}, false, "./lab/bench"},
		{&storms.StormReport{}, true, "./lab/storms ./cmd/proffer"},
		{demoFinding{&demo.Report{}, nil}, true, "./lab/demo ./cmd/proffer"},
	} {
		if got := strings.Join(packagesOf(c.found, c.daemons), " "); got != c.want {
			t.Errorf("%T: %q, want %q", c.found, got, c.want)
		}
	}
}

// TestResultIsRefused: a build of no commit, as this test is, keeps no result, and says so before it
// measures.
func TestResultIsRefused(t *testing.T) {
	for _, verb := range []string{"model --rho 0.5", "sim", "figures 6lb-7", "bench", "experiment loss", "demo"} {
		code, out, stderr := call(t, append(strings.Fields(verb), "--result", "../../results/a.json")...)
		if code != cli.Usage || out != "" || !strings.Contains(stderr, "--result: this build is of no commit") {
			t.Errorf("%s: exit %d, %q, %q", verb, code, out, stderr)
		}
	}
}
