package nexthop

import (
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"proffer/topo"
)

// TestLinkFlaps: servers that are gateways of their own beside a default route keep their next hops while the link is
// down, and until the kernel has resolved them again; a server that does not come back has none then.
func TestLinkFlaps(t *testing.T) {
	h := newDual(t)
	gone, gone4 := netip.MustParseAddr("2001:db8:1::4"), netip.MustParseAddr("192.0.2.4")
	h.router.address("port0", gone.String()+"/64", gone4.String()+"/24")
	routes := map[string]netip.Addr{"5f00:0:2:3::/64": near, "5f00:0:2:4::/64": gone, "203.0.113.0/24": near4, "198.18.0.0/24": gone4}
	var targets []netip.Addr
	for dst, by := range routes {
		h.do(h.route(dst, by.String(), "eth0"))
		targets = append(targets, netip.MustParsePrefix(dst).Addr().Next())
	}
	at := func(hops topo.NextHops) (n int) {
		for _, a := range targets {
			if mac, ok := hops.Lookup(a); ok && mac == h.mac() {
				n++
			}
		}
		return n
	}
	h.changed("all are known", func() error { return h.w.Refresh(targets) }, func(hops topo.NextHops, _ int) bool { return at(hops) == len(targets) })
	port := h.router.link("port0")
	set := func(change func(netlink.Link) error) {
		t.Helper()
		h.router.do(func() error { return change(port) })
	}
	state := func(addr netip.Addr) (state uint16) {
		h.do(func() error {
			state = h.w.find(addr).state
			return nil
		})
		return state
	}
	// until reads whenever a change is signalled; as long as it waits, each of the servers has a next hop.
	until := func(what string, least int, holds func() bool) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			select {
			case <-h.w.Changes():
			default:
				if holds() {
					return
				}
			}
			if hops, waiting := h.read(); at(hops) < least {
				t.Fatalf("before %s %d of %d servers have next hops; %d routes wait: %v", what, at(hops), len(targets), waiting, hops)
			}
			if time.Now().After(deadline) {
				t.Fatalf("in vain for 30 s: %s", what)
			}
		}
	}
	set(netlink.LinkSetDown)
	until("the kernel forgets", len(targets), func() bool { return state(near)&usable == 0 && state(near4)&usable == 0 })
	h.router.do(func() error { // its IPv6 addresses went with the link
		own, err := netlink.ParseAddr(gone4.String() + "/24")
		if err != nil {
			return err
		}
		return netlink.AddrDel(port, own)
	})
	h.w.mu.Lock()
	h.w.memory.since = h.w.memory.since.Add(-longFlap)
	h.w.mu.Unlock()
	if hops, _ := h.read(); at(hops) != 0 {
		t.Errorf("%d servers have next hops by a link that is down for long", at(hops))
	}
	set(netlink.LinkSetUp)
	until("the link is up", 0, func() bool {
		hops, _ := h.read()
		return at(hops) == len(targets)
	})
	h.router.address("port0", gateway.String()+"/64", near.String()+"/64")
	until("the kernel has resolved", len(targets), func() bool { return state(near)&usable != 0 && state(near4)&usable != 0 })
	until("two have failed", 2, func() bool {
		hops, _ := h.read()
		return at(hops) == 2
	})
}
