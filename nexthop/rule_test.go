package nexthop

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proffer/topo"
)

// batch gives commands to ip; those that the kernel refuses are left out.
func (h *host) batch(family string, lines []string) {
	h.t.Helper()
	h.do(func() error {
		command := exec.Command("ip", strings.Fields(family+" -force -batch -")...)
		command.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
		_ = command.Run()
		return nil
	})
}

// compatible sets net.ipv4.nexthop_compat_mode: whether messages of routes repeat their nexthop objects.
func (h *host) compatible(is string) func() error {
	return func() error { return os.WriteFile("/proc/sys/net/ipv4/nexthop_compat_mode", []byte(is), 0) }
}

// TestAsTheKernel: random tables, rules and nexthop objects, in which the kernel is asked for each address. It asks
// for the route alone, so neighbours that do not answer change nothing.
func TestAsTheKernel(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	met := map[string]int{}
	for round := range 60 {
		h := newDual(t)
		d := drawn{rng, "-4", func(a, b byte, bits int) netip.Prefix {
			return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, a, b}), 8+bits).Masked()
		}, []netip.Addr{gateway4, near4, silent4}, "192.0.2.2", "192.0.2.99", "198.51.100.80"}
		if round%2 == 1 {
			d = drawn{rng, "-6", func(a, b byte, bits int) netip.Prefix {
				return netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, a, b}), 32+bits).Masked()
			}, []netip.Addr{gateway, near, silent}, "2001:db8:1::2", "2001:db8:1::99", "2001:db8:f::1"}
		}
		macs := map[string]topo.MAC{}
		for i, g := range d.by { // permanent, and each at an address of its own
			macs[g.String()] = topo.MAC{2, 0, 0, 0, 0x66, byte(i)}
			mac := macs[g.String()]
			n := netlink.Neigh{LinkIndex: h.index("eth0"), Family: familyOf(g), State: netlink.NUD_PERMANENT, IP: g.AsSlice(), HardwareAddr: mac[:]}
			h.do(func() error { return netlink.NeighSet(&n) })
		}
		h.batch(d.family, append([]string{"link set lo up", "link set eth0 group 3"}, d.objects()...))
		h.do(forwards)
		h.batch("", groups)
		h.batch(d.family, d.routes(30))
		h.batch(d.family, d.rules(8))
		h.do(h.compatible("0"))
		h.w.aim(d.targets())
		hops, _ := h.read()
		if n := len(h.w.objects[6].members) + len(h.w.objects[7].members) + len(h.w.objects[8].members); n != 6 || len(h.w.objects) != 8 {
			t.Fatalf("%d nexthop objects, %d members of groups", len(h.w.objects), n)
		}
		h.do(h.compatible("1"))
		for a := range 16 {
			for b := range 16 {
				addr := d.space(byte(a)<<4, byte(b)<<4, 16).Addr().Next()
				got, reached := hops.Lookup(addr)
				passed := !d.isTarget(a, b)
				want, kind := h.asked(addr, macs, d.packet(passed))
				met[kind]++
				if passed {
					met["passed on"]++
				}
				if h.w.parted {
					met["parted"]++
				}
				if reached != (kind == "gateway") || reached && !slices.Contains(want, got) {
					t.Fatalf("round %d: %s (passed on: %v) to %v, %v; by the kernel %s, %v\n%s", round, addr, passed, got, reached, kind, want, h.shown(d.family))
				}
			}
		}
	}
	for _, kind := range []string{"gateway", "link", "none", "passed on", "parted"} {
		if met[kind] < 200 {
			t.Errorf("%d addresses of the kind %q: %v", met[kind], kind, met)
		}
	}
}

// forwards makes the kernel tell the way of packets that come by the link and leave by it.
func forwards() (err error) {
	for _, set := range []string{"ipv4/conf/all/forwarding=1", "ipv6/conf/all/forwarding=1", "ipv4/conf/all/rp_filter=0", "ipv4/conf/eth0/rp_filter=0", "ipv4/conf/all/send_redirects=0", "ipv4/conf/eth0/send_redirects=0"} {
		path, value, _ := strings.Cut(set, "=")
		err = errors.Join(err, os.WriteFile("/proc/sys/net/"+path, []byte(value), 0))
	}
	return err
}

