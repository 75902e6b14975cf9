package dataplane

import (
	"strings"
	"testing"
)

func TestKernelRecent(t *testing.T) {
	for _, release := range []string{"6.1.0-13-amd64", "6.1", "6.18.5", "6.10.0-rc1+", "7.0.0", "10.0"} {
		if err := kernelRecent(release); err != nil {
			t.Errorf("%q refused: %v", release, err)
		}
	}
	for _, release := range []string{"6.0.9", "6.0", "5.15.0-91-generic", "4.19.0", "2.6.32"} {
		err := kernelRecent(release)
		if err == nil || !strings.Contains(err.Error(), "needs 6.1 or newer") || !strings.Contains(err.Error(), release) {
			t.Errorf("%q: %v", release, err)
		}
	}
	for _, release := range []string{"", "6", "6.", "six.one", "Linux 6.1", ".1", "v6.1"} {
		err := kernelRecent(release)
		if err == nil || !strings.Contains(err.Error(), "expected MAJOR.MINOR") {
			t.Errorf("%q: %v", release, err)
		}
	}
}

// TestPreflightHere: this host has the features that the other tests need.
func TestPreflightHere(t *testing.T) {
	if err := Preflight(); err != nil {
		t.Fatal(err)
	}
}
