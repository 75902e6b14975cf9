package nexthop

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proffer/topo"
)

var (
	gateway4 = netip.MustParseAddr("192.0.2.1")
	far4     = netip.MustParseAddr("198.51.100.7")
	near4    = netip.MustParseAddr("192.0.2.3")
	silent4  = netip.MustParseAddr("192.0.2.222")
	default4 = netip.MustParsePrefix("0.0.0.0/0")
)

// newDual is a host that has IPv4 as well.
func newDual(t *testing.T) *host {
	t.Helper()
	h := newHost(t)
	h.address("eth0", "192.0.2.2/24")
	h.router.address("port0", gateway4.String()+"/24", near4.String()+"/24")
	h.do(h.route("0.0.0.0/0", gateway4.String(), "eth0"))
	return h
}

// add makes any route.
func (h *host) add(r netlink.Route) func() error {
	return func() error { return netlink.RouteAdd(&r) }
}

func network(t *testing.T, cidr string) *net.IPNet {
	t.Helper()
	_, n, err := net.ParseCIDR(cidr)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (h *host) index(link string) int { return h.link(link).Attrs().Index }

// at reports whether addr has the MAC of the router.
func (h *host) at(hops topo.NextHops, addr netip.Addr) bool {
	mac, ok := hops.Lookup(addr)
	return ok && mac == h.mac()
}

func TestBothGatewaysAreResolved(t *testing.T) {
	h := newDual(t)
	hops, waiting := h.read()
	if _, ok := hops.Lookup(far4); ok || waiting != 2 {
		t.Fatalf("before anyone asked: %d waiting, %v", waiting, hops)
	}
	h.resolved()
	hops, _ = h.read()
	if !h.at(hops, far4) || !h.at(hops, far) || hops[default4] != h.mac() {
		t.Fatalf("the default routes go to %v", hops)
	}
	for prefix := range hops {
		if prefix.Addr().Is4In6() || !prefix.IsValid() {
			t.Errorf("%v is no prefix of IPv4 or IPv6", prefix)
		}
	}
}

func TestIPv4TargetsAreResolved(t *testing.T) {
	h := newDual(t)
	h.changed("a far target has its gateway's address", func() error { return h.w.Resolve(far4) }, func(hops topo.NextHops, _ int) bool {
		return h.at(hops, far4)
	})
	hops, _ := h.read()
	if _, ok := hops.Lookup(near4); ok {
		t.Fatalf("known before anyone asked: %v; a packet must not go to the gateway", hops)
	}
	if mac, marked := hops[netip.MustParsePrefix("192.0.2.0/24")]; !marked || mac != (topo.MAC{}) {
		t.Fatalf("the link's own prefix is not marked: %v", hops)
	}
	mapped := netip.AddrFrom16(near4.As16())
	h.changed("the neighbour is known", func() error { return h.w.Refresh([]netip.Addr{mapped, far}) }, func(hops topo.NextHops, _ int) bool {
		return h.at(hops, near4) && hops[netip.PrefixFrom(near4, 32)] == h.mac()
	})
}

func TestSilentIPv4NeighbourStaysUnknown(t *testing.T) {
	h := newDual(t)
	h.resolved(silent4)
	hops, _ := h.read()
	if mac, ok := hops.Lookup(silent4); ok {
		t.Fatalf("%s, which does not exist, is at %v", silent4, mac)
	}
	h.changed("a route by a silent gateway waits", h.route("203.0.113.0/24", silent4.String(), "eth0"), func(hops topo.NextHops, waiting int) bool {
		_, ok := hops.Lookup(netip.MustParseAddr("203.0.113.1"))
		return waiting == 1 && !ok
	})
}

func TestIPv4NeighbourChangesItsMAC(t *testing.T) {
	h := newDual(t)
	h.resolved()
	want := topo.MAC{2, 0, 0, 0, 0x77, 4}
	port := h.router.link("port0")
	h.changed("the new address is known", func() error {
		h.router.do(func() error { return netlink.LinkSetHardwareAddr(port, want[:]) })
		return nil
	}, func(hops topo.NextHops, _ int) bool {
		mac, ok := hops.Lookup(far4)
		return ok && mac == want
	})
}

// TestIPv4RoutesComeAndGo on a link with constant neighbours, so that only
// routes can be signalled.
func TestIPv4RoutesComeAndGo(t *testing.T) {
	h := newDual(t)
	known := netlink.Neigh{LinkIndex: h.index("eth0"), Family: unix.AF_INET, State: netlink.NUD_PERMANENT, IP: gateway4.AsSlice(), HardwareAddr: h.router.link("port0").Attrs().HardwareAddr}
	h.changed("the gateway is known", func() error { return netlink.NeighSet(&known) }, func(hops topo.NextHops, _ int) bool { return h.at(hops, far4) })
	dst := netip.MustParsePrefix("203.0.113.0/24")
	other := known
	other.IP = near4.AsSlice()
	h.do(func() error { return netlink.NeighSet(&other) })
	h.changed("the new route is there", h.route(dst.String(), near4.String(), "eth0"), func(hops topo.NextHops, _ int) bool { return hops[dst] == h.mac() })
	r := netlink.Route{LinkIndex: h.index("eth0"), Dst: network(t, dst.String())}
	h.changed("the route is gone", func() error { return netlink.RouteDel(&r) },
		func(hops topo.NextHops, _ int) bool { _, there := hops[dst]; return !there })
	on := netip.MustParsePrefix("203.0.113.128/25")
	h.changed("a prefix is on the link", h.add(netlink.Route{LinkIndex: h.index("eth0"), Dst: network(t, on.String()), Scope: netlink.SCOPE_LINK}),
		func(hops topo.NextHops, _ int) bool { mac, there := hops[on]; return there && mac == topo.MAC{} })
}

// TestFirstHopOnOurLink: of a route by several, on two links.
func TestFirstHopOnOurLink(t *testing.T) {
	h := newDual(t)
	elsewhere := newSpace(t)
	h.join(elsewhere, "eth1", "port1")
	h.address("eth1", "198.18.0.2/24", "2001:db8:2::2/64")
	h.resolved(near, near4)
	for _, c := range []struct{ dst, other, first, second string }{
		{"203.0.113.0/24", "198.18.0.1", near4.String(), silent4.String()},
		{"2001:db8:99::/48", "2001:db8:2::1", near.String(), silent.String()},
	} {
		dst := netip.MustParsePrefix(c.dst)
		eth0, eth1 := h.index("eth0"), h.index("eth1")
		h.changed("the first hop counts", h.add(netlink.Route{Dst: network(t, c.dst), MultiPath: []*netlink.NexthopInfo{
			{LinkIndex: eth1, Gw: net.ParseIP(c.other)}, {LinkIndex: eth0, Gw: net.ParseIP(c.first)}, {LinkIndex: eth0, Gw: net.ParseIP(c.second)},
		}}), func(hops topo.NextHops, waiting int) bool { return hops[dst] == h.mac() && waiting == 0 })
	}
	var err error
	h.do(func() error {
		err = h.w.Resolve(netip.MustParseAddr("198.18.0.7"))
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "another link than eth0") {
		t.Errorf("resolve by another link: %v", err)
	}
	hops, _ := h.read()
	if _, there := hops[netip.MustParsePrefix("198.18.0.0/24")]; there {
		t.Errorf("a route of eth1 is among the next hops of eth0: %v", hops)
	}
}

// TestLowestMetricWins: whatever the order that the routes were made in.
func TestLowestMetricWins(t *testing.T) {
	h := newDual(t)
	h.resolved()
	eth0 := h.index("eth0")
	for _, c := range []struct {
		dst, good, bad string
		metrics        [2]int
	}{
		{"203.0.113.0/24", gateway4.String(), silent4.String(), [2]int{10, 20}},
		{"203.0.114.0/24", gateway4.String(), silent4.String(), [2]int{20, 10}},
		{"2001:db8:98::/48", gateway.String(), silent.String(), [2]int{10, 20}},
		{"2001:db8:99::/48", gateway.String(), silent.String(), [2]int{20, 10}},
	} {
		dst, good := netip.MustParsePrefix(c.dst), c.metrics[0] < c.metrics[1]
		via := func(gw string, metric int) netlink.Route {
			return netlink.Route{LinkIndex: eth0, Dst: network(t, c.dst), Gw: net.ParseIP(gw), Priority: metric}
		}
		h.do(h.add(via(c.good, c.metrics[0])))
		h.changed("the better route counts", h.add(via(c.bad, c.metrics[1])), func(hops topo.NextHops, _ int) bool {
			return h.at(hops, dst.Addr().Next()) == good
		})
	}
}

// TestRouteOfOneTypeOfService counts for no other packets.
func TestRouteOfOneTypeOfService(t *testing.T) {
	h := newDual(t)
	h.resolved()
	h.do(h.add(netlink.Route{LinkIndex: h.index("eth0"), Dst: network(t, "203.0.113.0/24"), Gw: net.ParseIP(silent4.String()), Tos: 0x10}))
	hops, waiting := h.read()
	if !h.at(hops, netip.MustParseAddr("203.0.113.1")) || waiting != 0 {
		t.Errorf("%d waiting, %v", waiting, hops)
	}
}

// TestIPv4ByAnIPv6Neighbour: RFC 5549, as unnumbered BGP makes such routes.
func TestIPv4ByAnIPv6Neighbour(t *testing.T) {
	h := newHost(t)
	h.address("eth0", "192.0.2.2/32")
	via := netlink.Route{LinkIndex: h.index("eth0"), Dst: network(t, "0.0.0.0/0"), Via: &netlink.Via{AddrFamily: unix.AF_INET6, Addr: net.ParseIP(near.String())}}
	h.do(h.add(via))
	if hops, waiting := h.read(); waiting != 2 {
		t.Fatalf("before anyone asked: %d waiting, %v", waiting, hops)
	}
	h.changed("the target's gateway is known", func() error { return h.w.Resolve(far4) }, func(hops topo.NextHops, _ int) bool {
		return h.at(hops, far4) && hops[default4] == h.mac()
	})
}

// TestIPv4ByAnIPv6Object: the same by a nexthop object, whose number is all that the route's message has (RFC 8950).
func TestIPv4ByAnIPv6Object(t *testing.T) {
	h := newDual(t)
	h.known()
	h.do(h.compatible("0"))
	h.do(h.ip("-6 nexthop add id 1 via " + near.String() + " dev eth0"))
	h.do(h.ip("-6 nexthop add id 2 via " + silent.String() + " dev eth0"))
	dst := netip.MustParsePrefix("203.0.113.0/24")
	h.changed("by the object", h.ip("route add "+dst.String()+" nhid 1"), func(hops topo.NextHops, _ int) bool { return hops[dst] == h.mac() })
	h.changed("by another that does not answer", h.ip("route replace "+dst.String()+" nhid 2"), func(hops topo.NextHops, waiting int) bool {
		return !h.at(hops, dst.Addr().Next()) && waiting > 0
	})
}

// TestOnlinkGateway: a gateway that no prefix of the link has is at the link all the same, as the route says.
func TestOnlinkGateway(t *testing.T) {
	h := newDual(t)
	h.known()
	for _, c := range []struct{ dst, by string }{{"203.0.113.0/24", "198.18.0.9"}, {"2001:db8:99::/48", "2001:db8:18::9"}} {
		dst := netip.MustParsePrefix(c.dst)
		h.router.address("port0", c.by+map[bool]string{true: "/32", false: "/128"}[dst.Addr().Is4()])
		h.changed("the route waits for its gateway", h.ip("route add "+c.dst+" via "+c.by+" dev eth0 onlink"), func(hops topo.NextHops, _ int) bool {
			_, read := hops[dst]
			return read && !h.at(hops, dst.Addr().Next())
		})
		h.changed("which answers", func() error { return h.w.Resolve(dst.Addr().Next()) }, func(hops topo.NextHops, _ int) bool { return h.at(hops, dst.Addr().Next()) })
	}
}
