package nexthop

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// families are the address families of next hops.
func families() []int { return []int{unix.AF_INET6, unix.AF_INET} }

// route is a route that leaves by our link, or that decides without a link.
type route struct {
	prefix  netip.Prefix
	gateway netip.Addr   // invalid: the prefix is on the link
	others  []netip.Addr // more gateways, for when that does not answer
	dead    bool         // no packet may leave by it
	through bool         // it decides nothing: the next rule does
	metric  uint32
	table   uint32
	order   uint32 // of the kernel's, among equal ones
	around  int    // the route of the next shorter prefix, among those that are kept; -1: none
}

// gateways are those of a route in their order.
func (r route) gateways() []netip.Addr {
	if !r.gateway.IsValid() {
		return nil
	}
	return append([]netip.Addr{r.gateway}, r.others...)
}

// routes are the routes that packets need (compact), as the rules of routing lead to them. An interrupted
// reading returns netlink.ErrDumpInterrupted with the routes that it met.
func (w *Watcher) routes() (kept []route, interrupted error) {
	own, passed, err := w.layers()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, err
	}
	interrupted = err
	if err := w.readObjects(); errors.Is(err, netlink.ErrDumpInterrupted) {
		interrupted = err
	} else if err != nil {
		return nil, err
	}
	tables := map[tableOf][]route{} // that a layer has
	for _, l := range slices.Concat(own, passed) {
		tables[tableOf{l.all, l.table}] = nil
	}
	if err := w.readTables(tables); errors.Is(err, netlink.ErrDumpInterrupted) {
		interrupted = err
	} else if err != nil {
		return nil, err
	}
	return w.join(own, passed, tables), interrupted
}

// readTables reads the routes of these tables.
func (w *Watcher) readTables(tables map[tableOf][]route) (interrupted error) {
	for _, family := range families() {
		err := dump(unix.RTM_GETROUTE, unix.RTM_NEWROUTE, &nl.RtMsg{RtMsg: unix.RtMsg{Family: uint8(family)}}, func(m []byte) {
			r, ours := parseRoute(m, w.dev.Index, w.objects)
			at := tableOf{wholeOf(uint8(family)), r.table}
			if all, asked := tables[at]; ours && asked && int(m[0]) == family {
				r.order = uint32(len(all))
				tables[at] = append(all, r)
			}
		})
		if errors.Is(err, netlink.ErrDumpInterrupted) {
			interrupted = err
		} else if err != nil {
			return fmt.Errorf("list routes: %w", err)
		}
	}
	return interrupted
}

// join are the routes for all packets. Where the rules part those that this node makes from those that it passes on,
// packets to targets are its own, and others are passed on; a node without targets, an agent, makes packets to any
// address, and passes on those that its own rules have no route for.
func (w *Watcher) join(own, passed []layer, tables map[tableOf][]route) []route {
	if w.parted = !reflect.DeepEqual(own, passed); !w.parted {
		return compact(overlay(own, tables))
	}
	if len(w.targets) == 0 {
		return compact(overlay(append(own, passed...), tables))
	}
	all, ofOwn := overlay(passed, tables), compact(overlay(own, tables))
	all = slices.DeleteFunc(all, func(r route) bool { return w.targets[r.prefix] })
	for t := range w.targets {
		r, found := longest(ofOwn, t.Addr())
		r.dead = r.dead || !found
		r.prefix = t
		all = append(all, r)
	}
	slices.SortFunc(all, route.compare)
	return compact(all)
}

// dump hands each message of a kernel's list to f.
func dump(request int, answer uint16, head nl.NetlinkRequestData, f func(m []byte)) error {
	r := nl.NewNetlinkRequest(request, unix.NLM_F_DUMP)
	r.AddData(head)
	return r.ExecuteIter(unix.NETLINK_ROUTE, answer, func(m []byte) bool {
		f(m)
		return true
	})
}

