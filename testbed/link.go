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

const (
	knocks   = 4
	patience = 2*maxDelay + 500*time.Millisecond // an answer through the slowest delay box
)

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
	gateway := netip.PrefixFrom(n.gateway, 64)
	if err := b.Router.space.address(n.Link, gateway); err != nil {
		return err
	}
	if err := n.configure(); err != nil {
		return err
	}
	for _, p := range n.plan.routed {
		if err := b.Router.space.route(n.Link, netlink.Route{Dst: ipNet(p), Gw: n.Addr.AsSlice()}); err != nil {
			return err
		}
	}
	if err := b.Router.space.settle(gateway); err != nil {
		return err
	}
	return n.knock()
}

// joinRouter lays the cable of a node's link on the router, to the other end.
func (b *Bed) joinRouter(n *Node, other end) error {
	if err := join(end{&b.Router.space, n.Link}, other); err != nil {
		return err
	}
	return b.wake(n.Link)
}

// configure gives the node its own addresses and its default route.
func (n *Node) configure() error {
	if err := n.space.up("lo"); err != nil {
		return err
	}
	if err := n.space.address("lo", n.plan.loopback...); err != nil {
		return err
	}
	own := append([]netip.Prefix{netip.PrefixFrom(n.Addr, 64)}, n.plan.device...)
	if err := n.space.address(device, own...); err != nil {
		return err
	}
	route := netlink.Route{
		Dst:    ipNet(netip.PrefixFrom(netip.IPv6Unspecified(), 0)),
		Gw:     n.gateway.AsSlice(),
		AdvMSS: n.plan.advMSS,
	}
	if n.plan.source.IsValid() {
		route.Src = n.plan.source.AsSlice()
	}
	if err := n.space.route(device, route); err != nil {
		return err
	}
	return n.space.settle(append(own, n.plan.loopback...)...)
}

// join lays a veth cable between two namespaces. Both ends are created where
// they belong: names like eth0 never meet in the caller's namespace.
func join(a, b end) error {
	cable := netlink.NewVeth(netlink.LinkAttrs{Name: a.name, MTU: MTU, TxQLen: -1})
	cable.PeerName = b.name
	cable.PeerNamespace = netlink.NsFd(b.space.ns.Fd())
	if err := a.space.netlink.LinkAdd(cable); err != nil {
		return fmt.Errorf("create veth %s–%s: %w", a.name, b.name, err)
	}
	for _, e := range []end{a, b} {
		if err := e.space.offload(e.name); err != nil {
			return err
		}
		if err := e.space.keepFrames(e.name); err != nil {
			return err
		}
		if err := e.space.up(e.name); err != nil {
			return err
		}
	}
	return nil
}

func (s *space) up(name string) error {
	link, err := s.netlink.LinkByName(name)
	if err == nil {
		err = s.netlink.LinkSetUp(link)
	}
	return wrap("bring up "+name, err)
}

// keepFrames stops GRO from joining frames, wherever it is on (an XDP program
// turns it on, too): a capture shows and a counter counts what was on the link.
func (s *space) keepFrames(name string) error {
	const nothingFits = 1 // bytes
	link, err := s.netlink.LinkByName(name)
	if err == nil {
		err = s.netlink.LinkSetGROMaxSize(link, nothingFits)
	}
	return wrap("limit GRO of "+name, err)
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

// settle waits until the kernel takes packets for the addresses. Even without
// duplicate address detection it makes their local routes later, on a work
// queue, and an answer to the first solicitation would be refused meanwhile:
// the next one follows after a whole second.
func (s *space) settle(addrs ...netip.Prefix) error {
	deadline := time.Now().Add(patience)
	for _, a := range addrs {
		for !s.local(a.Addr()) {
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

func (s *space) route(name string, r netlink.Route) error {
	link, err := s.netlink.LinkByName(name)
	if err == nil {
		r.LinkIndex = link.Attrs().Index
		err = s.netlink.RouteAdd(&r)
	}
	return wrap(fmt.Sprintf("add route to %s via %s", r.Dst, name), err)
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// knock sends a datagram to a closed port of the router and waits for the
// refusal, by which time both ends have resolved each other: the first packet
// of an experiment waits for nobody.
func (n *Node) knock() error {
	const discard = 9 // RFC 863; nobody listens
	var err error
	for range knocks {
		if err = n.knockOnce(netip.AddrPortFrom(n.gateway, discard)); err == nil {
			return nil
		}
	}
	return fmt.Errorf("no answer from the router at %s: %w", n.gateway, err)
}

func (n *Node) knockOnce(door netip.AddrPort) error {
	var socket *net.UDPConn
	err := n.Do(func() (err error) {
		socket, err = net.DialUDP("udp6", nil, net.UDPAddrFromAddrPort(door))
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
