package load

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
	"proffer/loadpage"
	"proffer/topo"
)

// TestHandedWriter is the program at each server in the tests below, started by handedWriter. Its busy
// count is the number in a file, and another file has the number that it has written last.
func TestHandedWriter(t *testing.T) {
	socket, dir := os.Getenv("PROFFER_TEST_SOCKET"), os.Getenv("PROFFER_TEST_DIR")
	if socket == "" {
		return
	}
	last := ""
	t.Fatal(loadpage.Report(t.Context(), socket, func() uint32 {
		if err := os.WriteFile(filepath.Join(dir, "written"), []byte(last), 0o600); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(dir, "busy"))
		if err != nil {
			t.Fatal(err)
		}
		last = string(text)
		busy, err := strconv.ParseUint(last, 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		return uint32(busy)
	}))
}

// handed is a folder for programs without privileges, which may reach nothing else of the test.
type handed struct{ dir string }

func newHanded(t *testing.T) handed {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "proffer-handed-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	program, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "self"), program, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return handed{dir}
}

func (h handed) socket(n *testbed.Node) string { return filepath.Join(h.dir, n.Name+".sock") }

// writer starts the program of a server, without any privilege.
func (h handed) writer(t *testing.T, n *testbed.Node, busy uint32) *testbed.Process {
	t.Helper()
	own := filepath.Join(h.dir, n.Name)
	if err := os.Mkdir(own, 0o755); err != nil && !os.IsExist(err) {
		t.Fatal(err)
	}
	if err := os.Chown(own, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	h.say(t, n, busy)
	cmd := exec.Command(filepath.Join(h.dir, "self"), "-test.run=^TestHandedWriter$")
	cmd.Dir = h.dir
	cmd.Env = append(os.Environ(), "PROFFER_TEST_SOCKET="+h.socket(n), "PROFFER_TEST_DIR="+own)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	p, err := n.StartCommand(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Stop()
		if t.Failed() {
			t.Logf("the program at %s:\n%s", n.Name, p.Log())
		}
	})
	return p
}

func (h handed) say(t *testing.T, n *testbed.Node, busy uint32) {
	t.Helper()
	at := filepath.Join(h.dir, n.Name, "busy")
	if err := os.WriteFile(at+".new", fmt.Append(nil, busy), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(at+".new", at); err != nil {
		t.Fatal(err)
	}
}

// wrote waits until the program of a server has written a number.
func (h handed) wrote(t *testing.T, n *testbed.Node, busy uint32) {
	t.Helper()
	kit.Eventually(t, fmt.Sprintf("%s has written %d", n.Name, busy), func() bool {
		text, _ := os.ReadFile(filepath.Join(h.dir, n.Name, "written"))
		return string(text) == fmt.Sprint(busy)
	})
}

// TestHandedPageDrivesAcceptance: a program without privileges writes its load into the data plane.
// Nothing reads it for that: an agent that stands still changes nothing. A program that has ended is
// no load, and one that lives through the agent's restart is.
func TestHandedPageDrivesAcceptance(t *testing.T) {
	const conns = 12
	bed := kit.Up(t, testbed.Config{Servers: 2})
	kit.Obedient(t, bed)
	h := newHanded(t)
	s := kit.Settings(t, "hunt:static:4")
	s.Lasting = true
	s.Agent = func(n *testbed.Node, a *topo.Agent) {
		o := &a.Services[0]
		o.Measure, o.Page, o.PageGroup = topo.Page, "unix:"+h.socket(n), "65534"
	}
	farm := kit.Start(t, bed, s)
	writers := map[*testbed.Node]*testbed.Process{}
	for _, n := range bed.Servers {
		writers[n] = h.writer(t, n, 3)
	}
	// A program that the machine stops for a second is no load meanwhile.
	met := func(label string, counters ...string) {
		t.Helper()
		want := map[string]int{}
		for _, c := range counters {
			want[c] = conns
		}
		kit.EventuallyIs(t, "decisions, "+label, fmt.Sprint(want), func() string { return fmt.Sprint(decisionsOn(t, farm, conns)) })
	}
	known := func(label string, want bool) {
		t.Helper()
		for _, n := range bed.Servers {
			kit.Eventually(t, label+" at "+n.Name, func() bool { return (kit.LoadAt(t, farm, n).Busy != nil) == want })
		}
	}
	known("a load", true)

	stopped := func() string {
		for _, n := range bed.Servers {
			h.say(t, n, 3)
			h.wrote(t, n, 3)
		}
		met("3 busy", "accept_avail")
		since := decisionsFrom(t, farm)
		for _, n := range bed.Servers {
			if err := farm.Daemon(n).Signal(unix.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			h.say(t, n, 4)
			h.wrote(t, n, 4)
		}
		for range conns {
			kit.Dial(t, bed).Close()
		}
		for _, n := range bed.Servers {
			if err := farm.Daemon(n).Signal(unix.SIGCONT); err != nil {
				t.Fatal(err)
			}
		}
		return fmt.Sprint(since())
	}
	kit.EventuallyIs(t, "decisions, 4 busy, and no agent to read it", fmt.Sprint(map[string]int{"pass_on_busy": conns, "accept_force": conns}), stopped)

	for _, n := range bed.Servers {
		writers[n].Signal(unix.SIGKILL)
	}
	known("a program that has ended", false)
	met("no program", "pass_on_unknown_load", "accept_force")
	kit.Eventually(t, "the log", func() bool {
		return strings.Contains(farm.Daemon(bed.Servers[0]).Log(), "the page is not written any more")
	})

	for _, n := range bed.Servers {
		h.writer(t, n, 0)
	}
	known("a program that has begun", true)
	for _, n := range bed.Servers {
		kit.End(t, farm.Daemon(n), unix.SIGTERM)
		if err := farm.Launch(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	known("after the agents' restart", true)
	met("after the agents' restart", "accept_avail")
	for _, n := range []*testbed.Node{bed.LBs[0], bed.Servers[0], bed.Servers[1]} {
		kit.End(t, farm.Daemon(n), unix.SIGTERM)
		kit.In(t, n, kit.Proffer, "detach")
	}
}
