package peers

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/lab/traffic"
)

// serving is a farm whose servers answer, and nothing in the balancer's place.
func serving(t *testing.T, servers int) *contest {
	t.Helper()
	bed, err := testbed.Up(t.Context(), testbed.Config{Servers: servers})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bed.Close(); err != nil {
			t.Error(err)
		}
	})
	c := &contest{bed: bed}
	if err := c.serve(context.Background()); err != nil {
		t.Fatal(err)
	}
	return c
}

// begun puts a peer into the balancer's place.
func begun(t *testing.T, c *contest, name string) *balancer {
	t.Helper()
	all := peers()
	b, err := all[slices.IndexFunc(all, func(p peer) bool { return p.name == name })].start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.answers(t.Context(), c.bed.VIP, b.processes...); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	return b
}

// TestRouteAfterProxy: the same client's port, first through a proxy, whose kernel
// then has it in TIME_WAIT, and at once by the route that follows in its place.
func TestRouteAfterProxy(t *testing.T) {
	c := serving(t, 2)
	bed := c.bed
	for _, name := range []string{byHAProxy, byRoute, byNginx, byECMP, byHAProxy, byRoute} {
		b := begun(t, c, name)
		request := traffic.Request{From: netip.AddrPortFrom(bed.ClientAddrs[1], farmrun.FirstPort)}
		client := traffic.Client{To: netip.AddrPortFrom(bed.VIP, testbed.Port), Enter: bed.Client.Enter}
		run, err := client.Run(t.Context(), []traffic.Request{request})
		if err != nil || len(run.Rows) != 1 || run.Rows[0].Outcome != traffic.OK || run.Rows[0].SYNRetransmits > 0 {
			t.Errorf("%s: %+v, %v", name, run.Rows, err)
		}
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestForwarding: one client address's connections go to all servers or to the
// first alone, whichever stood there before, and nothing is left on the router.
func TestForwarding(t *testing.T) {
	c := serving(t, 4)
	c.For = 400 * time.Millisecond
	if err := set(c.bed.Client, "ipv6/auto_flowlabels", "0"); err != nil { // or they would spread without ports
		t.Fatal(err)
	}
	made := uint64(latencyRate * c.For.Seconds())
	for i, name := range []string{byECMP, byRoute, byECMP} {
		was, err := c.counts()
		if err != nil {
			t.Fatal(err)
		}
		b := begun(t, c, name)
		for k := range made {
			c.ends = append(c.ends, netip.AddrPortFrom(c.bed.ClientAddrs[1], uint16(farmrun.FirstPort+uint64(i)*made+k)))
		}
		if d, err := c.wait(t.Context()); err != nil || d.errors > 0 {
			t.Errorf("%s: %d errors, %v", name, d.errors, err)
		}
		is, err := c.counts()
		if err != nil {
			t.Fatal(err)
		}
		if err := is.minus(was).check(name, made); err != nil {
			t.Error(err)
		}
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		if routes := forwarded(t, c); len(routes) > 0 {
			t.Errorf("%s left %v", name, routes)
		}
	}
}

// forwarded are the router's routes for what comes from the balancer's place.
func forwarded(t *testing.T, c *contest) (routes []netlink.Route) {
	t.Helper()
	err := c.bed.Router.Do(func() (err error) {
		routes, err = netlink.RouteListFiltered(netlink.FAMILY_V6, &netlink.Route{Table: routeTable}, netlink.RT_FILTER_TABLE)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return routes
}
