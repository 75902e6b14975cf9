package routes

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
)

// addRoutes makes n routes in one burst, by a neighbour that has the router's address.
func addRoutes(t *testing.T, bed *testbed.Bed, n *testbed.Node, first, count int) {
	t.Helper()
	var b strings.Builder
	for i := first; i < first+count; i++ {
		fmt.Fprintf(&b, "route add fd00:%x:%x::/64 via fe80::99 dev eth0\n", 1+i>>16, i&0xffff)
	}
	file := filepath.Join(t.TempDir(), "routes")
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	kit.In(t, n, "ip", "-6", "-batch", file)
}

// TestRoutes: 17,000 routes do not stop a start, at an LB or at an agent; a burst of routes
// and then another MAC address of the gateway leave connections as they are.
func TestRoutes(t *testing.T) {
	const before, burst = 17_000, 4_000
	bed := kit.Up(t, testbed.Config{Servers: 1})
	nodes := []*testbed.Node{bed.LBs[0], bed.Servers[0]}
	for _, n := range nodes {
		kit.In(t, n, "ip", "-6", "neigh", "replace", "fe80::99", "lladdr", "02:00:00:00:99:99", "nud", "permanent", "dev", "eth0")
		addRoutes(t, bed, n, 0, before)
	}
	kit.Echo(t, bed.Servers[0], bed.VIP)
	kit.Start(t, bed, kit.Settings(t, "hunt:static:4"))
	flows := kit.Open(t, bed, 20000, 10)
	for i, n := range nodes {
		addRoutes(t, bed, n, before, burst)
		kit.In(t, bed.Router, "sysctl", "-w", "net.ipv6.conf."+n.Link+".ndisc_notify=1")
		kit.In(t, bed.Router, "ip", "link", "set", n.Link, "address", fmt.Sprintf("02:00:00:00:77:%02x", i))
		kit.Eventually(t, n.Name+" reaches its gateway at its new address", func() bool {
			_, err := kit.TryDial(t, bed, kit.Within)
			return err == nil
		})
	}
	kit.Alive(t, "after bursts of routes and new addresses", flows)
}
