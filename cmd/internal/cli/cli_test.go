package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// program has a verb that fails on demand.
func program(err error) *cobra.Command {
	verb := &cobra.Command{Use: "verb", Args: NoArguments, RunE: func(cmd *cobra.Command, _ []string) error { return err }}
	return Root(&cobra.Command{Use: "program"}, verb)
}

// TestExitCodes: one line on stderr for each failure, however deep the mistake
// of the call lies in the error.
func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		args []string
		code int
		want string
	}{
		{nil, []string{"verb"}, OK, ""},
		{errors.New("broken"), []string{"verb"}, Failed, "program: broken\n"},
		{errors.New("one\n\ttwo \x1b[2J"), []string{"verb"}, Failed, "program: one\n\ttwo \\x1b[2J\n"},
		{BadUsage(errors.New("--out is missing")), []string{"verb"}, Usage, "program: --out is missing\n"},
		{fmt.Errorf("flags: %w", BadUsagef("--out %d", 3)), []string{"verb"}, Usage, "program: flags: --out 3\n"},
		{nil, []string{"verb", "x"}, Usage, "program: program verb takes no argument, got \"x\"; see `program verb --help`\n"},
		{nil, []string{"verb", "--x"}, Usage, "program: unknown flag: --x; see `program verb --help`\n"},
		{nil, []string{"x"}, Usage, "program: unknown verb \"x\"; see `program help` for the list\n"},
		{nil, []string{"vreb"}, Usage, "program: unknown verb \"vreb\"; did you mean verb? see `program help` for the list\n"},
	} {
		var out, errOut strings.Builder
		code := Run(context.Background(), program(c.err), c.args, &out, &errOut)
		if code != c.code || errOut.String() != c.want || out.Len() > 0 {
			t.Errorf("%q with %v: exit %d, %q, %q; want %d, %q", c.args, c.err, code, out.String(), errOut.String(), c.code, c.want)
		}
	}
}

// TestElsewhere: the verb is refused with its new name and is not listed.
func TestElsewhere(t *testing.T) {
	for _, args := range [][]string{{"gone"}, {"gone", "--help"}, {"gone", "x", "--y"}, {"help", "gone"}, {"help", "gone", "x"}} {
		root := program(nil)
		root.AddCommand(Elsewhere("moved to", "other", "gone")...)
		var out, errOut strings.Builder
		code := Run(context.Background(), root, args, &out, &errOut)
		if want := "program: gone moved to other: run `other gone`\n"; code != Usage || errOut.String() != want || out.Len() > 0 {
			t.Errorf("%q: exit %d, %q, %q", args, code, out.String(), errOut.String())
		}
		if usage := root.UsageString(); strings.Contains(usage, "gone") {
			t.Errorf("help lists it:\n%s", usage)
		}
	}
}
