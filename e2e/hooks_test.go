package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"proffer/lab/testbed"
)

// hasProblem reports whether a node's status names a problem that contains part.
func hasProblem(t *testing.T, bed *testbed.Bed, n *testbed.Node, part string) bool {
	t.Helper()
	return strings.Contains(in(t, n, proffer, "status", "--control", control(bed, n)), part)
}

// TestBypassNoticed: another program before ours on the way out takes the answers. Status and
// log name it, and that accepted flows have no answers, and when that is over.
func TestBypassNoticed(t *testing.T) {
	bed := up(t, testbed.Config{Servers: 1})
	serve(t, bed)
	farm := start(t, bed, settings(t, "hunt:always"))
	s1 := bed.Servers[0]
	works(t, bed)
	remove := intrude(t, s1, testbed.ForeignTaker)
	eventually(t, "the other program is named", func() bool {
		return hasProblem(t, bed, s1, "problem: on the way out of eth0 packets meet id ")
	})
	if hasProblem(t, bed, s1, "had no answer on the way out") {
		t.Error("answers are missed before there was a flow")
	}
	eventually(t, "the missing answers are named", func() bool {
		works(t, bed)
		return hasProblem(t, bed, s1, "had no answer on the way out of eth0")
	})
	remove()
	eventually(t, "the problems are over", func() bool {
		works(t, bed)
		return !hasProblem(t, bed, s1, "problem:")
	})
	for _, line := range []string{"packets pass the programs by", "packets meet the programs again"} {
		eventually(t, "the log has: "+line, func() bool { return strings.Contains(farm.Daemon(s1).Log(), line) })
	}
}

// wantRefused starts a node's daemon, which fails with a text that names it.
func wantRefused(t *testing.T, n *testbed.Node, role, file string, texts ...string) {
	t.Helper()
	stdout, stderr, err := try(t, n, proffer, role, "--config", file)
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
	bed := up(t, testbed.Config{Servers: 1})
	farm := start(t, bed, settings(t, "hunt:always"))
	lb := bed.LBs[0]
	forget(t, farm.Daemon(lb))
	for f, command := range map[testbed.Foreign]string{
		testbed.ForeignXDP:     "`ip link set dev eth0 xdp off`",
		testbed.ForeignXDPLink: "`bpftool link detach id ",
	} {
		remove := intrude(t, lb, f)
		wantRefused(t, lb, "lb", configuration(bed, lb), "eth0 has the XDP program id ", command)
		if xdp, _ := attached(t, lb); !xdp {
			t.Error("the other program is gone")
		}
		remove()
	}
	restart(t, bed, lb, "lb", "--detach")
}

