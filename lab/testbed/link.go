package testbed

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// patience is time enough for an answer through the slowest delay box.
const patience = 2*maxDelay + 500*time.Millisecond

// end is one end of a cable.
type end struct {
	space *space
	name  string
}

// wire connects a node to the router, both ways, addresses and routes
// included, and returns once both know each other's MAC.
func (b *Bed) wire(n *Node) error {
	if n != b.Client || b.delayNS == nil { // else the delay box's cables are laid already
		if err := b.joinRouter(n, end{&n.space, device}); err != nil {
			return err
		}
	}
	router := &b.Router.space
	gateway := netip.PrefixFrom(n.gateway, 64)
	if err := router.address(n.Link, gateway, netip.PrefixFrom(n.gateway4, 24)); err != nil {
		return err
	}
	if err := n.configure(); err != nil {
		return err
	}
	if err := router.route(n.Link, ways(n.plan.routed, n)...); err != nil {
		return err
	}
	if err := router.settle(gateway); err != nil {
		return err
	}
	return n.knock()
}

// ways are routes to nets by way of a node.
func ways(nets []netip.Prefix, by *Node) (routes []netlink.Route) {
	for _, p := range nets {
		routes = append(routes, netlink.Route{Dst: ipNet(p), Gw: by.towards(p).AsSlice(), MTU: by.plan.mtu})
	}
	return routes
}

// joinRouter lays the cable of a node's link on the router, to the other end.
func (b *Bed) joinRouter(n *Node, other end) error {
	if err := join(end{&b.Router.space, n.Link}, other); err != nil {
		return err
	}
	return b.receive(n.Link, b.programs.pass)
}

// configure gives the node its own addresses and its default routes.
func (n *Node) configure() error {
	if err := n.space.up("lo"); err != nil {
		return err
	}
	if err := n.space.address("lo", n.plan.loopback...); err != nil {
		return err
	}
	own := append([]netip.Prefix{netip.PrefixFrom(n.Addr, 64), netip.PrefixFrom(n.Addr4, 24)}, n.plan.device...)
	if err := n.space.address(device, own...); err != nil {
		return err
	}
	if err := n.space.route(device, n.defaults()...); err != nil {
		return err
	}
	if n.plan.end != nil {
		if err := n.space.end(n.SID, n.plan.end); err != nil {
			return err
		}
	}
	return n.space.settle(append(own, n.plan.loopback...)...)
}

// defaults are the node's default routes.
func (n *Node) defaults() (routes []netlink.Route) {
	for i, gateway := range []netip.Addr{n.gateway, n.gateway4} {
		r := netlink.Route{Dst: ipNet(everywhere(gateway)), Gw: gateway.AsSlice()}
		if n.plan.sources != nil {
			r.Src = n.plan.sources[i].AsSlice()
		}
		routes = append(routes, r)
	}
	return routes
}

// join lays a veth cable between two namespaces. Both ends are created where
// they belong: names like eth0 never meet in the caller's namespace.
func join(a, b end) error { return joinOf(a, b, MTU) }

// joinOf is join with an MTU of its own.
func joinOf(a, b end, mtu int) error {
	cable := netlink.NewVeth(netlink.LinkAttrs{Name: a.name, MTU: mtu, TxQLen: -1})
	cable.PeerName = b.name
	cable.PeerMTU = uint32(mtu)
	cable.PeerNamespace = netlink.NsFd(b.space.ns.Fd())
	if err := a.space.netlink.LinkAdd(cable); err != nil {
		return fmt.Errorf("create veth %s–%s: %w", a.name, b.name, err)
	}
	for _, e := range []end{a, b} {
		if err := e.space.dress(e.name); err != nil {
			return err
		}
	}
	return nil
}

// dress makes a new interface behave like one on a wire and brings it up.
func (s *space) dress(name string) error {
	if err := s.offload(name); err != nil {
		return err
	}
	return s.start(name)
}

