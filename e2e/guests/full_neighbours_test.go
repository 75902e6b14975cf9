package guests

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
	"proffer/proof/guest"
)

// TestFullNeighbours: a kernel of its own, as its limit of neighbours is one for all its namespaces, keeps those that
// are held, in either family, when its tables are full (nexthop/full_test.go).
func TestFullNeighbours(t *testing.T) {
	t.Parallel()
	bed := kit.Up(t, testbed.Config{Servers: 1})
	file := filepath.Join(t.TempDir(), "nexthop")
	cmd := exec.Command("go", "test", "-c", "-tags=guest", "-ldflags=-s -w", "-o", file, "proffer/nexthop")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the tests of nexthop: %v\n%s", err, out)
	}
	program, err := os.ReadFile(file)
	kit.Must(t, err)
	g, err := guest.Boot(t.Context(), guest.Config{Name: bed.Run + "-full", Place: bed.LBs[0], Files: map[string][]byte{
		"/bin/nexthop":     program,
		"/bin/run-nexthop": []byte("#!/bin/sh\nip link set lo up\nnexthop -test.v -test.run '^TestHeldInAFullTable$' 2>&1\ndmesg | grep 'table overflow'\n"),
	}})
	kit.Must(t, err)
	t.Cleanup(func() { kit.Must(t, g.Close()) })
	ctx, cancel := context.WithTimeout(t.Context(), 2*kit.Patience)
	defer cancel()
	out, err := g.Run(ctx, "run-nexthop")
	if err != nil || !strings.Contains(out, "\nPASS\n") {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, table := range []string{"arp_cache", "ndisc_cache"} {
		if !strings.Contains(out, table+": neighbor table overflow") {
			t.Errorf("%s was not full:\n%s", table, out)
		}
	}
}
