package e2e

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

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

// forget ends a daemon in good order: nothing of what it knew is left.
func forget(t *testing.T, p *testbed.Process) {
	t.Helper()
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
}

// restart runs a node's daemon on its configuration until the test ends and
// returns when it answers.
func restart(t *testing.T, bed *testbed.Bed, n *testbed.Node, role string) *testbed.Process {
	t.Helper()
	p, err := n.Start(context.Background(), proffer, role, "--config", configuration(bed, n))
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

// TestDetach: a daemon that is asked to end leaves nothing on its link, one that
// is killed leaves nothing in the way of the next, and the service works again.
func TestDetach(t *testing.T) {
	for _, role := range []string{"lb", "agent"} {
		t.Run(role, func(t *testing.T) {
			bed := up(t, testbed.Config{Servers: 1})
			serve(t, bed)
			p := start(t, bed, settings(t, "hunt:static:4")).Daemon(daemons(bed)[role])
			n := daemons(bed)[role]
			for _, how := range []unix.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGKILL, unix.SIGKILL, unix.SIGTERM} {
				works(t, bed)
				wantAttached(t, n, role)
				if err := p.Signal(how); err != nil {
					t.Fatal(err)
				}
				err := p.Wait()
				if how != unix.SIGKILL {
					if err != nil {
						t.Errorf("after %v: %v: %s", how, err, p.Log())
					}
					wantNothingLeft(t, bed, n)
				}
				p = restart(t, bed, n, role)
			}
			works(t, bed)
		})
	}
}

func works(t *testing.T, bed *testbed.Bed) {
	t.Helper()
	if got := in(t, bed.Client, "curl", "-sS", "--fail", url+"/"); got != bed.Servers[0].Name+"\n" {
		t.Errorf("the service answers %q", got)
	}
}

// attached lists the programs on a node's eth0.
func attached(t *testing.T, n *testbed.Node) (xdp bool, filters []string) {
	t.Helper()
	err := n.Do(func() error {
		eth0, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		xdp = eth0.Attrs().Xdp != nil && eth0.Attrs().Xdp.Attached
		for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
			found, err := netlink.FilterList(eth0, parent)
			if err != nil {
				return err
			}
			for _, f := range found {
				filters = append(filters, f.Type())
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return xdp, filters
}

// hasClsact reports whether eth0 has the qdisc that filters hang on.
func hasClsact(t *testing.T, n *testbed.Node) (has bool) {
	t.Helper()
	err := n.Do(func() error {
		eth0, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		qdiscs, err := netlink.QdiscList(eth0)
		for _, q := range qdiscs {
			has = has || q.Type() == "clsact"
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return has
}

func wantAttached(t *testing.T, n *testbed.Node, role string) {
	t.Helper()
	want := 0
	if role == "agent" {
		want = 1 // the program on the way out
	}
	if xdp, filters := attached(t, n); !xdp || len(filters) != want || hasClsact(t, n) != (want > 0) {
		t.Errorf("a running %s has XDP %v, filters %v; want true and %d of them", role, xdp, filters, want)
	}
}

func wantNothingLeft(t *testing.T, bed *testbed.Bed, n *testbed.Node) {
	t.Helper()
	if xdp, filters := attached(t, n); xdp || len(filters) > 0 || hasClsact(t, n) {
		t.Errorf("left on eth0 of %s: XDP %v, filters %v, clsact %v", n.Name, xdp, filters, hasClsact(t, n))
	}
	if _, err := os.Lstat(control(bed, n)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the control socket is left: %v", err)
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
