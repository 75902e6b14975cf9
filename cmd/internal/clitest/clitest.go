// Package clitest holds both commands to the same manners: one line that begins
// with the program's name for a mistake, the exit code, and help for everything.
package clitest

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"proffer/cmd/internal/cli"
)

// Program makes the root of the command under test.
type Program func() *cobra.Command

// Call runs the command in this process, already interrupted: a demo or daemon
// that should have refused to start ends at once all the same.
func (p Program) Call(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return p.call(ctx, args)
}

// Play runs the command in this process, to its end.
func (p Program) Play(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return p.call(t.Context(), args)
}

func (p Program) call(ctx context.Context, args []string) (code int, stdout, stderr string) {
	var out, errOut bytes.Buffer
	code = cli.Run(ctx, p(), args, &out, &errOut)
	return code, out.String(), errOut.String()
}

// WantLine demands an exit code, silence on stdout, and one line that begins
// with the program's name and goes on with want.
func (p Program) WantLine(t *testing.T, args []string, wantCode int, want string) {
	t.Helper()
	name := p().Name()
	code, stdout, stderr := p.Call(t, args...)
	if code != wantCode || stdout != "" {
		t.Errorf("%s %q: exit %d, stdout %q; want exit %d and silence", name, args, code, stdout, wantCode)
	}
	if strings.Count(stderr, "\n") != 1 {
		t.Errorf("%s %q: want one line, got\n%s", name, args, stderr)
	}
	if want = name + ": " + want; !strings.HasPrefix(stderr, want) {
		t.Errorf("%s %q:\ngot  %swant %s…", name, args, stderr, want)
	}
}

// WantHelp demands that help lists exactly these verbs, and describes each of
// them with all its flags.
func (p Program) WantHelp(t *testing.T, verbs ...string) {
	t.Helper()
	root := p()
	code, general, stderr := p.Call(t, "help")
	if code != cli.OK || stderr != "" {
		t.Fatalf("%s help: exit %d, stderr %q", root.Name(), code, stderr)
	}
	if _, bare, _ := p.Call(t); bare != general {
		t.Errorf("%s alone prints otherwise than %[1]s help:\n%s", root.Name(), bare)
	}
	for _, part := range []string{root.Long, "Exit codes: 0 ok, 1 failed, 2 wrong usage.", "--version "} {
		if !strings.Contains(general, part) {
			t.Errorf("%s help does not print %q", root.Name(), part)
		}
	}
	for _, verb := range verbs {
		cmd, rest, err := root.Find([]string{verb})
		if err != nil || len(rest) > 0 || cmd.Hidden {
			t.Errorf("there is no verb %s", verb)
			continue
		}
		if !strings.Contains(general, "\n  "+verb+" ") || !strings.Contains(general, cmd.Short) {
			t.Errorf("%s help does not list %s: %s", root.Name(), verb, cmd.Short)
		}
		p.WantFlags(t, verb)
	}
	shown := 0
	for _, cmd := range root.Commands() {
		if cmd.IsAvailableCommand() && cmd.Name() != "help" {
			shown++
		}
	}
	if shown != len(verbs) {
		t.Errorf("%s help lists %d verbs, want %q", root.Name(), shown, verbs)
	}
}

// WantFlags demands that the help of a verb explains it and each flag.
func (p Program) WantFlags(t *testing.T, verb ...string) {
	t.Helper()
	root, path := p(), strings.Join(verb, " ")
	cmd, rest, err := root.Find(verb)
	if err != nil || len(rest) > 0 {
		t.Errorf("there is no verb %s", path)
		return
	}
	code, text, stderr := p.Call(t, append([]string{"help"}, verb...)...)
	if code != cli.OK || stderr != "" {
		t.Errorf("%s help %s: exit %d, stderr %q", root.Name(), path, code, stderr)
	}
	if cmd.Long == "" || !strings.Contains(text, cmd.Long) {
		t.Errorf("%s help %s does not explain it:\n%s", root.Name(), path, text)
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if len(f.Usage) < 10 || !strings.Contains(text, "--"+f.Name+" ") {
			t.Errorf("%s help %s: --%s is not described: %q", root.Name(), path, f.Name, f.Usage)
		}
	})
	if _, flag, _ := p.Call(t, append(verb, "--help")...); flag != text {
		t.Errorf("%s %s --help and %[1]s help %[2]s differ", root.Name(), path)
	}
}