// changed writes a node's configuration with another text in the place of one.
func changed(t *testing.T, bed *testbed.Bed, n *testbed.Node, old, new string) {
	t.Helper()
	text, err := os.ReadFile(configuration(bed, n))
	if err != nil || !strings.Contains(string(text), old) {
		t.Fatalf("no %q (%v) in\n%s", old, err, text)
	}
	if err := os.WriteFile(configuration(bed, n), []byte(strings.ReplaceAll(string(text), old, new)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestPinChanged: a daemon was killed and its configuration has another pin: the start names
// the one command that helps, and then the service works.
func TestPinChanged(t *testing.T) {
	bed := up(t, testbed.Config{Servers: 1})
	serve(t, bed)
	farm := start(t, bed, settings(t, "hunt:always"))
	for role, n := range daemons(bed) {
		works(t, bed)
		end(t, farm.Daemon(n), unix.SIGKILL)
		works(t, bed)
		changed(t, bed, n, n.Pin(), n.Pin()+"-other")
		wantRefused(t, n, role, configuration(bed, n), "a Proffer daemon that has ended", "`proffer detach`")
		works(t, bed)
		in(t, n, proffer, "detach")
		restart(t, bed, n, role, "--detach")
		works(t, bed)
	}
}

// TestLinkFollowed: the address, MTU and name of a link change under its daemon, and it goes down
// and up: flows go on, and a killed daemon's successor takes over by the new name.
func TestLinkFollowed(t *testing.T) {
	bed := up(t, testbed.Config{Servers: 2})
	echoes(t, bed, bed.Servers...)
	s := settings(t, "hunt:static:1")
	s.Lasting = true
	farm := start(t, bed, s)
	flows := open(t, bed, 20000, 50)
	for i, n := range []*testbed.Node{bed.LBs[0], bed.Servers[0]} {
		role := []string{"lb", "agent"}[i]
		in(t, n, "ip", "link", "set", "eth0", "address", fmt.Sprintf("02:00:00:00:77:%02x", i))
		in(t, n, "ip", "link", "set", "eth0", "mtu", "1450")
		in(t, bed.Router, "ip", "neigh", "flush", "dev", n.Link)
		eventually(t, "the change is logged", func() bool {
			return strings.Contains(farm.Daemon(n).Log(), "is now 1450")
		})
		alive(t, role+" with another address", flows)
		routes := strings.TrimSpace(in(t, n, "ip", "-6", "route", "show", "default"))
		in(t, n, "sysctl", "-qw", "net.ipv6.conf.eth0.keep_addr_on_down=1")
		in(t, n, "ip", "link", "set", "eth0", "down")
		in(t, n, "ip", "link", "set", "eth0", "name", "wan0")
		in(t, n, "ip", "link", "set", "wan0", "up")
		if routes = strings.ReplaceAll(strings.Split(routes, "\n")[0], "eth0", "wan0"); routes != "" {
			in(t, n, "ip", append([]string{"-6", "route", "replace"}, strings.Fields(routes)...)...)
		}
		eventually(t, "the new name is logged", func() bool {
			return strings.Contains(farm.Daemon(n).Log(), "name eth0 is now wan0")
		})
		if s := status(t, farm, n); s.Interface != "wan0" || strings.Contains(fmt.Sprint(s.Advice), "cannot be checked") {
			t.Errorf("status of %s: interface %s, advice %q", n.Name, s.Interface, s.Advice)
		}
		alive(t, role+" with another name", flows)
		end(t, farm.Daemon(n), unix.SIGKILL)
		changed(t, bed, n, `interface: "eth0"`, `interface: "wan0"`)
		p := restart(t, bed, n, role, "--detach")
		if !strings.Contains(p.Log(), "adopted=true") {
			t.Errorf("the next %s adopted nothing:\n%s", role, p.Log())
		}
		alive(t, role+" after a takeover", flows)
	}
}

// TestLinkMadeAgain: a daemon ends with an error when its link is deleted, with nothing left
// behind, so that it starts on the next link of this name.
func TestLinkMadeAgain(t *testing.T) {
	bed := up(t, testbed.Config{Servers: 1})
	s := settings(t, "hunt:always")
	s.Lasting = true
	farm := start(t, bed, s)
	for role, n := range daemons(bed) {
		in(t, n, "ip", "link", "add", "up0", "type", "veth", "peer", "name", "up1")
		in(t, n, "ip", "link", "set", "up0", "up")
		in(t, n, "ip", "link", "set", "up1", "up")
		end(t, farm.Daemon(n), unix.SIGTERM)
		in(t, n, proffer, "detach")
		changed(t, bed, n, `interface: "eth0"`, `interface: "up0"`)
		p := restart(t, bed, n, role)
		in(t, n, "ip", "link", "del", "up0")
		var exit *exec.ExitError
		if err := p.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(p.Log(), "the link is gone: up0") {
			t.Errorf("%s without its link ends with %v:\n%s", role, err, p.Log())
		}
		if _, err := os.Lstat(n.Pin()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("pins are left: %v", err)
		}
		in(t, n, "ip", "link", "add", "up0", "type", "veth", "peer", "name", "up1")
		restart(t, bed, n, role, "--detach")
	}
}
