package e2e

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"proffer/lab/testbed"
)

// oneSegment joins the links of nodes to one at the router, a bridge with the router's addresses, and gives the LB a route
// to each server by the server's own address on it, beside its default routes.
func oneSegment(t *testing.T, bed *testbed.Bed) {
	t.Helper()
	lb, router := bed.LBs[0], bed.Router
	in(t, router, "ip", "link", "add", "br0", "type", "bridge", "mcast_snooping", "0")
	for _, n := range append([]*testbed.Node{lb}, bed.Servers...) {
		in(t, router, "ip", "link", "set", "dev", n.Link, "master", "br0")
	}
	in(t, router, "ip", "link", "set", "br0", "up")
	for _, n := range append([]*testbed.Node{lb}, bed.Servers...) {
		for family, own := range map[string]netip.Addr{"-6": n.Addr, "-4": n.Addr4} {
			bits, flags := "64", []string{"nodad"}
			if own.Is4() {
				bits, flags = "24", nil
			}
			gateway := own.Prev().String() // the router's
			routes := in(t, router, "ip", family, "route", "show", "dev", n.Link, "via", own.String())
			in(t, router, "ip", "addr", "del", gateway+"/"+bits, "dev", n.Link)
			in(t, router, "ip", append([]string{"addr", "add", gateway + "/" + bits, "dev", "br0"}, flags...)...)
			for _, r := range strings.Split(strings.TrimSpace(routes), "\n") {
				if dst, _, _ := strings.Cut(r, " "); dst != "" {
					in(t, router, "ip", family, "route", "replace", dst, "via", own.String(), "dev", "br0")
				}
			}
		}
	}
	for _, s := range bed.Servers {
		in(t, lb, "ip", "addr", "add", s.Addr.Next().String()+"/64", "dev", "eth0", "nodad") // it is on the server's link, too
		in(t, lb, "ip", "-6", "route", "replace", s.Locator.String(), "via", s.Addr.String(), "dev", "eth0")
	}
}

// TestLinkFlaps: servers are gateways of their own on one segment with the LB, which has a default route beside. Its
// link goes down and comes back: no packet lacks a next hop, and every request is answered.
func TestLinkFlaps(t *testing.T) {
	bed := up(t, testbed.Config{Servers: 3})
	serve(t, bed)
	farm := start(t, bed, settings(t, "hunt:static:4"))
	lb := bed.LBs[0]
	oneSegment(t, bed)
	eventually(t, "the servers are their own next hops", func() bool {
		for _, s := range bed.Servers {
			if n := in(t, lb, "ip", "-6", "neigh", "show", s.Addr.String(), "dev", "eth0"); !strings.Contains(n, "managed") {
				return false
			}
		}
		return len(status(t, farm, lb).NoNextHop) == 0
	})
	before := counter(t, farm, "drop_no_next_hop", lb)
	for flap := range 3 {
		in(t, bed.Router, "ip", "link", "set", lb.Link, "down")
		time.Sleep(100 * time.Millisecond)
		in(t, bed.Router, "ip", "link", "set", lb.Link, "up")
		eventually(t, fmt.Sprintf("flap %d: the LB's link is up", flap), func() bool {
			return strings.Contains(in(t, lb, "ip", "link", "show", "eth0"), "LOWER_UP")
		})
		for i := range 20 {
			if _, _, err := try(t, bed.Client, "curl", "-sS", "-o", "/dev/null", "-g", "--max-time", "20", url); err != nil {
				t.Errorf("flap %d: request %d: %v", flap, i, err)
			}
		}
	}
	if n := counter(t, farm, "drop_no_next_hop", lb) - before; n > 0 {
		t.Errorf("%d packets had no next hop: %v", n, status(t, farm, lb).NoNextHop)
	}
}
