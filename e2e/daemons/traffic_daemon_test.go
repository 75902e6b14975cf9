package daemons

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
)

// daemons are both kinds, each with the node where it runs.
func daemons(bed *testbed.Bed) map[string]*testbed.Node {
	return map[string]*testbed.Node{"lb": bed.LBs[0], "agent": bed.Servers[0]}
}

// TestDetach: however a daemon ends, its programs go on, and the next daemon takes them over;
// proffer detach removes them once no daemon runs, or --detach at a daemon's end. The filters
// and the qdisc of another person stay.
func TestDetach(t *testing.T) {
	for _, role := range []string{"lb", "agent"} {
		t.Run(role, func(t *testing.T) {
			bed := kit.Up(t, testbed.Config{Servers: 1})
			kit.Serve(t, bed)
			s := kit.Settings(t, "hunt:static:4")
			s.Lasting = true
			p := kit.Start(t, bed, s).Daemon(daemons(bed)[role])
			n := daemons(bed)[role]
			for _, how := range []unix.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGKILL, unix.SIGTERM} {
				works(t, bed)
				kit.End(t, p, how)
				wantAttached(t, n, role)
				works(t, bed)
				p = kit.Restart(t, bed, n, role)
			}
			stdout, stderr, err := kit.Try(t, n, kit.Proffer, "detach")
			if err == nil || !strings.Contains(stderr, "a daemon is running") {
				t.Errorf("detached beside a running daemon: %v\n%s%s", err, stdout, stderr)
			}
			wantAttached(t, n, role)
			works(t, bed)
			kit.End(t, p, unix.SIGTERM)
			if out := kit.In(t, n, kit.Proffer, "detach"); !strings.Contains(out, n.Pin()) {
				t.Errorf("detach prints %q", out)
			}
			wantNothingLeft(t, bed, n)
			if out := kit.In(t, n, kit.Proffer, "detach"); out != "" {
				t.Errorf("detach again prints %q", out)
			}
			intrude(t, n, testbed.ForeignFilter)
			p = kit.Restart(t, bed, n, role, "--detach")
			works(t, bed)
			kit.End(t, p, unix.SIGTERM)
			if xdp, programs := attached(t, n); xdp || programs > 0 {
				t.Errorf("after --detach: XDP %v, %d programs on the way out", xdp, programs)
			}
			if out := kit.In(t, n, "tc", "filter", "show", "dev", "eth0", "egress"); !strings.Contains(out, "pref 1 bpf") || !strings.Contains(out, "foreign") {
				t.Errorf("the filters of another person are now %q", out)
			}
		})
	}
}

// intrude attaches a program of another person until the test ends or remove is called.
func intrude(t *testing.T, n *testbed.Node, f testbed.Foreign) (remove func()) {
	t.Helper()
	detach, err := n.Intrude(f)
	if err != nil {
		t.Fatal(err)
	}
	removed := false
	remove = func() {
		if removed {
			return
		}
		removed = true
		if err := detach(); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(remove)
	return remove
}

func works(t *testing.T, bed *testbed.Bed) {
	t.Helper()
	if got := kit.In(t, bed.Client, "curl", "-sS", "--fail", kit.URL+"/"); got != bed.Servers[0].Name+"\n" {
		t.Errorf("the service answers %q", got)
	}
}

// attached reports whether a node's eth0 has an XDP program, and the number of tcx programs on
// its way out.
func attached(t *testing.T, n *testbed.Node) (xdp bool, out uint32) {
	t.Helper()
	err := n.Do(func() error {
		eth0, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		xdp = eth0.Attrs().Xdp != nil && eth0.Attrs().Xdp.Attached
		const progQuery, tcxEgress = 16, 47 // linux/bpf.h
		query := struct {
			ifindex, kind, flags, attached uint32
			ids                            uint64
			count, unused                  uint32
		}{ifindex: uint32(eth0.Attrs().Index), kind: tcxEgress}
		_, _, errno := unix.Syscall(unix.SYS_BPF, progQuery, uintptr(unsafe.Pointer(&query)), unsafe.Sizeof(query))
		if out = query.count; errno != 0 {
			return fmt.Errorf("query the tcx programs: %w", errno)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return xdp, out
}

// hasClsact reports whether eth0 has the qdisc that filters hang on.
func hasClsact(t *testing.T, n *testbed.Node) bool {
	t.Helper()
	return strings.Contains(kit.In(t, n, "tc", "qdisc", "show", "dev", "eth0"), "clsact")
}

func wantAttached(t *testing.T, n *testbed.Node, role string) {
	t.Helper()
	want := uint32(0)
	if role == "agent" {
		want = 1 // the program on the way out
	}
	if xdp, out := attached(t, n); !xdp || out != want || hasClsact(t, n) {
		t.Errorf("%s has XDP %v, %d programs on the way out, clsact %v; want true, %d and false", role, xdp, out, hasClsact(t, n), want)
	}
}

func wantNothingLeft(t *testing.T, bed *testbed.Bed, n *testbed.Node) {
	t.Helper()
	if xdp, out := attached(t, n); xdp || out > 0 || hasClsact(t, n) {
		t.Errorf("left on eth0 of %s: XDP %v, %d programs on the way out, clsact %v", n.Name, xdp, out, hasClsact(t, n))
	}
	for _, path := range []string{kit.Control(bed, n), n.Pin()} {
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", path, err)
		}
	}
}

// TestSecondDaemon: a daemon started twice by mistake is refused, with the reason, and
// leaves the first one as it is: with its control socket, or only its link.
func TestSecondDaemon(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 1})
	kit.Serve(t, bed)
	farm := kit.Start(t, bed, kit.Settings(t, "hunt:static:4"))
	for role, n := range daemons(bed) {
		same := kit.Configuration(bed, n)
		text, err := os.ReadFile(same)
		if err != nil {
			t.Fatal(err)
		}
		other := filepath.Join(t.TempDir(), "other.yaml")
		moved := strings.Replace(string(text), kit.Control(bed, n), kit.Control(bed, n)+"2", 1)
		if err := os.WriteFile(other, []byte(moved), 0o644); err != nil || moved == string(text) {
			t.Fatalf("no second configuration (%v) from\n%s", err, text)
		}
		for file, says := range map[string]string{same: "eth0 already has an XDP program", other: "eth0 already has an XDP program"} {
			stdout, stderr, err := kit.Try(t, n, kit.Proffer, role, "--config", file)
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(stderr, says) {
				t.Errorf("a second %s ends with %v, want exit 1 and %q:\n%s%s", role, err, says, stdout, stderr)
			}
			wantAttached(t, n, role)
			if got, want := kit.Status(t, farm, n).PID, farm.Daemon(n).Pid(); got != want {
				t.Errorf("pid %d answers for the %s, want %d", got, role, want)
			}
			works(t, bed)
		}
	}
}
