package daemons

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
)

// TestRestartUnderLoad: every daemon in turn ends by SIGTERM and is started again, under new
// connections and long flows: none notices, with the daemon gone or back.
func TestRestartUnderLoad(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 2})
	kit.Echoes(t, bed, bed.Servers...)
	s := kit.Settings(t, "hunt:static:1")
	s.Lasting = true
	farm := kit.Start(t, bed, s)
	flows := kit.Open(t, bed, 20000, 100)
	for i, n := range []*testbed.Node{bed.LBs[0], bed.Servers[0], bed.Servers[1]} {
		kit.End(t, farm.Daemon(n), unix.SIGTERM)
		kit.Alive(t, "without the daemon of "+n.Name, flows)
		kit.Open(t, bed, 30000+100*i, 20)
		if err := farm.Launch(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		if !kit.Status(t, farm, n).Adopted {
			t.Errorf("the new daemon of %s adopted nothing", n.Name)
		}
		kit.Alive(t, "under the new daemon of "+n.Name, flows)
	}
	if n := kit.Counter(t, farm, "recover", bed.LBs[0]); n > 0 {
		t.Errorf("%d packets had to ask for their flow", n)
	}
	for _, n := range []*testbed.Node{bed.LBs[0], bed.Servers[0], bed.Servers[1]} {
		kit.End(t, farm.Daemon(n), unix.SIGTERM)
		kit.In(t, n, kit.Proffer, "detach")
	}
}

// TestFailedStart: a daemon whose start fails leaves the programs of that before as they
// were, although its configuration is another.
func TestFailedStart(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 1})
	kit.Serve(t, bed)
	s := kit.Settings(t, "hunt:static:4")
	s.Lasting = true
	farm := kit.Start(t, bed, s)
	for role, n := range daemons(bed) {
		works(t, bed)
		kit.End(t, farm.Daemon(n), unix.SIGTERM)
		was, err := os.ReadFile(kit.Configuration(bed, n))
		if err != nil {
			t.Fatal(err)
		}
		kit.Changed(t, bed, n, "port: 80\n", "port: 81\n") // its only service is gone
		kit.Changed(t, bed, n, kit.Control(bed, n), "/proc/self/none/node.sock")
		wantRefused(t, n, role, kit.Configuration(bed, n), "/proc/self/none")
		wantAttached(t, n, role)
		works(t, bed)
		if err := os.WriteFile(kit.Configuration(bed, n), was, 0o644); err != nil {
			t.Fatal(err)
		}
		if p := kit.Restart(t, bed, n, role, "--detach"); !strings.Contains(p.Log(), "adopted=true") {
			t.Errorf("the next %s adopted nothing:\n%s", role, p.Log())
		}
		works(t, bed)
	}
}

// TestAgentReloads: an agent's services change by SIGHUP under load: a threshold, a service
// more, and one less.
func TestAgentReloads(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 2})
	kit.Serve(t, bed)
	farm := kit.Start(t, bed, kit.Settings(t, "hunt:static:4"))
	s1 := bed.Servers[0]
	reload := func(want int) {
		t.Helper()
		before := kit.Status(t, farm, s1)
		if err := farm.Daemon(s1).Signal(unix.SIGHUP); err != nil {
			t.Fatal(err)
		}
		kit.Eventually(t, "the agent has reloaded", func() bool { return kit.Status(t, farm, s1).Reloads > before.Reloads })
		if n := len(kit.Status(t, farm, s1).Services); n != want {
			t.Errorf("%d services, want %d", n, want)
		}
	}
	text, err := os.ReadFile(kit.Configuration(bed, s1))
	if err != nil {
		t.Fatal(err)
	}
	more := strings.TrimRight(string(text), "\n") + "\n  - {name: more, vip: 2001:db8:f::1, port: 81, acceptance: always}\n"
	underLoad(t, bed, func() {
		if err := os.WriteFile(kit.Configuration(bed, s1), []byte(more), 0o644); err != nil {
			t.Fatal(err)
		}
		reload(2)
		if err := os.WriteFile(kit.Configuration(bed, s1), text, 0o644); err != nil {
			t.Fatal(err)
		}
		kit.Changed(t, bed, s1, "static:4", "static:0")
		reload(1)
	})
	avail := kit.Counter(t, farm, "accept_avail", s1)
	for range 20 {
		kit.In(t, bed.Client, "curl", "-sS", "--fail", kit.URL+"/")
	}
	if n := kit.Counter(t, farm, "accept_avail", s1); n != avail {
		t.Errorf("with threshold 0 %d offers were taken that others could take", n-avail)
	}
}

// TestCapabilities: three capabilities are enough for either daemon, and a start names the one
// that is missing.
func TestCapabilities(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 1})
	kit.Serve(t, bed)
	farm := kit.Start(t, bed, kit.Settings(t, "hunt:static:4"))
	for role, n := range daemons(bed) {
		kit.Forget(t, farm.Daemon(n))
		run := filepath.Join(t.TempDir(), "run")
		script := "#!/bin/sh\ncaps=$1\nshift\nexec setpriv --bounding-set=-all,$caps --inh-caps=-all \"$@\"\n"
		if err := os.WriteFile(run, []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		for missing, caps := range map[string]string{
			"CAP_PERFMON":   "+net_admin,+bpf",
			"CAP_BPF":       "+net_admin,+perfmon",
			"CAP_NET_ADMIN": "+bpf,+perfmon",
		} {
			_, stderr, err := kit.Try(t, n, run, caps, kit.Proffer, role, "--config", kit.Configuration(bed, n))
			if err == nil || !strings.Contains(stderr, "missing "+missing+" (") || strings.Count(stderr, "CAP_") != 1 {
				t.Errorf("%s without %s: %v\n%s", role, missing, err, stderr)
			}
		}
		p, err := n.Start(t.Context(), run, "+net_admin,+bpf,+perfmon", kit.Proffer, role, "--config", kit.Configuration(bed, n), "--detach")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := p.Stop(); err != nil {
				t.Error(err)
			}
		})
		kit.Eventually(t, role+" is ready", func() bool {
			select {
			case <-p.Done():
				t.Fatalf("%s ended: %s", role, p.Log())
			default:
			}
			return strings.Contains(p.Log(), "msg=ready")
		})
		works(t, bed)
	}
}
