package main

import (
	"os"
	"path/filepath"
	"testing"

	"proffer/cmd/internal/cli"
	"proffer/cmd/internal/clitest"
)

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
