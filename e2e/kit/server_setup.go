package kit

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/topo"
)

// Servers that are set up by the commands of `proffer server-setup` alone.

// Bare takes from a server all that the bed gave it, and leaves the settings that
// a distribution may have.
func Bare(t *testing.T, bed *testbed.Bed, n *testbed.Node) {
	t.Helper()
	for _, vip := range []netip.Addr{bed.VIP, bed.VIP4} {
		In(t, n, "ip", "addr", "del", netip.PrefixFrom(vip, vip.BitLen()).String(), "dev", "lo")
	}
	BareSettings(t, n)
}

func BareSettings(t *testing.T, n *testbed.Node) {
	t.Helper()
	for path, value := range map[string]string{
		"net/ipv4/conf/all/arp_ignore": "0", "net/ipv4/conf/all/arp_announce": "0",
		"net/ipv4/conf/all/rp_filter": "1", "net/ipv4/conf/default/rp_filter": "1", "net/ipv4/conf/eth0/rp_filter": "1",
	} {
		SetSysctl(t, n, path, value)
	}
}

// BareFarm is a bed with servers that server-setup sets up.
type BareFarm struct {
	*testbed.Bed
	Fronting *testbed.Node // has its application in a container
}

// setup is `proffer server-setup` on a server.
func (bed BareFarm) setup(t *testing.T, n *testbed.Node, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	all := append([]string{"server-setup", "--config", Configuration(bed.Bed, bed.LBs[0]), n.Name}, args...)
	if n == bed.Fronting {
		all = append(all, "--behind")
	}
	return Try(t, n, Proffer, all...)
}

// SetUp gives the printed commands to a shell on the server.
func (bed BareFarm) SetUp(t *testing.T, n *testbed.Node) {
	t.Helper()
	script, stderr, err := bed.setup(t, n)
	if err != nil {
		t.Fatalf("server-setup %s: %v %s", n.Name, err, stderr)
	}
	t.Logf("%s:\n%s", n.Name, script)
	In(t, n, "sh", "-c", script)
	In(t, n, "sh", "-c", script) // again, without harm
}

// WantSetUp demands that --check finds everything, or these parts of reports wrong.
func (bed BareFarm) WantSetUp(t *testing.T, n *testbed.Node, wrong ...string) {
	t.Helper()
	stdout, stderr, err := bed.setup(t, n, "--check")
	if (err == nil) != (len(wrong) == 0) {
		t.Errorf("server-setup --check %s: %v\n%s%s", n.Name, err, stdout, stderr)
	}
	found := 0
	for line := range strings.Lines(stdout) {
		if strings.HasPrefix(line, "wrong") {
			found++
		}
	}
	if found != len(wrong) {
		t.Errorf("%s: %d steps are wrong, want %d:\n%s", n.Name, found, len(wrong), stdout)
	}
	for _, w := range wrong {
		if !strings.Contains(stdout, w) {
			t.Errorf("%s: no report has %q:\n%s", n.Name, w, stdout)
		}
	}
}

// AgentlessFarm starts one LB and bare servers with these deliveries, by VIP.
func AgentlessFarm(t *testing.T, bed *testbed.Bed, six, four []topo.Server) *farmrun.Farm {
	t.Helper()
	s := Settings(t, "single")
	s.LB = func(lb *topo.LB) {
		web := lb.Services[0]
		web4 := web
		web4.Name, web4.VIP.Addr = "web4", bed.VIP4
		web.Servers, web4.Servers = six, four
		lb.Services = []topo.Service{web, web4}
	}
	farm := Start(t, bed, s)
	for _, n := range bed.Servers {
		Forget(t, farm.Daemon(n))
	}
	return farm
}

// CheckFindsEach takes one thing after another from the servers, and back.
func (bed BareFarm) CheckFindsEach(t *testing.T) {
	t.Helper()
	for _, c := range []struct {
		server int
		harm   string
		wrong  string
	}{
		{0, "ip -6 addr del 2001:db8:f::1/128 dev lo", "2001:db8:f::1 is no address of lo: `ip addr replace 2001:db8:f::1/128 dev lo`"},
		{0, "ip addr del 203.0.113.1/32 dev lo", "203.0.113.1 is no address of lo"},
		{0, "ip -6 route del 5f00:0:2:1:d7::/128", "no seg6local route to 5f00:0:2:1:d7::/128, or another route comes before it: `ip -6 route replace"},
		{0, "ip -6 route replace 5f00:0:2:1:d7:4::/128 encap seg6local action End.DT6 table local dev eth0", "want \"End.DX4 nh4 0.0.0.0\""},
		{0, "sysctl -qw net/ipv4/conf/eth0/rp_filter=0", "net/ipv4/conf/eth0/rp_filter is 0 and net/ipv4/conf/all/rp_filter is 1"},
		{1, "sysctl -qw net/ipv6/conf/all/forwarding=0", "net/ipv6/conf/all/forwarding is 0: `sysctl -qw net/ipv6/conf/all/forwarding=1`"},
		{2, "sysctl -qw net/ipv4/conf/all/arp_ignore=0", "net/ipv4/conf/all/arp_ignore is 0"},
		{2, "sysctl -qw net/ipv4/conf/all/arp_announce=0", "net/ipv4/conf/all/arp_announce is 0"},
		{3, "sysctl -qw net/ipv4/conf/eth0/rp_filter=0", "net/ipv4/conf/eth0/rp_filter is 0 and net/ipv4/conf/all/rp_filter is 1"},
		{3, "ip link set vxlan100 down", "vxlan100 is down: `ip link set vxlan100 up`"},
		{3, "ip link set vxlan100-4 address 02:00:00:00:00:02", "vxlan100-4 has address 02:00:00:00:00:02, want 02:00:00:00:00:01"},
	} {
		n := bed.Servers[c.server]
		In(t, n, "sh", "-c", c.harm)
		bed.WantSetUp(t, n, c.wrong)
		if strings.Contains(c.harm, "address 02") {
			In(t, n, "ip", "link", "del", "vxlan100-4")
		}
		bed.SetUp(t, n)
		bed.WantSetUp(t, n)
	}
	bed.undone(t)
}

// undone: --undo takes the set-up back; --json has the report.
func (bed BareFarm) undone(t *testing.T) {
	t.Helper()
	for _, n := range bed.Servers {
		script, _, err := bed.setup(t, n, "--undo")
		if err != nil {
			t.Fatal(err)
		}
		In(t, n, "sh", "-ec", script)
		out, _, err := bed.setup(t, n, "--check", "--json")
		var report struct {
			Steps []struct {
				Command, Undo string
				OK            *bool
			}
		}
		if e := json.Unmarshal([]byte(out), &report); e != nil || err == nil {
			t.Fatalf("%v, %v: %s", err, e, out)
		}
		for _, step := range report.Steps {
			if step.Undo != "" && *step.OK {
				t.Errorf("%s: undone, and there: %s", n.Name, step.Command)
			}
		}
	}
}
