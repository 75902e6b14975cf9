package daemons

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
)

// hasProblem reports whether a node's status names a problem that contains part.
func hasProblem(t *testing.T, bed *testbed.Bed, n *testbed.Node, part string) bool {
	t.Helper()
	return strings.Contains(kit.In(t, n, kit.Proffer, "status", "--control", kit.Control(bed, n)), part)
}

// TestBypassNoticed: another program before ours on the way out takes the answers. Status and
// log name it, and that accepted flows have no answers, and when that is over.
func TestBypassNoticed(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 1})
	kit.Serve(t, bed)
	farm := kit.Start(t, bed, kit.Settings(t, "hunt:always"))
	s1 := bed.Servers[0]
	works(t, bed)
	remove := intrude(t, s1, testbed.ForeignTaker)
	kit.Eventually(t, "the other program is named", func() bool {
		return hasProblem(t, bed, s1, "problem: on the way out of eth0 packets meet id ")
	})
	if hasProblem(t, bed, s1, "had no answer on the way out") {
		t.Error("answers are missed before there was a flow")
	}
	kit.Eventually(t, "the missing answers are named", func() bool {
		works(t, bed)
		return hasProblem(t, bed, s1, "had no answer on the way out of eth0")
	})
	remove()
	kit.Eventually(t, "the problems are over", func() bool {
		works(t, bed)
		return !hasProblem(t, bed, s1, "problem:")
	})
	for _, line := range []string{"packets pass the programs by", "packets meet the programs again"} {
		kit.Eventually(t, "the log has: "+line, func() bool { return strings.Contains(farm.Daemon(s1).Log(), line) })
	}
}

// wantRefused starts a node's daemon, which fails with a text that names it.
func wantRefused(t *testing.T, n *testbed.Node, role, file string, texts ...string) {
	t.Helper()
	stdout, stderr, err := kit.Try(t, n, kit.Proffer, role, "--config", file)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("%s on %s ends with %v:\n%s%s", role, n.Name, err, stdout, stderr)
	}
	for _, text := range texts {
		if !strings.Contains(stderr, text) {
			t.Errorf("%s on %s: no %q in\n%s", role, n.Name, text, stderr)
		}
	}
}

// TestXDPOfOthers: a start beside another person's XDP program names it and the command that
// ends it, and leaves it where it is.
func TestXDPOfOthers(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 1})
	farm := kit.Start(t, bed, kit.Settings(t, "hunt:always"))
	lb := bed.LBs[0]
	kit.Forget(t, farm.Daemon(lb))
	for f, command := range map[testbed.Foreign]string{
		testbed.ForeignXDP:     "`ip link set dev eth0 xdp off`",
		testbed.ForeignXDPLink: "`bpftool link detach id ",
	} {
		remove := intrude(t, lb, f)
		wantRefused(t, lb, "lb", kit.Configuration(bed, lb), "eth0 has the XDP program id ", command)
		if xdp, _ := attached(t, lb); !xdp {
			t.Error("the other program is gone")
		}
		remove()
	}
	kit.Restart(t, bed, lb, "lb", "--detach")
}

// TestPinChanged: a daemon was killed and its configuration has another pin: the start names
// the one command that helps, and then the service works.
func TestPinChanged(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 1})
	kit.Serve(t, bed)
	farm := kit.Start(t, bed, kit.Settings(t, "hunt:always"))
	for role, n := range daemons(bed) {
		works(t, bed)
		kit.End(t, farm.Daemon(n), unix.SIGKILL)
		works(t, bed)
		kit.Changed(t, bed, n, n.Pin(), n.Pin()+"-other")
		wantRefused(t, n, role, kit.Configuration(bed, n), "a Proffer daemon that has ended", "`proffer detach`")
		works(t, bed)
		kit.In(t, n, kit.Proffer, "detach")
		kit.Restart(t, bed, n, role, "--detach")
		works(t, bed)
	}
}

