package clitest

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"

	"proffer/cmd/internal/cli"
)

// nobody is the number of the user and of the group without rights.
const nobody = 65534

// WantRoot builds the command of the package under test, runs it without root
// inside dir, and demands that it refuses each of these calls and makes nothing.
func WantRoot(t *testing.T, dir string, calls ...[]string) {
	t.Helper()
	before := entries(t, dir)
	bin := OpenDir(t)
	if out, err := exec.Command("go", "build", "-o", bin+"/", ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	for binary := range entries(t, bin) {
		for _, args := range calls {
			cmd := exec.Command(filepath.Join(bin, binary), args...)
			cmd.Dir = dir
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
			out, _ := cmd.CombinedOutput()
			want := regexp.MustCompile("^" + binary + `: missing CAP_NET_ADMIN \(.*\), CAP_BPF \(.*\), CAP_PERFMON \(.*\): run it with sudo, or with these capabilities\n$`)
			if code := cmd.ProcessState.ExitCode(); code != cli.Failed || !want.Match(out) {
				t.Errorf("%s %q as nobody: exit %d, want %d\n%s", binary, args, code, cli.Failed, out)
			}
		}
	}
	for name := range entries(t, dir) {
		if !before[name] {
			t.Errorf("%s was made", name)
		}
	}
}

// OpenDir makes a folder that every user may enter, until the test ends.
func OpenDir(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("needs root, to become a user without rights")
	}
	dir, err := os.MkdirTemp("/tmp", "proffer-nobody-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func entries(t *testing.T, dir string) map[string]bool {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, e := range list {
		names[e.Name()] = true
	}
	return names
}
