// Package nexthop copies the kernel's routes and neighbours of one link, for a data
// plane that sends packets past the kernel's forwarding (no FIB lookup on the fast
// path, no `forwarding=1` on servers), and keeps their neighbours resolved.
package nexthop

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"

	"proffer/topo"
)

// usable are the states of neighbours that can receive packets.
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
		return slices.Contains(families(), u.Family)
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

// Changes has a value whenever the result of Read may have changed.
func (w *Watcher) Changes() <-chan struct{} { return w.changes }

// Close ends the watch.
func (w *Watcher) Close() { close(w.stop) }

// Read returns the next hops of the link as the kernel has them now, and how
// many of its routes wait for their gateway to be resolved.
func (w *Watcher) Read() (hops topo.NextHops, waiting int, err error) {
	hops = topo.NextHops{}
	for _, family := range families() {
		if err := w.addNeighbours(hops, family); err != nil {
			return nil, 0, err
		}
	}
	routes, err := w.routes()
	if err != nil {
		return nil, 0, err
	}
	for _, r := range routes {
		if !r.addTo(hops) {
			waiting++
		}
	}
	return hops, waiting, nil
}

func (w *Watcher) addNeighbours(hops topo.NextHops, family int) error {
	neighbours, err := netlink.NeighList(w.dev.Index, family)
	if err != nil {
		return fmt.Errorf("list neighbours of %s: %w", w.dev.Name, err)
	}
	for _, n := range neighbours {
		addr := addrOf(n.IP)
		if addr.IsValid() && n.State&usable != 0 && len(n.HardwareAddr) == 6 {
			hops[alone(addr)] = topo.MAC(n.HardwareAddr)
		}
	}
	return nil
}

// Resolve asks the kernel to find addr's neighbour, which shows up as a change.
func (w *Watcher) Resolve(addr netip.Addr) error {
	gateway := addr.Unmap()
	if routes, err := netlink.RouteGet(gateway.AsSlice()); err == nil && len(routes) > 0 {
		if routes[0].LinkIndex != w.dev.Index {
			return fmt.Errorf("resolve %s: the route leaves by another link than %s", addr, w.dev.Name)
		}
		if gw := gatewayOf(routes[0].Gw, routes[0].Via); gw.IsValid() {
			gateway = gw
		}
	}
	return w.use(gateway)
}

// use makes the kernel treat this neighbour as in use: the kernel resolves it, or
// confirms it if it is stale.
func (w *Watcher) use(addr netip.Addr) error {
	err := netlink.NeighSet(&netlink.Neigh{
		LinkIndex: w.dev.Index,
		Family:    familyOf(addr),
		IP:        addr.AsSlice(),
		State:     netlink.NUD_NONE,
		Flags:     netlink.NTF_USE,
	})
	if err != nil {
		return fmt.Errorf("resolve %s on %s: %w", addr, w.dev.Name, err)
	}
	return nil
}

// Refresh confirms every gateway of the link and every neighbour on the way to targets.
// Called more often than neighbours go stale and are forgotten (60 s).
func (w *Watcher) Refresh(targets []netip.Addr) error {
	var errs []error
	for _, t := range targets {
		errs = append(errs, w.Resolve(t))
	}
	routes, err := w.routes()
	if err != nil {
		return err
	}
	done := map[netip.Addr]bool{}
	for _, r := range routes {
		if r.gateway.IsValid() && !done[r.gateway] {
			done[r.gateway] = true
			errs = append(errs, w.use(r.gateway))
		}
	}
	return errors.Join(errs...)
}