// TestLinkFollowed: the address, MTU and name of a link change under its daemon, and it goes down
// and up: flows go on, and a killed daemon's successor takes over by the new name.
func TestLinkFollowed(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 2})
	kit.Echoes(t, bed, bed.Servers...)
	s := kit.Settings(t, "hunt:static:1")
	s.Lasting = true
	farm := kit.Start(t, bed, s)
	flows := kit.Open(t, bed, 20000, 50)
	for i, n := range []*testbed.Node{bed.LBs[0], bed.Servers[0]} {
		role := []string{"lb", "agent"}[i]
		kit.In(t, n, "ip", "link", "set", "eth0", "address", fmt.Sprintf("02:00:00:00:77:%02x", i))
		kit.In(t, n, "ip", "link", "set", "eth0", "mtu", "1450")
		kit.In(t, bed.Router, "ip", "neigh", "flush", "dev", n.Link)
		kit.Eventually(t, "the change is logged", func() bool {
			return strings.Contains(farm.Daemon(n).Log(), "is now 1450")
		})
		kit.Alive(t, role+" with another address", flows)
		routes := strings.TrimSpace(kit.In(t, n, "ip", "-6", "route", "show", "default"))
		kit.In(t, n, "sysctl", "-qw", "net.ipv6.conf.eth0.keep_addr_on_down=1")
		kit.In(t, n, "ip", "link", "set", "eth0", "down")
		kit.In(t, n, "ip", "link", "set", "eth0", "name", "wan0")
		kit.In(t, n, "ip", "link", "set", "wan0", "up")
		if routes = strings.ReplaceAll(strings.Split(routes, "\n")[0], "eth0", "wan0"); routes != "" {
			kit.In(t, n, "ip", append([]string{"-6", "route", "replace"}, strings.Fields(routes)...)...)
		}
		kit.Eventually(t, "the new name is logged", func() bool {
			return strings.Contains(farm.Daemon(n).Log(), "name eth0 is now wan0")
		})
		if s := kit.Status(t, farm, n); s.Interface != "wan0" || strings.Contains(fmt.Sprint(s.Advice), "cannot be checked") {
			t.Errorf("status of %s: interface %s, advice %q", n.Name, s.Interface, s.Advice)
		}
		kit.Alive(t, role+" with another name", flows)
		kit.End(t, farm.Daemon(n), unix.SIGKILL)
		kit.Changed(t, bed, n, `interface: "eth0"`, `interface: "wan0"`)
		p := kit.Restart(t, bed, n, role, "--detach")
		if !strings.Contains(p.Log(), "adopted=true") {
			t.Errorf("the next %s adopted nothing:\n%s", role, p.Log())
		}
		kit.Alive(t, role+" after a takeover", flows)
	}
}

// TestLinkMadeAgain: a daemon ends with an error when its link is deleted, with nothing left
// behind, so that it starts on the next link of this name.
func TestLinkMadeAgain(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 1})
	s := kit.Settings(t, "hunt:always")
	s.Lasting = true
	farm := kit.Start(t, bed, s)
	for role, n := range daemons(bed) {
		kit.In(t, n, "ip", "link", "add", "up0", "type", "veth", "peer", "name", "up1")
		kit.In(t, n, "ip", "link", "set", "up0", "up")
		kit.In(t, n, "ip", "link", "set", "up1", "up")
		kit.End(t, farm.Daemon(n), unix.SIGTERM)
		kit.In(t, n, kit.Proffer, "detach")
		kit.Changed(t, bed, n, `interface: "eth0"`, `interface: "up0"`)
		p := kit.Restart(t, bed, n, role)
		kit.In(t, n, "ip", "link", "del", "up0")
		var exit *exec.ExitError
		if err := p.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(p.Log(), "the link is gone: up0") {
			t.Errorf("%s without its link ends with %v:\n%s", role, err, p.Log())
		}
		if _, err := os.Lstat(n.Pin()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("pins are left: %v", err)
		}
		kit.In(t, n, "ip", "link", "add", "up0", "type", "veth", "peer", "name", "up1")
		kit.Restart(t, bed, n, role, "--detach")
	}
}