// asked is the kernel's answer for an address: the link addresses of its gateways, in any order.
func (h *host) asked(addr netip.Addr, macs map[string]topo.MAC, packet netlink.RouteGetOptions) (of []topo.MAC, kind string) {
	h.t.Helper()
	kind = "none"
	h.do(func() error {
		routes, err := netlink.RouteGetWithOptions(addr.AsSlice(), &packet)
		if err != nil || len(routes) == 0 {
			return nil
		}
		if routes[0].Type != unix.RTN_UNICAST {
			return nil
		}
		by := []net.IP{routes[0].Gw}
		for _, n := range routes[0].MultiPath {
			by = append(by, n.Gw)
		}
		if kind = "link"; routes[0].Dst != nil && !routes[0].Dst.Contains(addr.AsSlice()) {
			// Routes by one nexthop object share what Linux keeps by CPU (rt6_get_pcpu_route), so it tells
			// another of them, and one gateway of a group's.
			by = nil
			for gw := range macs {
				by = append(by, net.ParseIP(gw))
			}
		}
		for _, gw := range by {
			if gw != nil {
				of, kind = append(of, macs[gw.String()]), "gateway"
			}
		}
		return nil
	})
	return of, kind
}

// shown is the set-up, for people.
func (h *host) shown(family string) (all string) {
	h.do(func() error {
		for _, list := range []string{"rule", "nexthop", "route show table all"} {
			out, err := exec.Command("ip", append([]string{family}, strings.Fields(list)...)...).CombinedOutput()
			if err != nil {
				return err
			}
			all += string(out)
		}
		return nil
	})
	return all
}

// ip runs ip in the host's namespace.
func (h *host) ip(args string) func() error {
	return func() error {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", args, err, out)
		}
		return nil
	}
}

// known makes a permanent neighbour of each gateway that is at the router.
func (h *host) known() {
	h.t.Helper()
	mac := h.mac()
	for _, g := range []netip.Addr{gateway, near, gateway4, near4} {
		n := netlink.Neigh{LinkIndex: h.index("eth0"), Family: familyOf(g), State: netlink.NUD_PERMANENT, IP: g.AsSlice(), HardwareAddr: mac[:]}
		h.do(func() error { return netlink.NeighSet(&n) })
	}
}

// TestNexthopObjects: a route by a nexthop object has its gateway, and changes with the object, where messages of
// routes have the object's number alone. Resolving goes the same way.
func TestNexthopObjects(t *testing.T) {
	for _, c := range []struct{ family, dst, good, bad string }{
		{"-6", "2001:db8:99::/48", near.String(), silent.String()}, {"-4", "203.0.113.0/24", near4.String(), silent4.String()},
	} {
		h := newDual(t)
		h.known()
		h.do(h.compatible("0"))
		addr := netip.MustParsePrefix(c.dst).Addr().Next()
		is := func(want bool) func(topo.NextHops, int) bool {
			return func(hops topo.NextHops, _ int) bool { return h.at(hops, addr) == want }
		}
		h.do(h.ip(c.family + " nexthop add id 1 via " + c.bad + " dev eth0"))
		h.do(h.ip(c.family + " nexthop add id 2 via " + c.good + " dev eth0"))
		h.changed("by an object that does not answer", h.ip(c.family+" route add "+c.dst+" nhid 1"), is(false))
		h.changed("the object has another gateway", h.ip(c.family+" nexthop replace id 1 via "+c.good+" dev eth0"), is(true))
		h.changed("and none that answers again", h.ip(c.family+" nexthop replace id 1 via "+c.bad+" dev eth0"), is(false))
		h.do(h.ip("nexthop add id 3 group 1/2"))
		h.changed("a group of which one answers", h.ip(c.family+" route replace "+c.dst+" nhid 3"), is(true))
		h.changed("the other alone", h.ip("nexthop replace id 3 group 1"), is(false))
		h.changed("without the object", h.ip("nexthop del id 1"), is(true)) // by the default route
		h.do(h.ip("link set lo up"))
		h.do(h.ip(c.family + " nexthop add id 4 blackhole"))
		h.changed("a blackhole", h.ip(c.family+" route add "+c.dst+" nhid 4"), is(false))
		h.changed("an object again", h.ip(c.family+" route replace "+c.dst+" nhid 2"), is(true))
		h.changed("its neighbour is forgotten", h.ip(c.family+" neigh del "+c.good+" dev eth0"), is(false))
		h.changed("resolved by the object", func() error { return h.w.Resolve(addr) }, is(true))
	}
}

