package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"proffer/cmd/internal/cli"
	"proffer/cmd/internal/clitest"
	"proffer/lab/bench"
	"proffer/lab/demo"
	"proffer/lab/storms"
)

func TestProgressOfLogIsRareAndEnds(t *testing.T) {
	var b strings.Builder
	p := newProgress(&b)
	p.every = time.Hour
	for _, line := range []string{"first", "second", "third"} {
		p.update(line, false)
	}
	p.update("last", true)
	p.update("last", true) // a run may report its end twice
	p.end()
	if got := b.String(); got != "first\nlast\n" {
		t.Errorf("got %q", got)
	}
}

func TestProgressAtTerminalRenewsItsLine(t *testing.T) {
	var b strings.Builder
	p := newProgress(&b)
	p.live, p.every = true, 0
	p.update("long line", false)
	p.update("short", true)
	p.end()
	if got := b.String(); got != "\rlong line\rshort    \n" {
		t.Errorf("got %q", got)
	}
}

// put makes a file and returns its folder.
func put(t *testing.T, name string, mode os.FileMode) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), mode); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestFindProffer(t *testing.T) {
	beside, inPath, unfit := put(t, "proffer", 0o755), put(t, "proffer", 0o755), put(t, "proffer", 0o644)
	for _, c := range []struct{ name, dir, path, want string }{
		{"beside and in $PATH", beside, inPath, beside + "/proffer"},
		{"in $PATH only", t.TempDir(), inPath, inPath + "/proffer"},
		{"beside, but no program", unfit, inPath, inPath + "/proffer"},
	} {
		t.Setenv("PATH", c.path)
		if got, err := profferBeside(c.dir); got != c.want || err != nil {
			t.Errorf("%s: %s, %v; want %s", c.name, got, err, c.want)
		}
	}
}

// TestProfferMissing: the error has the places searched and the remedy.
func TestProfferMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	dir := t.TempDir()
	path, err := profferBeside(dir)
	if err == nil {
		t.Fatalf("found %s", path)
	}
	for _, part := range []string{dir, "$PATH", "`make build`"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error lacks %s: %v", part, err)
		}
	}
}

func TestOutThatCannotBeWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", put(t, "proffer", 0o755))
	for _, out := range []string{"/proc/demo", file, file + "/below"} {
		wantLine(t, []string{"demo", "--out", out}, cli.Failed, "--out "+out+": cannot be ")
	}
	if _, err := os.Stat("demo-out"); err == nil {
		t.Error("the demo made its default folder though --out was given")
	}
}

// TestWithoutProffer: a verb that runs daemons fails before it makes anything.
func TestWithoutProffer(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	out := filepath.Join(t.TempDir(), "out")
	for _, args := range [][]string{{"demo"}, {"experiment", "loss"}} {
		wantLine(t, append(args, "--out", out), cli.Failed, "the program proffer, which has the daemons, is neither in ")
	}
	if _, err := os.Stat(out); !os.IsNotExist(err) {
		t.Errorf("--out was made: %v", err)
	}
}

// TestNotRoot: without root a verb that needs the kernel fails and makes nothing.
func TestNotRoot(t *testing.T) {
	clitest.WantRoot(t, clitest.OpenDir(t), []string{"demo"}, []string{"experiment", "loss"}, []string{"bench"}, []string{"figures", "6lb-13"})
}

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
