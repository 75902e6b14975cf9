package nexthop

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proffer/topo"
)

var quiet = slog.New(slog.DiscardHandler)

// lines is a log.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// rewatch replaces the host's watcher by one with a buffer of that size and a log.
func (h *host) rewatch(buffer int) *lines {
	h.t.Helper()
	h.w.Close()
	log := &lines{}
	h.do(func() (err error) {
		h.w, err = watch("eth0", netip.Prefix{}, slog.New(slog.NewTextHandler(log, nil)), buffer)
		return err
	})
	h.read()
	return log
}

// burst makes n routes to prefixes of 2001:db8:100::/40, by one router and another in turns.
func (h *host) burst(n int, gateways ...netip.Addr) func() error {
	h.t.Helper()
	eth0 := h.index("eth0")
	return func() error {
		for i := range n {
			r := &netlink.Route{LinkIndex: eth0, Dst: network(h.t, burstPrefix(i).String()), Gw: gateways[i%len(gateways)].AsSlice()}
			if err := netlink.RouteAdd(r); err != nil {
				return err
			}
		}
		return nil
	}
}

func burstPrefix(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 1, byte(i >> 16), byte(i >> 8), byte(i)}), 64)
}

// newMAC gives the router another address.
func (h *host) newMAC(last byte) (want topo.MAC, change func() error) {
	want = topo.MAC{2, 0, 0, 0, 0x78, last}
	port := h.router.link("port0")
	return want, func() error {
		h.router.do(func() error { return netlink.LinkSetHardwareAddr(port, want[:]) })
		return nil
	}
}

// noticesMAC demands that a new address of the gateway is signalled.
func (h *host) noticesMAC(last byte) {
	h.t.Helper()
	want, change := h.newMAC(last)
	h.changed("the gateway's new address is known", change, func(hops topo.NextHops, _ int) bool {
		mac, ok := hops.Lookup(far)
		return ok && mac == want
	})
}

// TestBurst: a burst of routes overflows the subscription; the routes are there and a
// gateway's new address is noticed afterwards.
func TestBurst(t *testing.T) {
	const routes = 2000
	h := newHost(t)
	h.resolved(near)
	log := h.rewatch(1) // the kernel's least: 2304 bytes
	h.changed("the last route is there", h.burst(routes, gateway, near), func(hops topo.NextHops, _ int) bool {
		return hops[burstPrefix(routes-1)] == h.mac()
	})
	if !strings.Contains(log.String(), "changes of routes or neighbours were lost") {
		t.Errorf("a buffer of 2304 bytes held %d routes: %q", routes, log)
	}
	h.noticesMAC(1)
}

// TestLostSubscription: the next reading subscribes again, whatever the error was.
func TestLostSubscription(t *testing.T) {
	h := newHost(t)
	h.resolved()
	for i := range 3 {
		h.changed("the loss is a change", func() error {
			h.w.socket.Close()
			return nil
		}, func(topo.NextHops, int) bool { return true })
		h.noticesMAC(byte(i))
	}
}

// TestRefreshReadsAgain: a change that no message reported is met by the timer.
func TestRefreshReadsAgain(t *testing.T) {
	h := newHost(t)
	h.resolved(near)
	if err := unix.SetsockoptInt(h.w.socket.GetFd(), unix.SOL_NETLINK, unix.NETLINK_DROP_MEMBERSHIP, unix.RTNLGRP_IPV6_ROUTE); err != nil {
		t.Fatal(err)
	}
	h.do(h.burst(2, gateway, near))
	if hops, _ := h.read(); hops[burstPrefix(1)] == h.mac() {
		t.Fatal("a message reported the change")
	}
	h.do(func() error { return h.w.Refresh(nil) })
	if hops, _ := h.read(); hops[burstPrefix(1)] != h.mac() {
		t.Errorf("after a refresh: %v", hops)
	}
}

// TestManyRoutes: 20,500 routes by two routers, and 20,500 more by one.
func TestManyRoutes(t *testing.T) {
	const routes = 41_000
	h := newHost(t)
	h.do(h.burst(routes, gateway, near))
	h.resolved(near)
	hops, waiting := h.read()
	if want := routes/2 + 20; waiting != 0 || len(hops) > want || len(hops) < routes/2 {
		t.Errorf("%d next hops for %d routes, half of them as the default route; %d waiting", len(hops), routes, waiting)
	}
	for _, i := range []int{0, 1, routes - 2, routes - 1} {
		if mac, ok := hops.Lookup(burstPrefix(i).Addr().Next()); !ok || mac != h.mac() {
			t.Errorf("route %d goes to %v, %v", i, mac, ok)
		}
	}
	h.noticesMAC(7)
}

// TestUnreachable: no packet goes by the default route where the kernel calls an address
// unreachable, nor to a neighbour that does not answer any more.
func TestUnreachable(t *testing.T) {
	h := newDual(t)
	h.resolved()
	for i, kind := range []int{unix.RTN_UNREACHABLE, unix.RTN_BLACKHOLE, unix.RTN_PROHIBIT, unix.RTN_THROW} {
		for _, dst := range []string{fmt.Sprintf("2001:db8:%d::/48", 60+i), fmt.Sprintf("203.0.%d.0/24", 113+i)} {
			prefix := netip.MustParsePrefix(dst)
			r := netlink.Route{Dst: network(t, dst), Type: kind}
			h.changed("a dead route is noticed", h.add(r), func(hops topo.NextHops, waiting int) bool {
				_, ok := hops.Lookup(prefix.Addr().Next())
				return !ok && waiting == 0
			})
			var err error
			h.do(func() error { err = h.w.Resolve(prefix.Addr().Next()); return nil })
			if kind != unix.RTN_THROW && (err == nil || !strings.Contains(err.Error(), "no route to "+prefix.Addr().Next().String())) {
				t.Errorf("type %d: resolve %s: %v", kind, dst, err)
			}
			h.changed("and its end", func() error { return netlink.RouteDel(&r) }, func(hops topo.NextHops, _ int) bool { return h.at(hops, prefix.Addr().Next()) })
		}
	}
}

// TestFailedNeighbour: a neighbour that the kernel has given up is no next hop.
func TestFailedNeighbour(t *testing.T) {
	h := newDual(t)
	h.resolved()
	eth0 := h.index("eth0")
	for _, gw := range []struct{ at, far netip.Addr }{{gateway, far}, {gateway4, far4}} {
		failed := &netlink.Neigh{LinkIndex: eth0, Family: familyOf(gw.at), IP: gw.at.AsSlice(), State: netlink.NUD_FAILED}
		h.changed("the gateway has failed", func() error { return netlink.NeighSet(failed) }, func(hops topo.NextHops, waiting int) bool {
			_, ok := hops.Lookup(gw.far)
			return !ok && waiting > 0
		})
	}
}
