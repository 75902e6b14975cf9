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

// TestEdgeOldestKernel: Linux 6.1, the oldest kernel that is promised, takes the programs of edge LB
// and node, and runs them as their own tests want.
func TestEdgeOldestKernel(t *testing.T) {
	t.Parallel()
	bed := kit.Up(t, testbed.Config{Servers: 1})
	files := map[string][]byte{}
	for _, pkg := range []string{"edge", "nf"} {
		file := filepath.Join(t.TempDir(), pkg)
		cmd := exec.Command("go", "test", "-c", "-ldflags=-s -w", "-o", file, "proffer/dataplane/"+pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build the tests of %s: %v\n%s", pkg, err, out)
		}
		program, err := os.ReadFile(file)
		kit.Must(t, err)
		files["/bin/"+pkg] = program
		files["/bin/run-"+pkg] = []byte("#!/bin/sh\nuname -r\nip link set lo up\n" + pkg + " -test.v -test.run '^Test(Edge|Node)$' 2>&1\n")
	}
	g, err := guest.Boot(t.Context(), guest.Config{Name: bed.Run + "-edge", Place: bed.LBs[0], Files: files})
	kit.Must(t, err)
	t.Cleanup(func() { kit.Must(t, g.Close()) })
	for _, pkg := range []string{"edge", "nf"} {
		ctx, cancel := context.WithTimeout(t.Context(), 4*kit.Patience) // without KVM, beside other work
		defer cancel()
		out, err := g.Run(ctx, "run-"+pkg)
		if err != nil || !strings.HasPrefix(out, "6.1.") || !strings.Contains(out, "\nPASS\n") {
			t.Errorf("the tests of %s on an old kernel: %v\n%s", pkg, err, out)
		}
	}
}
