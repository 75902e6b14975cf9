package edge

import (
	"strings"
	"testing"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
)

// TestPackageEdge: an edge LB and a datapath node of the package run under all restrictions of their units, carry
// conversations and NAT, before and after an upgrade of each.
func TestPackageEdge(t *testing.T) {
	b, packages := kit.NewSpaces(t), t.TempDir()
	asked := edgeEchoes(t, b.World)
	for _, version := range []string{"0.1", "0.2"} {
		kit.Debian(t, kit.Proffer, version, packages)
	}
	in := map[string]*kit.Container{}
	for role, n := range map[string]*testbed.Node{"nf": b.Nodes[0], "edge": b.Balancer} {
		c := kit.Contain(t, n, packages)
		in[role] = c
		c.Run(t, "dpkg", "--no-triggers", "-i", "/root/share/proffer_0.1_amd64.deb")
		text := kit.EdgeFile("/run/proffer", 1)
		if role == "nf" {
			text = strings.Replace(kit.NodeFile("/run/proffer", 0), "n0.sock", "nf.sock", 1)
		}
		c.Write(t, "/etc/proffer/"+role+".yaml", text)
		c.Run(t, "systemctl", "enable", "--now", "proffer-"+role)
		kit.WantRestricted(t, c, role)
	}
	talk := func() {
		t.Helper()
		for _, service := range []int{kit.EdgeCost, kit.EdgeNAT} {
			converse(t, b.Client, service)
			<-asked
		}
	}
	reaches := func(role string) {
		t.Helper()
		kit.Eventually(t, role+" reaches its far ends", func() bool {
			out, err := in[role].Command("proffer", "status", "--json", "--control", "/run/proffer/"+role+".sock").Output()
			return err == nil && !strings.Contains(string(out), "no_next_hop")
		})
	}
	reaches("nf")
	reaches("edge")
	talk()
	for role, c := range in {
		kit.WantUpgrade(t, c, role)
		reaches(role)
		talk()
	}
	for role, c := range in {
		c.Run(t, "dpkg", "--no-triggers", "-r", "proffer")
		if links := c.Run(t, "ip", "-o", "link"); strings.Contains(links, "xdp") {
			t.Errorf("%s: programs stay at\n%s", role, links)
		}
	}
}
