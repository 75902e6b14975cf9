package nexthop

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// families are the address families of next hops.
func families() []int { return []int{unix.AF_INET6, unix.AF_INET} }

// route is a route that leaves by our link, or that the kernel calls unreachable.
type route struct {
	prefix  netip.Prefix
	gateway netip.Addr // invalid: the prefix is on the link
	dead    bool       // no packet may leave by it
	metric  uint32
}

// routes are the routes of the main table that packets need (compact). An interrupted
// reading returns netlink.ErrDumpInterrupted with the routes that it met.
func (w *Watcher) routes() (kept []route, interrupted error) {
	var ours []route
	for _, family := range families() {
		request := nl.NewNetlinkRequest(unix.RTM_GETROUTE, unix.NLM_F_DUMP)
		request.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{Family: uint8(family)}})
		err := request.ExecuteIter(unix.NETLINK_ROUTE, unix.RTM_NEWROUTE, func(m []byte) bool {
			if r, ok := parseRoute(m, w.dev.Index); ok && int(m[0]) == family {
				ours = append(ours, r)
			}
			return true
		})
		if errors.Is(err, netlink.ErrDumpInterrupted) {
			interrupted = err
		} else if err != nil {
			return nil, fmt.Errorf("list routes: %w", err)
		}
	}
	return compact(ours), interrupted
}

// parseRoute reads struct rtmsg and its attributes. The standard parsers make a dozen
// objects a route, too many for a million routes.
func parseRoute(m []byte, link int) (r route, ours bool) {
	if len(m) < unix.SizeofRtMsg {
		return r, false
	}
	family, bits, sourceBits, tos, kind := m[0], int(m[1]), m[2], m[3], int(m[7])
	flags := binary.NativeEndian.Uint32(m[8:])
	table := uint32(m[4])
	// A route for one type of service, or for some sources, is not for all packets.
	if tos != 0 || sourceBits != 0 || flags&unix.RTM_F_CLONED != 0 || (kind != unix.RTN_UNICAST && !isDead(kind)) {
		return r, false
	}
	dst, r := zeroOf(family), route{dead: isDead(kind)}
	hop := nextHop{flags: uint8(flags)}
	for kind, value := range attributes(m[unix.SizeofRtMsg:]) {
		switch kind {
		case unix.RTA_DST:
			dst, _ = netip.AddrFromSlice(value)
		case unix.RTA_PRIORITY:
			r.metric = binary.NativeEndian.Uint32(value)
		case unix.RTA_TABLE:
			table = binary.NativeEndian.Uint32(value)
		case unix.RTA_MULTIPATH:
			hop = firstOn(value, link)
		default:
			hop.set(kind, value)
		}
	}
	r.prefix = netip.PrefixFrom(dst, bits)
	if table != unix.RT_TABLE_MAIN || !r.prefix.IsValid() {
		return r, false
	}
	r.gateway = hop.gateway
	return r, r.dead || hop.link == link && hop.flags&(unix.RTNH_F_DEAD|unix.RTNH_F_LINKDOWN) == 0
}

// nextHop is one of a route's next hops.
type nextHop struct {
	link    int
	flags   uint8
	gateway netip.Addr
}

// set reads an attribute. An IPv4 route may go by an IPv6 neighbour (RFC 5549), which the
// kernel reports as "via", after its family in two bytes.
func (h *nextHop) set(kind uint16, value []byte) {
	switch kind {
	case unix.RTA_OIF:
		h.link = int(binary.NativeEndian.Uint32(value))
	case unix.RTA_GATEWAY:
		h.gateway = addrOf(value)
	case unix.RTA_VIA:
		h.gateway = addrOf(value[min(2, len(value)):])
	}
}

// firstOn reads the first of several next hops on the link that is not dead: struct
// rtnexthop and its attributes, each.
func firstOn(hops []byte, link int) nextHop {
	for len(hops) >= unix.SizeofRtNexthop {
		length := int(binary.NativeEndian.Uint16(hops))
		if length < unix.SizeofRtNexthop || length > len(hops) {
			break
		}
		hop := nextHop{link: int(binary.NativeEndian.Uint32(hops[4:])), flags: hops[2]}
		for kind, value := range attributes(hops[unix.SizeofRtNexthop:length]) {
			hop.set(kind, value)
		}
		if hop.link == link && hop.flags&(unix.RTNH_F_DEAD|unix.RTNH_F_LINKDOWN) == 0 {
			return hop
		}
		hops = hops[min((length+3)&^3, len(hops)):]
	}
	return nextHop{}
}

// attributes are struct rtattr, each with a value of four bytes or more.
func attributes(b []byte) func(yield func(kind uint16, value []byte) bool) {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= unix.SizeofRtAttr {
			length := int(binary.NativeEndian.Uint16(b))
			if length < unix.SizeofRtAttr || length > len(b) {
				return
			}
			kind, value := binary.NativeEndian.Uint16(b[2:]), b[unix.SizeofRtAttr:length]
			if len(value) >= 4 && !yield(kind, value) {
				return
			}
			b = b[min((length+3)&^3, len(b)):]
		}
	}
}

func zeroOf(family uint8) netip.Addr {
	if family == unix.AF_INET {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// compact returns for each prefix the route that the kernel prefers, by the lowest metric,
// without those that send packets where the next shorter prefix sends them: a full table of
// one gateway is its default route. Prefixes are in order, shorter ones before longer ones
// inside.
func compact(all []route) (kept []route) {
	slices.SortFunc(all, func(a, b route) int {
		return cmp.Or(a.prefix.Addr().Compare(b.prefix.Addr()), cmp.Compare(a.prefix.Bits(), b.prefix.Bits()), cmp.Compare(a.metric, b.metric))
	})
	var around []route // the kept routes with prefixes around the present one, the longest last
	for i, r := range all {
		if i > 0 && r.prefix == all[i-1].prefix {
			continue
		}
		for len(around) > 0 && !around[len(around)-1].contains(r) {
			around = around[:len(around)-1]
		}
		if len(around) > 0 && around[len(around)-1].sameHop(r) || len(around) == 0 && r.dead {
			continue
		}
		around, kept = append(around, r), append(kept, r)
	}
	return kept
}

func (r route) contains(other route) bool {
	return r.prefix.Bits() <= other.prefix.Bits() && r.prefix.Contains(other.prefix.Addr())
}

func (r route) sameHop(other route) bool {
	return r.dead == other.dead && (r.dead || r.gateway == other.gateway)
}

// gatewayOf is a next hop's address.
func gatewayOf(gw net.IP, via netlink.Destination) netip.Addr {
	if v, ok := via.(*netlink.Via); ok {
		return addrOf(v.Addr)
	}
	return addrOf(gw)
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
