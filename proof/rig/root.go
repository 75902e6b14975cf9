package rig

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// NeedRoot fails the test: one that skipped itself would be green for ever.
func NeedRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("not root: these tests load eBPF programs and make network namespaces; run them with sudo")
	}
}

// BPFFS mounts a BPF filesystem for one test.
func BPFFS(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("bpf", dir, "bpf", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}
