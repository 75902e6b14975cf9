package nexthop

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"proffer/topo"
)

// patience bounds a wait for a change. A kernel signals within milliseconds, and after
// at most 3 s that an address does not answer.
const patience = time.Minute

// exhausted is set once a wait has run out of patience: with a watcher that signals
// nothing all tests together take no longer than one.
var exhausted atomic.Bool

var (
	gateway = netip.MustParseAddr("2001:db8:1::1")
	far     = netip.MustParseAddr("5f00:0:2:1::1")
	near    = netip.MustParseAddr("2001:db8:1::3")
	silent  = netip.MustParseAddr("2001:db8:1::dead")
)

// host is a namespace with eth0, a default route by the router at its other
// end, and a watcher of that link.
type host struct {
	*space
	router *space
	w      *Watcher
}

func newHost(t *testing.T) *host {
	t.Helper()
	a, b := pair(t, "eth0", "port0")
	a.address("eth0", "2001:db8:1::2/64")
	b.address("port0", gateway.String()+"/64", near.String()+"/64")
	h := &host{space: a, router: b}
	a.do(h.route("::/0", gateway.String(), "eth0"))
	a.do(func() (err error) {
		h.w, err = Watch("eth0", netip.Prefix{}, quiet)
		return err
	})
	t.Cleanup(h.w.Close)
	return h
}

// route returns a function that makes a route.
func (h *host) route(dst, via, dev string) func() error {
	h.t.Helper()
	link := h.link(dev)
	return func() error {
		_, prefix, err := net.ParseCIDR(dst)
		if err != nil {
			return err
		}
		return netlink.RouteReplace(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: prefix, Gw: net.ParseIP(via)})
	}
}

// read reads without the pause after a reading.
func (h *host) read() (hops topo.NextHops, waiting int) {
	h.t.Helper()
	h.w.mu.Lock()
	h.w.notBefore = time.Time{}
	h.w.mu.Unlock()
	h.do(func() (err error) {
		var routes topo.Waiting
		hops, routes, err = h.w.Read()
		waiting = len(routes)
		return err
	})
	return hops, waiting
}

// changed does something and then reads after each change that is signalled, and
// only then, until the wanted condition holds.
func (h *host) changed(wanted string, act func() error, holds func(hops topo.NextHops, waiting int) bool) {
	h.t.Helper()
	select {
	case <-h.w.Changes(): // of before
	default:
	}
	h.do(act)
	left := patience
	if exhausted.Load() {
		left = 0
	}
	for end := time.After(left); ; {
		select {
		case <-h.w.Changes():
		case <-end:
			exhausted.Store(true)
			hops, waiting := h.read()
			h.t.Fatalf("no change was signalled after which %s; %d waiting, %v", wanted, waiting, hops)
		}
		if hops, waiting := h.read(); holds(hops, waiting) {
			return
		}
	}
}

// resolved asks for the gateways, and any other address given.
func (h *host) resolved(targets ...netip.Addr) {
	h.t.Helper()
	h.changed("the gateway is resolved", func() error { return h.w.Refresh(targets) },
		func(_ topo.NextHops, waiting int) bool { return waiting == 0 })
}

func (h *host) mac() topo.MAC { return topo.MAC(h.router.link("port0").Attrs().HardwareAddr) }

func TestGatewayIsResolved(t *testing.T) {
	h := newHost(t)
	hops, waiting := h.read()
	if mac, ok := hops.Lookup(far); ok || waiting != 1 {
		t.Fatalf("before anyone asked: %v, %v, %d waiting", mac, ok, waiting)
	}
	h.do(func() error {
		hops, routes, err := h.w.Read()
		if by := hops.By(far, routes); !slices.Equal(by, []netip.Addr{gateway}) {
			t.Errorf("it waits for %v, want the gateway", by)
		}
		return err
	})
	h.resolved()
	hops, _ = h.read()
	if mac, ok := hops.Lookup(far); !ok || mac != h.mac() {
		t.Fatalf("the default route goes to %v, %v; want %v", mac, ok, h.mac())
	}
}

func TestTargetIsResolvedThroughItsGateway(t *testing.T) {
	h := newHost(t)
	h.changed("a far target has its gateway's address", func() error { return h.w.Resolve(far) }, func(hops topo.NextHops, _ int) bool {
		mac, ok := hops.Lookup(far)
		return ok && mac == h.mac()
	})
}

func TestNeighbourOnTheLink(t *testing.T) {
	h := newHost(t)
	hops, _ := h.read()
	if mac, ok := hops.Lookup(near); ok {
		t.Fatalf("known before anyone asked: %v; a packet must not go to the gateway", mac)
	}
	if _, marked := hops[netip.MustParsePrefix("2001:db8:1::/64")]; !marked {
		t.Fatalf("the link's own prefix is not marked: %v", hops)
	}
	h.changed("the neighbour is known", func() error { return h.w.Resolve(near) }, func(hops topo.NextHops, _ int) bool {
		mac, ok := hops.Lookup(near)
		return ok && mac == h.mac() && hops[netip.PrefixFrom(near, 128)] == mac
	})
}

