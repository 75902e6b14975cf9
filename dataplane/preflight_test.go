package dataplane

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
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

// TestCapabilities: the missing ones are named, and no others; the number of the user does not
// count.
func TestCapabilities(t *testing.T) {
	all := uint64(1<<unix.CAP_NET_ADMIN | 1<<unix.CAP_BPF | 1<<unix.CAP_PERFMON)
	for _, c := range []struct {
		effective uint64
		missing   string // separated by spaces
	}{
		{all, ""},
		{1<<unix.CAP_NET_ADMIN | 1<<unix.CAP_SYS_ADMIN, ""},
		{^uint64(0), ""},
		{0, "CAP_NET_ADMIN CAP_BPF CAP_PERFMON"},
		{1 << unix.CAP_SYS_ADMIN, "CAP_NET_ADMIN"},
		{all &^ (1 << unix.CAP_BPF), "CAP_BPF"},
		{all &^ (1 << unix.CAP_PERFMON), "CAP_PERFMON"},
	} {
		err := lacks(c.effective)
		if (err == nil) != (c.missing == "") {
			t.Errorf("%x: %v, want %q", c.effective, err, c.missing)
			continue
		}
		for _, n := range needed {
			if named := err != nil && strings.Contains(err.Error(), n.name+" ("); named != strings.Contains(c.missing, n.name) {
				t.Errorf("%x: %v, want %q", c.effective, err, c.missing)
			}
		}
	}
}
