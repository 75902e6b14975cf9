package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"proffer/cmd/internal/cli"
	"proffer/lab/paper"
)

func figuresVerb(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, log bytes.Buffer
	cmd := newFigures()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&log)
	err = cmd.ExecuteContext(t.Context())
	return out.String(), log.String(), err
}

func TestFiguresDraws(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "folder")
	out, log, err := figuresVerb(t, "6lb-9", "6lb-8a", "--quick", "--out", dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range strings.Fields(out) {
		if info, err := os.Stat(file); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", file, err)
		}
	}
	if n := len(strings.Fields(out)); n != 6 || !strings.Contains(log, "2 of 2 figures") {
		t.Errorf("%d files; log %q", n, log)
	}
}

func TestFiguresList(t *testing.T) {
	out, _, err := figuresVerb(t, "--list")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range paper.Figures() {
		if !strings.Contains(out, "\n"+f.Name+" ") && !strings.HasPrefix(out, f.Name+" ") || !strings.Contains(out, f.Shows) {
			t.Errorf("--list lacks %s", f.Name)
		}
	}
}

// TestFiguresAll: --all needs no root, so it leaves out measured figures.
func TestFiguresAll(t *testing.T) {
	all, err := (&figuresFlags{all: true}).choose(nil)
	if err != nil || len(all) != len(paper.Figures())-1 {
		t.Errorf("%d of %d figures, %v", len(all), len(paper.Figures()), err)
	}
	for _, f := range all {
		if f.Name == "6lb-13" {
			t.Errorf("%s is among --all", f.Name)
		}
	}
}

func TestFiguresRefuses(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{}, "--list"},
		{[]string{"6lb-8z"}, "did you mean 6lb-8"},
		{[]string{"srlb3"}, "did you mean srlb-3"},
		{[]string{"--all", "6lb-9"}, "one of them"},
		{[]string{"6lb-9", "--seeds", "0"}, "want 1 to"},
	} {
		_, _, err := figuresVerb(t, c.args...)
		if usage := (cli.UsageError{}); !errors.As(err, &usage) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v", c.args, err)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	_, _, err := figuresVerb(t, "6lb-9", "--out", file)
	if usage := (cli.UsageError{}); err == nil || errors.As(err, &usage) || !strings.Contains(err.Error(), file) {
		t.Errorf("--out of a file: %v", err)
	}
}
