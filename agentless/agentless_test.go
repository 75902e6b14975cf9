package agentless

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"proffer/topo"
)

func locator(i byte) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom16([16]byte{0x5f, 0, 0, 0, 0, 2, 0, i}), 64)
}

// farm has a server of each delivery in two services.
func farm(via ...netip.Addr) *topo.LB {
	addr := netip.MustParseAddr
	six := topo.Service{
		Name: "web", VIP: topo.VIP{Addr: addr("2001:db8:f::1"), Port: 80}, Via: via,
		Servers: []topo.Server{
			{Name: "dual", Delivery: topo.ByDT6, Locator: locator(1)},
			{Name: "front", Delivery: topo.ByDX6, Locator: locator(2)},
			{Name: "near", Delivery: topo.ByL2, Address: addr("2001:db8:2::3")},
			{Name: "far", Delivery: topo.ByVXLAN, Address: addr("2001:db8:2::4"), VNI: 100, MAC: topo.MAC{2, 0, 0, 0, 0, 1}},
			{Name: "ours", Locator: locator(5)},
		},
	}
	four := topo.Service{
		Name: "web4", VIP: topo.VIP{Addr: addr("203.0.113.1"), Port: 80},
		Servers: []topo.Server{
			{Name: "dual", Delivery: topo.ByDX4, Locator: locator(1)},
			{Name: "front", Delivery: topo.ByDX4, Locator: locator(2)},
			{Name: "near", Delivery: topo.ByL2, Address: addr("10.0.0.3")},
			{Name: "far", Delivery: topo.ByVXLAN, Address: addr("10.0.0.4"), VNI: 100, MAC: topo.MAC{2, 0, 0, 0, 0, 1}},
		},
	}
	return &topo.LB{Services: []topo.Service{six, four}}
}

// commands are those of a server's script.
func commands(t *testing.T, lb *topo.LB, name string, behind bool) string {
	t.Helper()
	s, err := Of(lb, name, "eth1", behind)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(s.Script()) {
		if line != "\n" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// TestCommands: the whole of each server's commands, in an order that a kernel can take.
func TestCommands(t *testing.T) {
	for _, c := range []struct {
		name   string
		behind bool
		want   string
	}{
		{"dual", false, `set -e
sysctl -qw net/ipv4/conf/all/arp_ignore=1
sysctl -qw net/ipv4/conf/all/arp_announce=2
sysctl -qw net/ipv4/conf/eth1/rp_filter=2
ip addr replace 2001:db8:f::1/128 dev lo
ip addr replace 203.0.113.1/32 dev lo
ip -6 route replace 5f00:0:2:1:d7::/128 encap seg6local action End.DT6 table local dev eth1
ip -6 route replace 5f00:0:2:1:d7:4::/128 encap seg6local action End.DX4 nh4 0.0.0.0 dev eth1
`},
		{"front", true, `set -e
sysctl -qw net/ipv6/conf/all/forwarding=1
sysctl -qw net/ipv4/conf/all/forwarding=1
sysctl -qw net/ipv4/conf/eth1/forwarding=1
sysctl -qw net/ipv4/conf/eth1/rp_filter=2
ip -6 route replace 5f00:0:2:2:d7::/128 encap seg6local action End.DX6 nh6 :: dev eth1
ip -6 route replace 5f00:0:2:2:d7:4::/128 encap seg6local action End.DX4 nh4 0.0.0.0 dev eth1
`},
		{"near", false, `set -e
sysctl -qw net/ipv4/conf/all/arp_ignore=1
sysctl -qw net/ipv4/conf/all/arp_announce=2
sysctl -qw net/ipv4/conf/eth1/rp_filter=2
ip addr replace 2001:db8:f::1/128 dev lo
ip addr replace 203.0.113.1/32 dev lo
`},
		{"far", false, `set -e
sysctl -qw net/ipv4/conf/all/arp_ignore=1
sysctl -qw net/ipv4/conf/all/arp_announce=2
sysctl -qw net/ipv4/conf/eth1/rp_filter=2
ip addr replace 2001:db8:f::1/128 dev lo
ip addr replace 203.0.113.1/32 dev lo
ip link show vxlan100 >/dev/null 2>&1 || ip link add vxlan100 address 02:00:00:00:00:01 type vxlan id 100 dstport 4789 local 2001:db8:2::4 nolearning udp6zerocsumrx
ip link set vxlan100 up
ip link show vxlan100-4 >/dev/null 2>&1 || ip link add vxlan100-4 address 02:00:00:00:00:01 type vxlan id 100 dstport 4789 local 10.0.0.4 nolearning
ip link set vxlan100-4 up
ip addr replace 203.0.113.1/32 dev vxlan100-4
sysctl -qw net/ipv4/conf/vxlan100-4/rp_filter=2
`},
	} {
		if got := commands(t, farm(), c.name, c.behind); got != c.want {
			t.Errorf("%s: got\n%swant\n%s", c.name, got, c.want)
		}
	}
	if got := commands(t, farm(netip.MustParseAddr("5f00:0:9::1")), "dual", false); !strings.Contains(got, "net/ipv6/conf/eth1/seg6_enabled=1\n") {
		t.Errorf("behind other SIDs: %s", got)
	}
}

// TestUndo: the commands in the other order, settings left.
func TestUndo(t *testing.T) {
	s, err := Of(farm(), "far", "eth1", false)
	if err != nil {
		t.Fatal(err)
	}
	want := `# Server far of Proffer: its set-up taken back.
# as it is, for its value before is not known: sysctl -qw net/ipv4/conf/vxlan100-4/rp_filter=2
ip link del vxlan100-4
ip link del vxlan100
ip addr del 203.0.113.1/32 dev lo
ip addr del 2001:db8:f::1/128 dev lo
# as it is, for its value before is not known: sysctl -qw net/ipv4/conf/eth1/rp_filter=2
# as it is, for its value before is not known: sysctl -qw net/ipv4/conf/all/arp_announce=2
# as it is, for its value before is not known: sysctl -qw net/ipv4/conf/all/arp_ignore=1
`
	if got := s.UndoScript(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestRefused: a server that needs no such set-up, or that cannot be set up so.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		behind bool
		want   string
	}{
		{"none", false, `no service has a server "none"; want one of dual, far, front, near, ours`},
		{"ours", false, "server ours has delivery: agent in service web: run `proffer agent` there, with the VIP on lo"},
		{"dual", true, "server dual has delivery: dt6 in service web, which leads to no host behind it; want dx6 or dx4"},
		{"near", true, "server near has delivery: l2 in service web, which leads to no host behind it; want dx6 or dx4"},
	} {
		if _, err := Of(farm(), c.name, "eth0", c.behind); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
}

// TestDeliveriesExplained: docs/operate/agentless.md has a row for each delivery.
func TestDeliveriesExplained(t *testing.T) {
	doc, err := os.ReadFile("../docs/operate/agentless.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range topo.Deliveries() {
		if !strings.Contains(string(doc), "| `"+d.String()+"` |") {
			t.Errorf("docs/operate/agentless.md does not have %s", d)
		}
	}
}
