// Package nexthop copies the kernel's routes and neighbours of one link, for a
// data plane that sends packets past the kernel's forwarding (DESIGN: no FIB
// lookup on the fast path, no `forwarding=1` on servers), and keeps the
// neighbours it names resolved.
package nexthop

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proffer/topo"
)

// usable are the neighbour states whose address may be sent to.
const usable = netlink.NUD_REACHABLE | netlink.NUD_STALE | netlink.NUD_DELAY |
	netlink.NUD_PROBE | netlink.NUD_PERMANENT | netlink.NUD_NOARP

// Watcher knows the next hops of one link.
type Watcher struct {
	dev     *net.Interface
	changes chan struct{}
	stop    chan struct{}
}

// Watch starts listening for changes of the link's routes and neighbours.
func Watch(dev string) (*Watcher, error) {
	l, err := net.InterfaceByName(dev)
	if err != nil {
		return nil, fmt.Errorf("link %q: %w", dev, err)
	}
	w := &Watcher{dev: l, changes: make(chan struct{}, 1), stop: make(chan struct{})}
	routes := make(chan netlink.RouteUpdate, 64)
	if err := netlink.RouteSubscribe(routes, w.stop); err != nil {
		return nil, fmt.Errorf("watch routes: %w", err)
	}
	neighbours := make(chan netlink.NeighUpdate, 64)
	if err := netlink.NeighSubscribe(neighbours, w.stop); err != nil {
		close(w.stop)
		return nil, fmt.Errorf("watch neighbours: %w", err)
	}
	go forward(w, routes, func(u netlink.RouteUpdate) bool {
		return u.Family == unix.AF_INET6
	})
	go forward(w, neighbours, func(u netlink.NeighUpdate) bool {
		return u.LinkIndex == l.Index
	})
	return w, nil
}

// forward turns updates that matter into one pending change.
func forward[U any](w *Watcher, updates <-chan U, matters func(U) bool) {
	for u := range updates {
		if !matters(u) {
			continue
		}
		select {
		case w.changes <- struct{}{}:
		default:
		}
	}
}

// Changes has a value whenever Read may answer otherwise than before.
func (w *Watcher) Changes() <-chan struct{} { return w.changes }

// Close ends the watch.
func (w *Watcher) Close() { close(w.stop) }

// Read returns the next hops of the link as the kernel has them now, and how
// many of its routes wait for their gateway to be resolved.
func (w *Watcher) Read() (hops topo.NextHops, waiting int, err error) {
	hops = topo.NextHops{}
	neighbours, err := netlink.NeighList(w.dev.Index, netlink.FAMILY_V6)
	if err != nil {
		return nil, 0, fmt.Errorf("list neighbours of %s: %w", w.dev.Name, err)
	}
	for _, n := range neighbours {
		addr, ok := netip.AddrFromSlice(n.IP)
		if ok && n.State&usable != 0 && len(n.HardwareAddr) == 6 {
			hops[netip.PrefixFrom(addr, 128)] = topo.MAC(n.HardwareAddr)
		}
	}
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_V6,
		&netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, 0, fmt.Errorf("list routes: %w", err)
	}
	for _, r := range routes {
		if !w.addRoute(hops, &r) {
			waiting++
		}
	}
	return hops, waiting, nil
}

// addRoute adds one route if it leaves by our link: its gateway's address, or
// the mark of a prefix that is on the link itself. False: the gateway is not
// resolved.
func (w *Watcher) addRoute(hops topo.NextHops, r *netlink.Route) bool {
	gateway, ours := w.gateway(r)
	if !ours || r.Type != unix.RTN_UNICAST {
		return true
	}
	prefix := netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	if r.Dst != nil {
		addr, _ := netip.AddrFromSlice(r.Dst.IP.To16())
		bits, _ := r.Dst.Mask.Size()
		prefix = netip.PrefixFrom(addr, bits)
	}
	if !gateway.IsValid() {
		if _, known := hops[prefix]; !known {
			hops[prefix] = topo.MAC{}
		}
		return true
	}
	mac, known := hops[netip.PrefixFrom(gateway, 128)]
	hops[prefix] = mac
	return known
}

// gateway returns the route's gateway on our link, invalid if it needs none.
func (w *Watcher) gateway(r *netlink.Route) (_ netip.Addr, ours bool) {
	if len(r.MultiPath) == 0 {
		gw, _ := netip.AddrFromSlice(r.Gw.To16())
		return gw, r.LinkIndex == w.dev.Index
	}
	for _, hop := range r.MultiPath {
		if hop.LinkIndex == w.dev.Index {
			gw, _ := netip.AddrFromSlice(hop.Gw.To16())
			return gw, true
		}
	}
	return netip.Addr{}, false
}

// Resolve asks the kernel to find addr's neighbour, which shows up as a change.
func (w *Watcher) Resolve(addr netip.Addr) error {
	gateway := addr
	if routes, err := netlink.RouteGet(addr.AsSlice()); err == nil && len(routes) > 0 {
		if routes[0].LinkIndex != w.dev.Index {
			return fmt.Errorf("resolve %s: the route leaves by another link than %s", addr, w.dev.Name)
		}
		if gw, ok := netip.AddrFromSlice(routes[0].Gw.To16()); ok {
			gateway = gw
		}
	}
	return w.use(gateway)
}

// use tells the kernel that we send to this neighbour: it resolves it, or
// confirms it when it has gone stale.
func (w *Watcher) use(addr netip.Addr) error {
	err := netlink.NeighSet(&netlink.Neigh{
		LinkIndex: w.dev.Index,
		Family:    netlink.FAMILY_V6,
		IP:        addr.AsSlice(),
		State:     netlink.NUD_NONE,
		Flags:     netlink.NTF_USE,
	})
	if err != nil {
		return fmt.Errorf("resolve %s on %s: %w", addr, w.dev.Name, err)
	}
	return nil
}

// Refresh confirms every gateway of the link and what is on the way to targets.
// Called more often than neighbours go stale and are forgotten (60 s).
func (w *Watcher) Refresh(targets []netip.Addr) error {
	var errs []error
	for _, t := range targets {
		errs = append(errs, w.Resolve(t))
	}
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_V6,
		&netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return fmt.Errorf("list routes: %w", err)
	}
	done := map[netip.Addr]bool{}
	for _, r := range routes {
		if gw, ours := w.gateway(&r); ours && gw.IsValid() && !done[gw] {
			done[gw] = true
			errs = append(errs, w.use(gw))
		}
	}
	return errors.Join(errs...)
}
