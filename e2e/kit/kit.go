// Package kit is what the end-to-end tests share. They drive the built programs as an operator would: real
// daemons as processes in the testbed's namespaces, real clients, real servers, and other people's programs
// (curl, wrk, tshark, the kernel's own SRv6) as judges. Each folder beside it runs alone.
package kit

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proffer/api"
	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/lab/traffic/responder"
	"proffer/policy"
)

const (
	// URL is the service as a client spells it.
	URL = "http://[" + testbed.VIP + "]"
	// Patience ends what would otherwise hang; no test passes or fails by speed.
	Patience = 2 * time.Minute
	// testLimit is how long one test waits altogether, on a machine however slow.
	testLimit = 20 * time.Minute
)

// Proffer and ProfferLab are the paths of the programs under test, which Main builds.
var Proffer, ProfferLab string

// Main builds both programs and runs a folder's tests.
func Main(m *testing.M) int {
	if os.Getenv("PROFFER_TEST_SOCKET") != "" { // a test's own program, which may build nothing
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "proffer-e2e-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	Proffer, ProfferLab = filepath.Join(dir, "proffer"), filepath.Join(dir, "proffer-lab")
	return m.Run()
}

// build puts both programs into dir. Go links them again only where the sources changed since any folder's
// tests ran; folders that start together wait for each other.
func build(dir string) error {
	const built = "../../build/e2e" // seen from a folder of tests
	if err := os.MkdirAll(built, 0o755); err != nil {
		return err
	}
	lock, err := os.Open(built)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", built, err)
	}
	if out, err := exec.Command("go", "build", "-trimpath", "-o", built+"/", "proffer/cmd/proffer", "proffer/cmd/proffer-lab").CombinedOutput(); err != nil {
		return fmt.Errorf("build both programs: %w\n%s", err, out)
	}
	if out, err := exec.Command("cp", built+"/proffer", built+"/proffer-lab", dir).CombinedOutput(); err != nil {
		return fmt.Errorf("copy both programs: %w\n%s", err, out)
	}
	return nil
}

// Up builds a bed that ends with the test. Without root it fails: a test that
// skips itself proves nothing.
func Up(t *testing.T, c testbed.Config) *testbed.Bed {
	t.Helper()
	bed, err := testbed.Up(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bed.Close(); err != nil {
			t.Errorf("close the testbed: %v", err)
		}
	})
	return bed
}

// Settings are those of a policy as it is spelt, on small servers.
func Settings(t *testing.T, spelt string) farmrun.Settings {
	t.Helper()
	p, err := policy.Parse(spelt)
	if err != nil {
		t.Fatal(err)
	}
	return farmrun.Settings{Policy: p, Workers: 32, Cores: 2}
}

// Start runs the daemons on bed until the test ends. When the test has failed,
// their logs are shown.
func Start(t *testing.T, bed *testbed.Bed, s farmrun.Settings) *farmrun.Farm {
	t.Helper()
	s.Programs = Proffer
	farm, err := farmrun.Start(t.Context(), bed, s)
	if err != nil {
		t.Fatal(err)
	}
	var daemons []*testbed.Process
	for _, n := range slices.Concat(bed.LBs, bed.Servers) {
		if p := farm.Daemon(n); p != nil { // a server without an agent has none
			daemons = append(daemons, p)
		}
	}
	t.Cleanup(func() {
		for _, p := range daemons {
			if t.Failed() {
				t.Logf("%s:\n%s", p.Name, p.Log())
			}
		}
		if err := farm.Stop(); err != nil {
			t.Errorf("stop the daemons: %v", err)
		}
	})
	return farm
}

// Serve runs the load servers on the VIP of every server node.
func Serve(t *testing.T, bed *testbed.Bed) *farmrun.Servers {
	t.Helper()
	servers, err := farmrun.Serve(bed, responder.Machine{Cores: 2, Workers: 32})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := servers.Close(); err != nil {
			t.Errorf("close the servers: %v", err)
		}
	})
	return servers
}

// Status asks the daemon of a node.
func Status(t *testing.T, farm *farmrun.Farm, n *testbed.Node) api.Status {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	s, err := farm.Status(ctx, n)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Counter adds up a counter over the daemons of nodes.
func Counter(t *testing.T, farm *farmrun.Farm, name string, nodes ...*testbed.Node) uint64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	n, err := farm.Count(ctx, nodes, name)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// In runs a program inside a node to its end and returns what it printed to
// stdout; that it fails, hangs or is missing fails the test.
func In(t *testing.T, n *testbed.Node, name string, args ...string) string {
	t.Helper()
	stdout, stderr, err := Try(t, n, name, args...)
	if err != nil {
		t.Fatalf("%s %v on %s: %v\n%s%s", name, args, n.Name, err, stdout, stderr)
	}
	return stdout
}

// Try is in for a program that may fail.
func Try(t *testing.T, n *testbed.Node, name string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errOut bytes.Buffer
	cmd := exec.Command(Program(t, name), args...)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	p, err := n.StartCommand(cmd)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.Done():
	case <-time.After(Patience):
		p.Stop()
		t.Fatalf("%s %v on %s does not end in %v\n%s%s", name, args, n.Name, Patience, out.String(), errOut.String())
	}
	err = p.Wait()
	return out.String(), errOut.String(), err
}

// Program finds a program that the tests need.
func Program(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%s is missing: `make test` installs it", name)
	}
	return path
}

// firstWaits are when each test waited first, by its name.
var firstWaits sync.Map

// Eventually waits for what happens soon after its cause, on another CPU or in
// another process; there is no claim how soon.
func Eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	now := time.Now()
	name, _, _ := strings.Cut(t.Name(), "/")
	first, _ := firstWaits.LoadOrStore(name, now)
	deadline, limit := now.Add(Patience), first.(time.Time).Add(testLimit)
	for ; !holds(); time.Sleep(10 * time.Millisecond) {
		switch now = time.Now(); {
		case now.After(limit):
			t.Fatalf("%s has taken %v, and still not so: %s", name, testLimit, what)
		case now.After(deadline):
			t.Fatalf("still not so after %v: %s", Patience, what)
		}
	}
}

// Configuration is the path of the file that a node's daemon was started with.
func Configuration(bed *testbed.Bed, n *testbed.Node) string {
	return filepath.Join(bed.Dir, n.Name+".yaml")
}

// Control is the path of the control socket of a node's daemon.
func Control(bed *testbed.Bed, n *testbed.Node) string {
	return filepath.Join(bed.Dir, n.Name+".sock")
}
