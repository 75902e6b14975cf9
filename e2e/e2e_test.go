// Package e2e drives the built program as an operator would: real daemons as
// processes in the testbed's namespaces, real clients, real servers, and other
// people's programs (curl, wrk, tshark, the kernel's own SRv6) as judges.
package e2e

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

	"proffer/api"
	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/lab/traffic/responder"
	"proffer/policy"
)

const (
	// url is the service as a client spells it.
	url = "http://[" + testbed.VIP + "]"
	// patience ends what would otherwise hang; no test passes or fails by speed.
	patience = 2 * time.Minute
	// testLimit is how long one test waits altogether, on a machine however slow.
	testLimit = 20 * time.Minute
)

// proffer and profferLab are the paths of the programs under test, built once.
var proffer, profferLab string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	if os.Getenv(talkerEnv) != "" {
		return beTalker()
	}
	if os.Getenv("PROFFER_TEST_SOCKET") != "" { // a test's own program, which may build nothing
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "proffer-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	proffer, profferLab = filepath.Join(dir, "proffer"), filepath.Join(dir, "proffer-lab")
	if out, err := exec.Command("go", "build", "-trimpath", "-o", dir+"/", "proffer/cmd/proffer", "proffer/cmd/proffer-lab").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build both programs: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// up builds a bed that ends with the test. Without root it fails: a test that
// skips itself proves nothing.
func up(t *testing.T, c testbed.Config) *testbed.Bed {
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

// settings are those of a policy as it is spelt, on small servers.
func settings(t *testing.T, spelt string) farmrun.Settings {
	t.Helper()
	p, err := policy.Parse(spelt)
	if err != nil {
		t.Fatal(err)
	}
	return farmrun.Settings{Policy: p, Workers: 32, Cores: 2}
}

// start runs the daemons on bed until the test ends. When the test has failed,
// their logs are shown.
func start(t *testing.T, bed *testbed.Bed, s farmrun.Settings) *farmrun.Farm {
	t.Helper()
	s.Programs = proffer
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

// serve runs the load servers on the VIP of every server node.
func serve(t *testing.T, bed *testbed.Bed) *farmrun.Servers {
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

// status asks the daemon of a node.
func status(t *testing.T, farm *farmrun.Farm, n *testbed.Node) api.Status {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, err := farm.Status(ctx, n)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// counter adds up a counter over the daemons of nodes.
func counter(t *testing.T, farm *farmrun.Farm, name string, nodes ...*testbed.Node) uint64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	n, err := farm.Count(ctx, nodes, name)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// in runs a program inside a node to its end and returns what it printed to
// stdout; that it fails, hangs or is missing fails the test.
func in(t *testing.T, n *testbed.Node, name string, args ...string) string {
	t.Helper()
	stdout, stderr, err := try(t, n, name, args...)
	if err != nil {
		t.Fatalf("%s %v on %s: %v\n%s%s", name, args, n.Name, err, stdout, stderr)
	}
	return stdout
}

// try is in for a program that may fail.
func try(t *testing.T, n *testbed.Node, name string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errOut bytes.Buffer
	cmd := exec.Command(program(t, name), args...)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	p, err := n.StartCommand(cmd)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.Done():
	case <-time.After(patience):
		p.Stop()
		t.Fatalf("%s %v on %s does not end in %v\n%s%s", name, args, n.Name, patience, out.String(), errOut.String())
	}
	err = p.Wait()
	return out.String(), errOut.String(), err
}

// program finds a program that the tests need.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%s is missing: `make test` installs it", name)
	}
	return path
}

// firstWaits are when each test waited first, by its name.
var firstWaits sync.Map

// eventually waits for what happens soon after its cause, on another CPU or in
// another process; there is no claim how soon.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	now := time.Now()
	name, _, _ := strings.Cut(t.Name(), "/")
	first, _ := firstWaits.LoadOrStore(name, now)
	deadline, limit := now.Add(patience), first.(time.Time).Add(testLimit)
	for ; !holds(); time.Sleep(10 * time.Millisecond) {
		switch now = time.Now(); {
		case now.After(limit):
			t.Fatalf("%s has taken %v, and still not so: %s", name, testLimit, what)
		case now.After(deadline):
			t.Fatalf("still not so after %v: %s", patience, what)
		}
	}
}

// configuration is the path of the file that a node's daemon was started with.
func configuration(bed *testbed.Bed, n *testbed.Node) string {
	return filepath.Join(bed.Dir, n.Name+".yaml")
}

// control is the path of the control socket of a node's daemon.
func control(bed *testbed.Bed, n *testbed.Node) string {
	return filepath.Join(bed.Dir, n.Name+".sock")
}
