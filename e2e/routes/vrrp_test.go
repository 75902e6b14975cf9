package routes

import (
	"net/netip"
	"strings"
	"testing"

	"proffer/e2e/kit"
	"proffer/lab/farmrun"
	"proffer/lab/testbed"
)

// TestVirtualRouter: where frames come for a macvlan's address above the link, as with VRRP, the LB takes the VIPs'
// packets and the agent its signals; without the macvlan the status of each names the address.
func TestVirtualRouter(t *testing.T) {
	const virtual = "00:00:5e:00:02:01"
	for _, c := range []struct {
		label    string
		settings func(*testing.T, *testbed.Bed, string) farmrun.Settings
		url      func(*testbed.Bed) string
	}{
		{"IPv6", func(t *testing.T, _ *testbed.Bed, p string) farmrun.Settings { return kit.Settings(t, p) }, func(bed *testbed.Bed) string {
			return "http://" + netip.AddrPortFrom(bed.VIP, testbed.Port).String()
		}},
		{"IPv4", kit.Settings4, func(*testbed.Bed) string { return kit.URL4 }},
	} {
		bed := kit.Up(t, testbed.Config{Servers: 1})
		vip := bed.VIP
		if c.label == "IPv4" {
			vip = bed.VIP4
		}
		kit.ServeAt(t, vip, bed.Servers...)
		farm := kit.Start(t, bed, c.settings(t, bed, "hunt:static:4"))
		ask := func() bool {
			_, _, err := kit.Try(t, bed.Client, "curl", "-sS", "-o", "/dev/null", "-g", "--max-time", "3", c.url(bed))
			return err == nil
		}
		if !ask() {
			t.Fatalf("%s: not served at first", c.label)
		}
		for _, n := range []*testbed.Node{bed.LBs[0], bed.Servers[0]} {
			for _, to := range []netip.Addr{n.Addr, n.Addr4} {
				kit.In(t, bed.Router, "ip", "neigh", "replace", to.String(), "lladdr", virtual, "nud", "permanent", "dev", n.Link)
			}
			ask()
			kit.Eventually(t, n.Name+" names the address", func() bool { return advised(t, farm, n, virtual) })
			kit.In(t, n, "ip", "link", "add", "vrrp.1", "link", "eth0", "address", virtual, "type", "macvlan", "mode", "private")
			kit.In(t, n, "ip", "link", "set", "vrrp.1", "up")
			kit.Eventually(t, n.Name+" takes it", func() bool { return strings.Contains(farm.Daemon(n).Log(), "frames for "+virtual+" are taken") })
			if !ask() {
				t.Errorf("%s: not served by the macvlan's address of %s: %v", c.label, n.Name, kit.Status(t, farm, n).Counters)
			}
			if advised(t, farm, n, virtual) {
				t.Errorf("%s: %s names an address that it serves", c.label, n.Name)
			}
		}
	}
}
