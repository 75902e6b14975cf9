package proffer

import (
	"bytes"
	"crypto/sha256"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestBuildsAreEqual: `make build` and `make deb` give the same programs and package in any folder, and none has a
// path of the folder.
func TestBuildsAreEqual(t *testing.T) {
	var sums [2]map[string][sha256.Size]byte
	for i := range sums {
		dir := filepath.Join(t.TempDir(), "folder-of-a-build")
		copyTree(t, dir)
		makeBuild(t, dir)
		sums[i] = map[string][sha256.Size]byte{}
		for _, program := range []string{"proffer", "proffer-lab", "proffer_0.1_amd64.deb"} {
			built, err := os.ReadFile(filepath.Join(dir, "build", program))
			if err != nil {
				t.Fatal(err)
			}
			sums[i][program] = sha256.Sum256(built)
			if bytes.Contains(built, []byte("folder-of-a-build")) {
				t.Errorf("%s has a path of the folder that it was built in", program)
			}
		}
	}
	for program, sum := range sums[0] {
		if sum != sums[1][program] {
			t.Errorf("two builds of %s differ", program)
		}
	}
}

// copyTree copies the working tree into a folder.
func copyTree(t *testing.T, dir string) {
	t.Helper()
	out, err := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range strings.Fields(string(out)) {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // deleted, and not committed
		}
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		at := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, data, info.Mode().Perm()); err != nil {
			t.Fatal(err)
		}
	}
}

// makeBuild runs `make build` in a copy of the tree.
func makeBuild(t *testing.T, dir string) {
	t.Helper()
	cmd := exec.Command("make", "build", "deb", "DEB_VERSION=0.1")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly") // the flags are the Makefile's
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make build deb: %v\n%s", err, out)
	}
}
