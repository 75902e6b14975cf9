package agentless

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proffer/hostcheck"
)

// host is the machine, or the network namespace, of the calling thread.
type host struct{}

// linksOf names the links that have an address.
func (*host) linksOf(a netip.Addr) (links []string, err error) {
	on, err := hostcheck.Holders(a)
	for _, h := range on {
		links = append(links, h.Link)
	}
	return links, err
}

// seg6local is the action of the route that packets for a SID take which come in by a link; nil: it has
// none, as a route that comes before, or no route, is no error.
func (*host) seg6local(sid netip.Addr, link string) *netlink.SEG6LocalEncap {
	routes, err := netlink.RouteGetWithOptions(sid.AsSlice(), &netlink.RouteGetOptions{Iif: link})
	if err != nil || len(routes) == 0 {
		return nil // such as to a blackhole
	}
	encap, _ := routes[0].Encap.(*netlink.SEG6LocalEncap)
	return encap
}

// route is the link that packets for an address leave by, or that they are for this host.
func (*host) route(a netip.Addr) (link string, local bool, err error) {
	routes, err := netlink.RouteGet(a.AsSlice())
	if err != nil || len(routes) == 0 {
		return "", false, fmt.Errorf("no route to %s", a)
	}
	if routes[0].Type == unix.RTN_LOCAL {
		return "", true, nil
	}
	out, err := net.InterfaceByIndex(routes[0].LinkIndex)
	if err != nil {
		return "", false, fmt.Errorf("find the link of the route to %s: %w", a, err)
	}
	return out.Name, false, nil
}

// link is that with a name; nil: there is none.
func (*host) link(name string) (netlink.Link, error) {
	link, err := netlink.LinkByName(name)
	var none netlink.LinkNotFoundError
	if errors.As(err, &none) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find link %s: %w", name, err)
	}
	return link, nil
}
