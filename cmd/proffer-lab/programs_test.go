package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

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