// start brings an interface up and stops GRO from joining frames, wherever it
// is on (an XDP program turns it on, too): captures and counters have the frames
// that were on the link.
func (s *space) start(name string) error {
	const nothingFits = 1 // bytes
	link, err := s.netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find %s: %w", name, err)
	}
	if err := s.netlink.LinkSetGROMaxSize(link, nothingFits); err != nil {
		return fmt.Errorf("limit GRO of %s: %w", name, err)
	}
	return wrap("bring up "+name, s.netlink.LinkSetUp(link))
}

func (s *space) up(name string) error {
	link, err := s.netlink.LinkByName(name)
	if err == nil {
		err = s.netlink.LinkSetUp(link)
	}
	return wrap("bring up "+name, err)
}

func (s *space) address(name string, addrs ...netip.Prefix) error {
	link, err := s.netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find %s: %w", name, err)
	}
	for _, a := range addrs {
		add := &netlink.Addr{IPNet: ipNet(a), Flags: unix.IFA_F_NODAD}
		if err := s.netlink.AddrAdd(link, add); err != nil {
			return fmt.Errorf("add %s to %s: %w", a, name, err)
		}
	}
	return nil
}

// forget takes an address from an interface.
func (s *space) forget(name string, a netip.Prefix) error {
	link, err := s.netlink.LinkByName(name)
	if err == nil {
		err = s.netlink.AddrDel(link, &netlink.Addr{IPNet: ipNet(a)})
	}
	if errors.Is(err, unix.EADDRNOTAVAIL) { // taken before
		return nil
	}
	return wrap(fmt.Sprintf("take %s from %s", a, name), err)
}

// settle waits until the kernel takes packets for the IPv6 addresses among
// these. Even without duplicate address detection it makes their local routes
// later, on a work queue, and an answer to the first solicitation would be refused meanwhile:
// the next one follows after a whole second.
func (s *space) settle(addrs ...netip.Prefix) error {
	deadline := time.Now().Add(patience)
	for _, a := range addrs {
		for a.Addr().Is6() && !s.local(a.Addr()) {
			if time.Now().After(deadline) {
				return fmt.Errorf("address %s does not become local in %v", a, patience)
			}
			time.Sleep(100 * time.Microsecond)
		}
	}
	return nil
}

func (s *space) local(a netip.Addr) bool {
	routes, err := s.netlink.RouteGet(a.AsSlice())
	return err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL
}

// route adds routes by way of an interface.
func (s *space) route(name string, routes ...netlink.Route) error {
	link, err := s.netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find %s: %w", name, err)
	}
	for _, r := range routes {
		r.LinkIndex = link.Attrs().Index
		if err := s.netlink.RouteAdd(&r); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("add route to %s via %s: %w", r.Dst, name, err)
		}
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

const knocks = 4

// knock sends a datagram to a closed port of the router, in IPv6 and in IPv4,
// and waits for the refusal, by which time both ends have resolved each other:
// the first packet of an experiment does not wait.
func (n *Node) knock() error {
	for _, gateway := range []netip.Addr{n.gateway, n.gateway4} {
		if err := n.knockAt(gateway); err != nil {
			return fmt.Errorf("no answer from the router at %s: %w", gateway, err)
		}
	}
	return nil
}

func (n *Node) knockAt(gateway netip.Addr) (err error) {
	const discard = 9 // RFC 863; no listener
	for range knocks {
		if err = n.knockOnce(netip.AddrPortFrom(gateway, discard)); err == nil {
			return nil
		}
	}
	return err
}

func (n *Node) knockOnce(door netip.AddrPort) error {
	var socket *net.UDPConn
	err := n.Do(func() (err error) {
		socket, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(door))
		return err
	})
	if err != nil {
		return err
	}
	defer socket.Close()
	if _, err := socket.Write([]byte{0}); err != nil {
		return err
	}
	if err := socket.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err = socket.Read(make([]byte, 1)); errors.Is(err, unix.ECONNREFUSED) {
		return nil
	}
	return err
}
