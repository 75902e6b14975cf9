package nexthop

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proffer/topo"
)

// families are the address families of next hops.
func families() []int { return []int{unix.AF_INET6, unix.AF_INET} }

// route is a route that leaves by our link.
type route struct {
	prefix  netip.Prefix
	gateway netip.Addr // invalid: the prefix is on the link
	metric  int
}

// routes are those of the main table that leave by our link, for each prefix the route
// that the kernel prefers: the lowest metric.
func (w *Watcher) routes() ([]route, error) {
	var ours []route
	for _, family := range families() {
		all, err := netlink.RouteListFiltered(family,
			&netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return nil, fmt.Errorf("list routes: %w", err)
		}
		for _, r := range all {
			gateway, leaves := w.gateway(&r)
			// A route for one type of service is not for all packets.
			if leaves && r.Type == unix.RTN_UNICAST && r.Tos == 0 {
				ours = append(ours, route{prefixOf(family, r.Dst), gateway, r.Priority})
			}
		}
	}
	slices.SortStableFunc(ours, func(a, b route) int {
		return cmp.Or(a.prefix.Compare(b.prefix), cmp.Compare(a.metric, b.metric))
	})
	return slices.CompactFunc(ours, func(a, b route) bool { return a.prefix == b.prefix }), nil
}

// gateway returns the route's gateway on our link, invalid if it needs none. Of
// several next hops the first on our link counts.
func (w *Watcher) gateway(r *netlink.Route) (_ netip.Addr, ours bool) {
	if len(r.MultiPath) == 0 {
		return gatewayOf(r.Gw, r.Via), r.LinkIndex == w.dev.Index
	}
	for _, hop := range r.MultiPath {
		if hop.LinkIndex == w.dev.Index {
			return gatewayOf(hop.Gw, hop.Via), true
		}
	}
	return netip.Addr{}, false
}

// addTo adds the route: its gateway's address, or the mark of a prefix that is
// on the link itself. False: the gateway is not resolved.
func (r route) addTo(hops topo.NextHops) bool {
	if !r.gateway.IsValid() {
		if _, known := hops[r.prefix]; !known {
			hops[r.prefix] = topo.MAC{}
		}
		return true
	}
	mac, known := hops[alone(r.gateway)]
	hops[r.prefix] = mac
	return known
}

// gatewayOf is a next hop's address. An IPv4 route may go by an IPv6 neighbour (RFC
// 5549), which the kernel reports as "via".
func gatewayOf(gw net.IP, via netlink.Destination) netip.Addr {
	if v, ok := via.(*netlink.Via); ok {
		return addrOf(v.Addr)
	}
	return addrOf(gw)
}

// prefixOf is a route's destination; without one, it is the default route.
func prefixOf(family int, dst *net.IPNet) netip.Prefix {
	if dst == nil && family == unix.AF_INET {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	if dst == nil {
		return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	addr, _ := netip.AddrFromSlice(dst.IP)
	if family == unix.AF_INET {
		addr = addr.Unmap() // the library's own 0.0.0.0 has 16 bytes
	}
	bits, _ := dst.Mask.Size()
	return netip.PrefixFrom(addr, bits)
}

// addrOf is invalid for no address.
func addrOf(ip net.IP) netip.Addr {
	addr, _ := netip.AddrFromSlice(ip)
	return addr
}

func alone(addr netip.Addr) netip.Prefix { return netip.PrefixFrom(addr, addr.BitLen()) }

func familyOf(addr netip.Addr) int {
	if addr.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}
