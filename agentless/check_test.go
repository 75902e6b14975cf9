package agentless

import (
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// shell runs commands in the namespace of the test.
func shell(t *testing.T, commands string) {
	t.Helper()
	if out, err := exec.Command("sh", "-ec", commands).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v %s", commands, err, out)
	}
}

// wantWrong demands that a check of this host finds these parts of reports wrong, and no others.
func wantWrong(t *testing.T, s *Setup, label string, want ...string) {
	t.Helper()
	reports, lacking, err := s.Check()
	if err != nil || lacking != len(want) {
		t.Errorf("%s: %d steps are wrong, %v; want %d", label, lacking, err, len(want))
	}
	var wrong []string
	for _, r := range reports {
		wrong = append(wrong, r.Lacks)
	}
	for _, w := range want {
		if all := strings.Join(wrong, "\n"); !strings.Contains(all, w) {
			t.Errorf("%s: no report has %q: %s", label, w, all)
		}
	}
}

// TestCheck: a host that is set up by the printed commands has it all; one on which packets do not reach
// their VIP all the same is found.
func TestCheck(t *testing.T) {
	runtime.LockOSThread() // the namespace ends with the thread
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	shell(t, `ip link set lo up
ip link add eth1 type veth peer name lb
ip link set eth1 up; ip link set lb up
ip -6 addr add 2001:db8:2::4/64 dev eth1 nodad; ip addr add 10.0.0.4/24 dev eth1
ip link add back type veth peer name app
ip link set back up; ip link set app up
ip route add 198.51.100.0/24 dev back; ip -6 route add 2001:db8:e::/64 dev back`)
	for _, c := range []struct {
		server     string
		behind     bool
		harm, mend string
		wrong      string
	}{
		{"dual", false, "ip -6 addr add 2001:db8:f::1/128 dev eth1 nodad", "ip -6 addr del 2001:db8:f::1/128 dev eth1", "2001:db8:f::1 is an address of eth1, too"},
		{"dual", false, "ip addr add 203.0.113.1/32 dev eth1", "ip addr del 203.0.113.1/32 dev eth1", "203.0.113.1 is an address of eth1, too"},
		{"dual", false, "ip -6 addr add 5f00:0:2:1:d7::/128 dev lo nodad", "ip -6 addr del 5f00:0:2:1:d7::/128 dev lo", "5f00:0:2:1:d7:: is an address of lo"},
		{"dual", false, "ip -6 route add blackhole 5f00:0:2:1:d7::/128 metric 1", "ip -6 route del blackhole 5f00:0:2:1:d7::/128 metric 1", "or another route comes before it"},
		{"dual", false, "ip -6 route add 5f00:0:2:1:d7::/128 dev back metric 1", "ip -6 route del 5f00:0:2:1:d7::/128 dev back metric 1", "or another route comes before it"},
		{"far", false, "ip addr add 203.0.113.1/32 dev back", "ip addr del 203.0.113.1/32 dev back", "203.0.113.1 is an address of back, too"},
		{"front", true, "sysctl -qw net/ipv4/conf/eth1/forwarding=0", "sysctl -qw net/ipv4/conf/eth1/forwarding=1", "net/ipv4/conf/eth1/forwarding is 0"},
	} {
		s, err := Of(farm(), c.server, "eth1", c.behind)
		if err != nil {
			t.Fatal(err)
		}
		shell(t, s.Script())
		if c.behind {
			shell(t, "ip route add 203.0.113.1/32 dev back; ip -6 route add 2001:db8:f::1/128 dev back")
		}
		wantWrong(t, s, c.server)
		shell(t, c.harm)
		wantWrong(t, s, c.harm, c.wrong)
		shell(t, c.mend)
		wantWrong(t, s, c.mend)
		shell(t, s.UndoScript())
	}
}

// TestLinkNames: a name that stands in commands is one word of a shell.
func TestLinkNames(t *testing.T) {
	for name, want := range map[string]bool{
		"eth0": true, "eth0.100": true, "enp3s0f1np1": true, "wg_a-b+1@x": true, "fifteen-bytes-a": true,
		"": false, ".": false, "..": false, "-a": false, "a b": false, "a/b": false, "a:b": false, "a;b": false, "a'": false, "sixteen-bytes-ab": false,
	} {
		if IsLinkName(name) != want {
			t.Errorf("%q is a name: %v, want %v", name, !want, want)
		}
	}
}