// TestRulesAreFollowed: a table comes and goes with its rule, which is a change of its own.
func TestRulesAreFollowed(t *testing.T) {
	for _, c := range []struct{ family, dst, good, bad string }{
		{"-6", "2001:db8:99::/48", near.String(), silent.String()}, {"-4", "203.0.113.0/24", near4.String(), silent4.String()},
	} {
		h := newDual(t)
		h.known()
		addr := netip.MustParsePrefix(c.dst).Addr().Next()
		is := func(want bool) func(topo.NextHops, int) bool {
			return func(hops topo.NextHops, _ int) bool { return h.at(hops, addr) == want }
		}
		h.do(h.ip(c.family + " route add default via " + c.bad + " dev eth0 table 100"))
		h.changed("a table for a destination", h.ip(c.family+" rule add to "+c.dst+" lookup 100 pref 100"), is(false))
		h.changed("it has a longer route", h.ip(c.family+" route add "+c.dst+" via "+c.good+" dev eth0 table 100"), is(true))
		h.changed("no packet may leave", h.ip(c.family+" rule add to "+c.dst+" blackhole pref 90"), is(false))
		h.do(h.ip(c.family + " route del " + c.dst + " table 100"))
		h.changed("the rules are gone", func() error {
			return errors.Join(h.ip(c.family+" rule del pref 90")(), h.ip(c.family+" rule del pref 100")())
		}, is(true))
		h.do(h.ip(c.family + " route add " + c.dst + " via " + c.good + " dev eth0 table 101"))
		h.do(h.ip(c.family + " rule add lookup 101 pref 200"))
		h.changed("the main table is not asked", h.ip(c.family+" rule del pref 32766"), func(hops topo.NextHops, _ int) bool {
			return h.at(hops, addr) && !h.at(hops, map[string]netip.Addr{"-4": far4, "-6": far}[c.family])
		})
	}
}

// TestOddRulesAreNamed: once, and no packet follows them. Rules that are for none of our packets, or for all, are none.
func TestOddRulesAreNamed(t *testing.T) {
	h := newDual(t)
	log := h.rewatch(receiveBuffer)
	h.known()
	for _, clear := range []string{"fwmark 7 blackhole", "oif eth0 blackhole", "iif gone0 blackhole", "uidrange 5-9 blackhole", "not from 0.0.0.0/0 blackhole", "from 192.0.2.2 lookup main"} {
		h.do(h.ip("rule add pref 90 " + clear))
	}
	h.do(h.ip("rule add ipproto tcp dport 80 blackhole pref 100"))
	h.do(h.ip("rule add from 198.51.100.0/24 blackhole pref 110")) // of packets that it passes on, maybe
	h.changed("a rule for a class", h.ip("-6 rule add tos 0x10 blackhole pref 200"), func(hops topo.NextHops, _ int) bool {
		return h.at(hops, far) && h.at(hops, far4)
	})
	for range 2 {
		h.do(func() error { return h.w.Refresh(nil) })
	}
	if n := strings.Count(log.String(), `link=eth0 rules="100 (dport, ipproto), 110 (from), 200 (tos)"`); n != 1 {
		t.Errorf("the rules are named %d times: %s", n, log)
	}
}

