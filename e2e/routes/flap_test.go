package routes

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
)

// TestLinkFlaps: servers are gateways of their own on one segment with the LB, which has a default route beside. Its
// link goes down and comes back: no packet lacks a next hop, and every request is answered.
func TestLinkFlaps(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 3})
	kit.Serve(t, bed)
	farm := kit.Start(t, bed, kit.Settings(t, "hunt:static:4"))
	lb := bed.LBs[0]
	kit.OneSegment(t, bed)
	kit.Eventually(t, "the servers are their own next hops", func() bool {
		for _, s := range bed.Servers {
			if n := kit.In(t, lb, "ip", "-6", "neigh", "show", s.Addr.String(), "dev", "eth0"); !strings.Contains(n, "managed") {
				return false
			}
		}
		return len(kit.Status(t, farm, lb).NoNextHop) == 0
	})
	before := kit.Counter(t, farm, "drop_no_next_hop", lb)
	for flap := range 3 {
		kit.In(t, bed.Router, "ip", "link", "set", lb.Link, "down")
		time.Sleep(100 * time.Millisecond)
		kit.In(t, bed.Router, "ip", "link", "set", lb.Link, "up")
		kit.Eventually(t, fmt.Sprintf("flap %d: the LB's link is up", flap), func() bool {
			return strings.Contains(kit.In(t, lb, "ip", "link", "show", "eth0"), "LOWER_UP")
		})
		for i := range 20 {
			if _, _, err := kit.Try(t, bed.Client, "curl", "-sS", "-o", "/dev/null", "-g", "--max-time", "20", kit.URL); err != nil {
				t.Errorf("flap %d: request %d: %v", flap, i, err)
			}
		}
	}
	if n := kit.Counter(t, farm, "drop_no_next_hop", lb) - before; n > 0 {
		t.Errorf("%d packets had no next hop: %v", n, kit.Status(t, farm, lb).NoNextHop)
	}
}

// TestAgentsLinkFlaps: a server's link goes down and comes back; its agent signals to the LB by a gateway of the LB's own
// on one segment, beside a default route. No signal lacks a next hop, and every request is answered.
func TestAgentsLinkFlaps(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 1})
	kit.Serve(t, bed)
	farm := kit.Start(t, bed, kit.Settings(t, "hunt:static:4"))
	lb, server := bed.LBs[0], bed.Servers[0]
	kit.OneSegment(t, bed)
	kit.In(t, server, "ip", "addr", "add", lb.Addr.Next().String()+"/64", "dev", "eth0", "nodad")
	kit.In(t, server, "ip", "-6", "route", "replace", lb.Locator.String(), "via", lb.Addr.String(), "dev", "eth0")
	for range 5 {
		kit.In(t, bed.Client, "curl", "-sS", "-o", "/dev/null", "-g", "--max-time", "20", kit.URL)
	}
	kit.Eventually(t, "the LB is its own next hop", func() bool {
		return strings.Contains(kit.In(t, server, "ip", "-6", "neigh", "show", lb.Addr.String(), "dev", "eth0"), "managed")
	})
	before := kit.Counter(t, farm, "drop_no_next_hop", lb, server)
	for flap := range 3 {
		kit.In(t, bed.Router, "ip", "link", "set", server.Link, "down")
		for range 15 { // the kernel has forgotten the LB
			time.Sleep(100 * time.Millisecond)
			if lacks := kit.Status(t, farm, server).NoNextHop; len(lacks) > 0 {
				t.Fatalf("flap %d: the agent has no next hop to %v", flap, lacks)
			}
		}
		kit.In(t, bed.Router, "ip", "link", "set", server.Link, "up")
		kit.Eventually(t, fmt.Sprintf("flap %d: the server's link is up", flap), func() bool {
			return strings.Contains(kit.In(t, server, "ip", "link", "show", "eth0"), "LOWER_UP")
		})
		for i := range 20 {
			if _, _, err := kit.Try(t, bed.Client, "curl", "-sS", "-o", "/dev/null", "-g", "--max-time", "20", kit.URL); err != nil {
				t.Errorf("flap %d: request %d: %v", flap, i, err)
			}
		}
	}
	if n := kit.Counter(t, farm, "drop_no_next_hop", lb, server) - before; n > 0 {
		t.Errorf("%d packets had no next hop: %v", n, kit.Status(t, farm, server).NoNextHop)
	}
}