func TestSilentNeighbourStaysUnknown(t *testing.T) {
	h := newHost(t)
	h.resolved(silent)
	hops, _ := h.read()
	if mac, ok := hops.Lookup(silent); ok {
		t.Fatalf("%s, which does not exist, is at %v", silent, mac)
	}
	h.changed("a route by a silent gateway waits", h.route("2001:db8:77::/48", silent.String(), "eth0"), func(hops topo.NextHops, waiting int) bool {
		_, ok := hops.Lookup(netip.MustParseAddr("2001:db8:77::1"))
		return waiting == 1 && !ok
	})
}

// TestNeighbourChangesItsMAC: as when a router is replaced.
func TestNeighbourChangesItsMAC(t *testing.T) {
	h := newHost(t)
	h.changed("both are known", func() error { return h.w.Refresh([]netip.Addr{near}) }, func(hops topo.NextHops, waiting int) bool {
		_, ok := hops.Lookup(near)
		return ok && waiting == 0
	})
	want := topo.MAC{2, 0, 0, 0, 0x77, 1}
	port := h.router.link("port0")
	replace := func() error {
		h.router.do(func() error { return netlink.LinkSetHardwareAddr(port, want[:]) })
		return nil
	}
	h.changed("the new address is known", replace, func(hops topo.NextHops, _ int) bool {
		mac, ok := hops.Lookup(far)
		on, ok2 := hops.Lookup(near)
		return ok && ok2 && mac == want && on == want
	})
}

func TestRoutesComeAndGo(t *testing.T) {
	h := newHost(t)
	h.resolved(near)
	dst := netip.MustParsePrefix("2001:db8:99::/48")
	h.changed("the new route is there", h.route(dst.String(), near.String(), "eth0"), func(hops topo.NextHops, _ int) bool { return hops[dst] == h.mac() })
	eth0 := h.link("eth0")
	remove := func() error {
		_, prefix, _ := net.ParseCIDR(dst.String())
		return netlink.RouteDel(&netlink.Route{LinkIndex: eth0.Attrs().Index, Dst: prefix})
	}
	h.changed("the route is gone", remove, func(hops topo.NextHops, _ int) bool { _, there := hops[dst]; return !there })
}

// TestOtherLinksAreNotOurs: a next hop there is of no use to our programs.
func TestOtherLinksAreNotOurs(t *testing.T) {
	h := newHost(t)
	elsewhere := newSpace(t)
	h.join(elsewhere, "eth1", "port1")
	h.address("eth1", "2001:db8:2::2/64")
	elsewhere.address("port1", "2001:db8:2::1/64")
	h.do(h.route("2001:db8:88::/48", "2001:db8:2::1", "eth1"))
	there := netip.MustParseAddr("2001:db8:88::1")
	var err error
	h.do(func() error {
		err = h.w.Resolve(there)
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "another link than eth0") {
		t.Errorf("resolve by another link: %v", err)
	}
	h.resolved()
	hops, _ := h.read()
	for prefix := range hops {
		if prefix.Contains(there) && prefix.Bits() > 0 {
			t.Errorf("a route of eth1 is among the next hops of eth0: %v", prefix)
		}
	}
}

func TestWatchOfNoLink(t *testing.T) {
	if w, err := Watch("nosuch0", netip.Prefix{}, quiet); err == nil || !strings.Contains(err.Error(), `link "nosuch0"`) {
		t.Fatalf("%v, %v", w, err)
	}
}

// TestConfirmedNeighbourIsNoChange: the kernel doubts and confirms each neighbour again and again,
// and a reading with a large table costs many milliseconds.
func TestConfirmedNeighbourIsNoChange(t *testing.T) {
	h := newHost(t)
	h.changed("the neighbour is known", func() error { return h.w.Resolve(near) }, func(hops topo.NextHops, _ int) bool { return hops[alone(near)] == h.mac() })
	eth0, mac := h.index("eth0"), h.mac()
	signals := 0
	for i := range 10 {
		state := []int{netlink.NUD_REACHABLE, netlink.NUD_STALE}[i%2]
		h.do(func() error {
			return netlink.NeighSet(&netlink.Neigh{LinkIndex: eth0, Family: familyOf(near), IP: near.AsSlice(), HardwareAddr: mac[:], State: state})
		})
		select {
		case <-h.w.Changes():
			signals++
		case <-time.After(20 * time.Millisecond):
		}
		h.read()
	}
	if signals > 5 { // some may be late, or of other neighbours
		t.Errorf("%d of 10 confirmations were changes", signals)
	}
}
