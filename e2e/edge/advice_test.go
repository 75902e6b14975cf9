package edge

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
)

// TestEdgeAdvice: settings of the hosts with which packets at the edge would be lost are in the log at the start and in
// status until they are mended.
func TestEdgeAdvice(t *testing.T) {
	b := kit.NewSpaces(t)
	dir := t.TempDir()
	n := b.Nodes[0]
	mended := map[string]string{"net.ipv4.conf.n0.rp_filter": "0", "net.ipv4.conf.clients.forwarding": "1"}
	kit.Inside(t, b.Balancer, "sysctl", "-q", "-w", "net.ipv4.conf.n0.rp_filter=1", "net.ipv4.conf.clients.forwarding=0", "net.ipv4.conf.clients.rp_filter=1")
	kit.Inside(t, n, "sysctl", "-q", "-w", "net.ipv4.conf.all.rp_filter=1")
	at := map[string]string{"edge": filepath.Join(dir, "edge.yaml"), "nf": filepath.Join(dir, "n0.yaml")}
	kit.Must(t, os.WriteFile(at["edge"], []byte(kit.EdgeFile(dir, 1)), 0o600))
	kit.Must(t, os.WriteFile(at["nf"], []byte(kit.NodeFile(dir, 0)), 0o600))
	runEdge(t, n, "nf", at["nf"], filepath.Join(dir, "n0.sock"))
	socket := filepath.Join(dir, "edge.sock")
	runEdge(t, b.Balancer, "edge", at["edge"], socket)
	want := map[string][]string{
		"edge": {"`sysctl -qw net/ipv4/conf/n0/rp_filter=2`", "`sysctl -qw net/ipv4/conf/clients/forwarding=1`"},
		"nf":   {"`sysctl -qw net/ipv4/conf/lb/rp_filter=2`"},
	}
	for role, lines := range want {
		log, err := os.ReadFile(at[role] + ".log")
		kit.Must(t, err)
		for _, line := range lines {
			if !strings.Contains(string(log), line) {
				t.Errorf("the log of the %s lacks %s:\n%s", role, line, log)
			}
		}
	}
	text := func() string { return kit.Sh(t, kit.Proffer, "status", "--control", socket) }
	if s := text(); !strings.Contains(s, "advice: ") || !strings.Contains(s, want["edge"][0]) || strings.Contains(s, "clients/rp_filter") || strings.Contains(s, "out of sight") {
		t.Errorf("status prints\n%s", s)
	}
	for name, value := range mended {
		kit.Inside(t, b.Balancer, "sysctl", "-q", "-w", name+"="+value)
	}
	if s := text(); strings.Contains(s, "sysctl") {
		t.Errorf("status of a mended host prints\n%s", s)
	}
	for _, c := range []struct {
		in           *testbed.Node
		link, socket string
	}{{b.Balancer, "clients", socket}, {b.Balancer, "n0", socket}, {n, "lb", filepath.Join(dir, "n0.sock")}} {
		words := c.link + " is a port of the bridge br0"
		at := func() bool {
			return strings.Contains(kit.Sh(t, kit.Proffer, "status", "--control", c.socket), words)
		}
		if at() {
			t.Errorf("%s without a bridge: advised", c.link)
		}
		kit.Inside(t, c.in, "ip", "link", "add", "br0", "type", "bridge")
		kit.Inside(t, c.in, "ip", "link", "set", "dev", c.link, "master", "br0")
		if !at() {
			t.Errorf("%s at a bridge: not advised", c.link)
		}
		kit.Inside(t, c.in, "ip", "link", "set", "dev", c.link, "nomaster")
		kit.Inside(t, c.in, "ip", "link", "del", "br0")
		if at() {
			t.Errorf("%s as it was: advised", c.link)
		}
	}
}
