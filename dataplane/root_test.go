package dataplane

import (
	"os"
	"testing"
)

// needRoot fails the test: one that skipped itself would be green for ever.
func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("not root: these tests load eBPF programs and make network namespaces; run them with sudo")
	}
}
