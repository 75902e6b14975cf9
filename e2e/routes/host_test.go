package routes

import (
	"slices"
	"strings"
	"testing"

	"proffer/e2e/kit"
	"proffer/lab/farmrun"
	"proffer/lab/testbed"
)

// advised reports whether the status of a node has advice with these words.
func advised(t *testing.T, farm *farmrun.Farm, n *testbed.Node, words string) bool {
	t.Helper()
	return slices.ContainsFunc(kit.Status(t, farm, n).Advice, func(a string) bool { return strings.Contains(a, words) })
}

// TestHostAdvice: a server that answers its neighbours for a VIP, past the LB, and a link that is a port of a bridge
// are in the status of the daemon there, until the commands of the advice are given.
func TestHostAdvice(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 1})
	server := bed.Servers[0]
	farm := kit.Start(t, bed, kit.Settings4(t, bed, "hunt:static:4"))
	for name, value := range map[string]string{"arp_ignore": "1", "arp_announce": "2"} {
		for _, v := range []string{"0", value} {
			kit.In(t, server, "sysctl", "-qw", "net/ipv4/conf/all/"+name+"="+v)
			if is := advised(t, farm, server, "`sysctl -qw net/ipv4/conf/all/"+name+"="+value+"`"); is != (v == "0") {
				t.Errorf("%s is %s: advised %v: %q", name, v, is, kit.Status(t, farm, server).Advice)
			}
		}
	}
	for _, of := range []struct{ link, value string }{{"all", "0"}, {"eth0", "1"}, {"eth0", "3"}, {"eth0", "0"}} { // the larger counts
		kit.In(t, server, "sysctl", "-qw", "net/ipv4/conf/"+of.link+"/arp_ignore="+of.value)
		want := map[string]string{"all0": "all/arp_ignore=1", "eth03": "eth0/arp_ignore=1", "eth00": "all/arp_ignore=1"}[of.link+of.value]
		if is := advised(t, farm, server, "arp_ignore"); is != (want != "") || want != "" && !advised(t, farm, server, want) {
			t.Errorf("arp_ignore of %s is %s: %q, want %q", of.link, of.value, kit.Status(t, farm, server).Advice, want)
		}
	}
	kit.In(t, server, "sysctl", "-qw", "net/ipv4/conf/all/arp_ignore=1")
	kit.In(t, server, "ip", "addr", "add", testbed.VIP4+"/32", "dev", "eth0")
	if !advised(t, farm, server, "eth0 answers ARP for the VIP") {
		t.Errorf("a VIP on the link: %q", kit.Status(t, farm, server).Advice)
	}
	kit.In(t, server, "ip", "addr", "del", testbed.VIP4+"/32", "dev", "eth0")
	for _, n := range []*testbed.Node{bed.LBs[0], server} {
		const words = "eth0 is a port of the bridge br0"
		if advised(t, farm, n, words) {
			t.Errorf("%s without a bridge: %q", n.Name, kit.Status(t, farm, n).Advice)
		}
		kit.In(t, n, "ip", "link", "add", "br0", "type", "bridge")
		kit.In(t, n, "ip", "link", "set", "dev", "eth0", "master", "br0")
		if !advised(t, farm, n, words) {
			t.Errorf("%s at a bridge: %q", n.Name, kit.Status(t, farm, n).Advice)
		}
		kit.In(t, n, "ip", "link", "set", "dev", "eth0", "nomaster")
		if a := kit.Status(t, farm, n).Advice; slices.ContainsFunc(a, func(a string) bool { return !strings.Contains(a, "is a veth") }) {
			t.Errorf("%s as it was: %q", n.Name, a)
		}
	}
}
