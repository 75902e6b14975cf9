package testbed

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Announce makes exactly these LBs the next hops of both VIPs on the router,
// as if each spoke BGP to it; with none the router knows no way and answers that.
// The kernel spreads flows by the hash of addresses, protocol and ports.
//
// The route is replaced, never missing, but the kernel refuses a packet that has
// found a next hop just as it is freed. In IPv4 all others see the old next
// hops or the new ones. In IPv6 the kernel puts the first new next hop in the old
// ones' place and appends the others, so that for some microseconds one LB
// may get the flows of all.
func (b *Bed) Announce(lbs ...*Node) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return errClosed
	}
	for _, n := range lbs {
		if !slices.Contains(b.LBs, n) {
			return fmt.Errorf("testbed: announce %s: it is no LB of this bed", n.Name)
		}
		if n.dead {
			return fmt.Errorf("testbed: announce %s: it is dead: Revive it first", n.Name)
		}
	}
	return b.announce(lbs)
}

func (b *Bed) announce(lbs []*Node) error {
	b.announced = slices.Clone(lbs)
	for _, vip := range vips() {
		if err := b.Router.space.spread(vip, lbs); err != nil {
			return fmt.Errorf("testbed: route %s: %w", vip.Addr(), err)
		}
	}
	return nil
}

// spread makes the nodes the next hops to p.
func (s *space) spread(p netip.Prefix, nodes []*Node) error {
	route := netlink.Route{Dst: ipNet(p)}
	if len(nodes) == 0 {
		if err := s.netlink.RouteDel(&route); !errors.Is(err, unix.ESRCH) {
			return err
		}
		return nil
	}
	for _, n := range nodes {
		link, err := s.netlink.LinkByName(n.Link)
		if err != nil {
			return fmt.Errorf("find %s: %w", n.Link, err)
		}
		route.MultiPath = append(route.MultiPath, &netlink.NexthopInfo{
			LinkIndex: link.Attrs().Index,
			Gw:        n.towards(p).AsSlice(),
		})
	}
	return s.netlink.RouteReplace(&route)
}