// TestVRF: where the link is in a VRF the rule for VRFs leads to its table, and elsewhere nowhere. The kernel's own rule
// is read; a link in a VRF needs a kernel that has them.
func TestVRF(t *testing.T) {
	h := newDual(t)
	for _, family := range []string{"-4", "-6"} {
		h.do(h.ip(family + " rule add l3mdev pref 1000"))
	}
	for _, family := range families() {
		h.do(func() error {
			rules, err := rulesOf(family)
			for _, passed := range []bool{false, true} {
				without, odd := (&place{link: "eth0"}).ordered(rules, passed)
				with, oddToo := (&place{link: "eth0", vrfLink: "red", vrf: 77}).ordered(rules, passed)
				if len(odd)+len(oddToo) > 0 || len(with) != len(without)+1 || with[1].table != 77 || with[1].to.Bits() != 0 {
					t.Errorf("family %d: %+v in a VRF, %+v without; %v, %v", family, with, without, odd, oddToo)
				}
			}
			return err
		})
	}
}

// TestOwnRules: rules for a node's own packets lead to its targets, and at a node without targets to all.
func TestOwnRules(t *testing.T) {
	for _, c := range []struct{ family, from, dst, good, bad string }{
		{"-6", "2001:db8:1::2", "2001:db8:99::/48", near.String(), silent.String()}, {"-4", "192.0.2.2", "203.0.113.0/24", near4.String(), silent4.String()},
		{"-6", "lo", "2001:db8:99::/48", near.String(), silent.String()}, {"-4", "lo", "203.0.113.0/24", near4.String(), silent4.String()},
	} {
		h := newDual(t)
		h.known()
		which := "from " + c.from
		if c.from == "lo" {
			which = "iif lo"
		}
		dst := netip.MustParsePrefix(c.dst)
		target, other := dst.Addr().Next(), dst.Addr().Next().Next()
		h.do(h.ip(c.family + " route add " + c.dst + " via " + c.bad + " dev eth0"))
		h.do(h.ip(c.family + " route add " + c.dst + " via " + c.good + " dev eth0 table 100"))
		h.do(h.ip(c.family + " rule add pref 100 lookup 100 " + which))
		h.do(func() error { return h.w.Refresh(nil) })
		if hops, _ := h.read(); !h.at(hops, target) || !h.at(hops, other) {
			t.Errorf("%s: a node without targets does not go by the rule for its packets: %v", which, hops)
		}
		h.do(func() error { return h.w.Refresh([]netip.Addr{target}) })
		if hops, _ := h.read(); !h.at(hops, target) || h.at(hops, other) {
			t.Errorf("%s: %v, want the target alone by the rule", which, hops)
		}
	}
}

// TestPermanentNeighbourStays: to make the kernel use a neighbour takes its permanence away.
func TestPermanentNeighbourStays(t *testing.T) {
	h := newDual(t)
	h.known()
	h.do(func() error { return h.w.Refresh([]netip.Addr{near, near4, far, far4}) })
	for _, g := range []netip.Addr{gateway, near, gateway4, near4} {
		h.do(func() error {
			if h.w.find(g).state&netlink.NUD_PERMANENT == 0 {
				t.Errorf("%s is permanent no more", g)
			}
			return nil
		})
	}
}

// TestFailedGatewayBesideDefault: while a gateway has failed, Linux as a host goes by the default route; the gateway
// is asked for all the same.
func TestFailedGatewayBesideDefault(t *testing.T) {
	h := newDual(t)
	h.resolved()
	eth0 := h.index("eth0")
	for _, c := range []struct {
		dst string
		by  netip.Addr
	}{{"2001:db8:99::/48", near}, {"203.0.113.0/24", near4}} {
		addr := netip.MustParsePrefix(c.dst).Addr().Next()
		h.changed("the route is read", h.route(c.dst, c.by.String(), "eth0"), func(hops topo.NextHops, _ int) bool {
			_, read := hops[netip.MustParsePrefix(c.dst)]
			return read
		})
		failed := &netlink.Neigh{LinkIndex: eth0, Family: familyOf(c.by), IP: c.by.AsSlice(), State: netlink.NUD_FAILED}
		h.do(func() error { return netlink.NeighSet(failed) })
		h.changed("the gateway is asked for", func() error { return h.w.Resolve(addr) }, func(hops topo.NextHops, _ int) bool {
			return hops[netip.MustParsePrefix(c.dst)] == h.mac()
		})
	}
}