// parseRoute reads struct rtmsg and its attributes. The standard parsers make a dozen
// objects a route, too many for a million routes.
func parseRoute(m []byte, link int, known objects) (r route, ours bool) {
	if len(m) < unix.SizeofRtMsg {
		return r, false
	}
	family, bits, sourceBits, tos, kind := m[0], int(m[1]), m[2], m[3], int(m[7])
	flags := binary.NativeEndian.Uint32(m[8:])
	// A route for one type of service, or for some sources, is not for all packets.
	if tos != 0 || sourceBits != 0 || flags&unix.RTM_F_CLONED != 0 || (kind != unix.RTN_UNICAST && !isDead(kind)) {
		return r, false
	}
	r = route{dead: isDead(kind), through: kind == unix.RTN_THROW, table: uint32(m[4])}
	dst, hop, object := zeroOf(family), nextHop{flags: uint8(flags)}, uint32(0)
	var several []nextHop
	for kind, value := range attributes(m[unix.SizeofRtMsg:]) {
		switch kind {
		case unix.RTA_DST:
			dst, _ = netip.AddrFromSlice(value)
		case unix.RTA_PRIORITY:
			r.metric = number(value)
		case unix.RTA_TABLE:
			r.table = number(value)
		case unix.RTA_MULTIPATH:
			several = hopsOf(value)
		case rtaObject:
			object = number(value)
		default:
			hop.set(kind, value)
		}
	}
	r.prefix = netip.PrefixFrom(dst, bits)
	if !r.prefix.IsValid() {
		return r, false
	}
	if object != 0 && hop.link == 0 && several == nil {
		var dead bool
		several, dead = known.hops(object)
		r.dead = r.dead || dead
	}
	return r, r.dead || r.take(hop, link) || r.takeAll(several, link)
}

// take gives the route a next hop, if it is a next hop on the link that is not dead. A link without a carrier keeps its
// routes: they are right when it comes back.
func (r *route) take(h nextHop, link int) bool {
	if h.link != link || h.flags&unix.RTNH_F_DEAD != 0 {
		return false
	}
	r.gateway = h.gateway
	return true
}

// takeAll gives the route the next hops on the link that are not dead.
func (r *route) takeAll(hops []nextHop, link int) (took bool) {
	for _, h := range hops {
		var one route
		switch {
		case !one.take(h, link):
		case !took:
			r.gateway, took = h.gateway, true
		case r.gateway.IsValid() && h.gateway.IsValid() && !slices.Contains(r.gateways(), h.gateway):
			r.others = append(r.others, h.gateway)
		}
	}
	return took
}

// nextHop is a next hop of a route.
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
		h.link = int(number(value))
	case unix.RTA_GATEWAY:
		h.gateway = addrOf(value)
	case unix.RTA_VIA:
		h.gateway = addrOf(value[min(2, len(value)):])
	}
}

// hopsOf reads several next hops: struct rtnexthop and its attributes, each.
func hopsOf(b []byte) (hops []nextHop) {
	for len(b) >= unix.SizeofRtNexthop {
		length := int(binary.NativeEndian.Uint16(b))
		if length < unix.SizeofRtNexthop || length > len(b) {
			break
		}
		hop := nextHop{link: int(binary.NativeEndian.Uint32(b[4:])), flags: b[2]}
		for kind, value := range attributes(b[unix.SizeofRtNexthop:length]) {
			hop.set(kind, value)
		}
		hops = append(hops, hop)
		b = b[min((length+3)&^3, len(b)):]
	}
	return hops
}

// attributes are struct rtattr, each.
func attributes(b []byte) func(yield func(kind uint16, value []byte) bool) {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= unix.SizeofRtAttr {
			length := int(binary.NativeEndian.Uint16(b))
			if length < unix.SizeofRtAttr || length > len(b) {
				return
			}
			kind, value := binary.NativeEndian.Uint16(b[2:]), b[unix.SizeofRtAttr:length]
			if !yield(kind, value) {
				return
			}
			b = b[min((length+3)&^3, len(b)):]
		}
	}
}

// number is a value of four bytes.
func number(value []byte) uint32 {
	if len(value) < 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(value)
}

func zeroOf(family uint8) netip.Addr {
	if family == unix.AF_INET {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
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
