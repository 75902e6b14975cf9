package e2e

import (
	"context"
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

	"proffer/api"
	"proffer/lab/testbed"
)

// kill ends a daemon without letting it clean up.
func kill(t *testing.T, p *testbed.Process) {
	t.Helper()
	if err := p.Signal(unix.SIGKILL); err != nil {
		t.Fatalf("kill %s: %v", p.Name, err)
	}
	<-p.Done()
}

// forget ends a daemon of a farm that is not Lasting: no part of its state is left.
func forget(t *testing.T, p *testbed.Process) {
	t.Helper()
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
}

// restart runs a node's daemon on its configuration until the test ends and
// returns when it answers.
func restart(t *testing.T, bed *testbed.Bed, n *testbed.Node, role string, flags ...string) *testbed.Process {
	t.Helper()
	p, err := n.Start(context.Background(), proffer, append([]string{role, "--config", configuration(bed, n)}, flags...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	eventually(t, role+" on "+n.Name+" answers", func() bool {
		select {
		case <-p.Done():
			t.Fatalf("%s ended: %s", p.Name, p.Log())
		default:
		}
		s, err := api.Ask(t.Context(), control(bed, n))
		return err == nil && s.PID == p.Pid()
	})
	return p
}

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
			bed := up(t, testbed.Config{Servers: 1})
			serve(t, bed)
			s := settings(t, "hunt:static:4")
			s.Lasting = true
			p := start(t, bed, s).Daemon(daemons(bed)[role])
			n := daemons(bed)[role]
			for _, how := range []unix.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGKILL, unix.SIGTERM} {
				works(t, bed)
				end(t, p, how)
				wantAttached(t, n, role)
				works(t, bed)
				p = restart(t, bed, n, role)
			}
			stdout, stderr, err := try(t, n, proffer, "detach")
			if err == nil || !strings.Contains(stderr, "a daemon is running") {
				t.Errorf("detached beside a running daemon: %v\n%s%s", err, stdout, stderr)
			}
			wantAttached(t, n, role)
			works(t, bed)
			end(t, p, unix.SIGTERM)
			if out := in(t, n, proffer, "detach"); !strings.Contains(out, n.Pin()) {
				t.Errorf("detach prints %q", out)
			}
			wantNothingLeft(t, bed, n)
			if out := in(t, n, proffer, "detach"); out != "" {
				t.Errorf("detach again prints %q", out)
			}
			intrude(t, n, testbed.ForeignFilter)
			p = restart(t, bed, n, role, "--detach")
			works(t, bed)
			end(t, p, unix.SIGTERM)
			if xdp, programs := attached(t, n); xdp || programs > 0 {
				t.Errorf("after --detach: XDP %v, %d programs on the way out", xdp, programs)
			}
			if out := in(t, n, "tc", "filter", "show", "dev", "eth0", "egress"); !strings.Contains(out, "pref 1 bpf") || !strings.Contains(out, "foreign") {
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

// end ends a daemon by a signal, to which it answers by exit code 0 if it can.
func end(t *testing.T, p *testbed.Process, how unix.Signal) {
	t.Helper()
	if err := p.Signal(how); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err != nil && how != unix.SIGKILL {
		t.Errorf("after %v: %v: %s", how, err, p.Log())
	}
}

func works(t *testing.T, bed *testbed.Bed) {
	t.Helper()
	if got := in(t, bed.Client, "curl", "-sS", "--fail", url+"/"); got != bed.Servers[0].Name+"\n" {
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
	return strings.Contains(in(t, n, "tc", "qdisc", "show", "dev", "eth0"), "clsact")
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
	for _, path := range []string{control(bed, n), n.Pin()} {
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", path, err)
		}
	}
}

// TestSecondDaemon: a daemon started twice by mistake is refused, with the reason, and
// leaves the first one as it is: with its control socket, or only its link.
func TestSecondDaemon(t *testing.T) {
	bed := up(t, testbed.Config{Servers: 1})
	serve(t, bed)
	farm := start(t, bed, settings(t, "hunt:static:4"))
	for role, n := range daemons(bed) {
		same := configuration(bed, n)
		text, err := os.ReadFile(same)
		if err != nil {
			t.Fatal(err)
		}
		other := filepath.Join(t.TempDir(), "other.yaml")
		moved := strings.Replace(string(text), control(bed, n), control(bed, n)+"2", 1)
		if err := os.WriteFile(other, []byte(moved), 0o644); err != nil || moved == string(text) {
			t.Fatalf("no second configuration (%v) from\n%s", err, text)
		}
		for file, says := range map[string]string{same: "eth0 already has an XDP program", other: "eth0 already has an XDP program"} {
			stdout, stderr, err := try(t, n, proffer, role, "--config", file)
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(stderr, says) {
				t.Errorf("a second %s ends with %v, want exit 1 and %q:\n%s%s", role, err, says, stdout, stderr)
			}
			wantAttached(t, n, role)
			if got, want := status(t, farm, n).PID, farm.Daemon(n).Pid(); got != want {
				t.Errorf("pid %d answers for the %s, want %d", got, role, want)
			}
			works(t, bed)
		}
	}
}
