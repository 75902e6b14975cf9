package rig

import (
	"os"
	"testing"
)

// NeedRoot fails the test: one that skipped itself would be green for ever.
func NeedRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("not root: these tests load eBPF programs and make network namespaces; run them with sudo")
	}
}
