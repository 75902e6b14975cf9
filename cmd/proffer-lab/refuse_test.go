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
	for _, out := range []string{"/proc/demo", file, file + "/below"} {
		wantLine(t, []string{"demo", "--out", out}, cli.Failed, "--out "+out+": cannot be ")
	}
	if _, err := os.Stat("demo-out"); err == nil {
		t.Error("the demo made its default folder though --out was given")
	}
}

// TestNotRoot: without root what touches the kernel says so and makes nothing.
func TestNotRoot(t *testing.T) {
	clitest.WantRoot(t, clitest.OpenDir(t), []string{"demo"}, []string{"experiment", "loss"}, []string{"bench"}, []string{"figures", "6lb-13"})
}
