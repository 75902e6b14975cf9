package testbed

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"

	"github.com/vishvananda/netlink"
)

// Node is a machine of the bed.
type Node struct {
	Name      string       // client, router, lb1, s1, t1, s1-app …
	Namespace string       // as `ip netns` lists it
	Locator   netip.Prefix // LBs, servers and transits: all their SIDs lie inside
	Addr      netip.Addr   // on its link to the router; the router has none of its own
	Addr4     netip.Addr
	SID       netip.Addr // the segment its kernel ends, if any: transits, and servers after Agentless
	Link      string     // its interface on the router; its own is eth0

	gateway, gateway4 netip.Addr // the router on that link
	plan              plan
	space             space
	app               *Node // the node that Behind put behind it
	kind              Kind  // of a node that is itself Behind a server,
	server            *Node // which is this
	dead              bool  // guarded by bed.mu
	bed               *Bed
}

// Traffic counts the frames that crossed an interface. A frame that XDP sends back counts as
// received and as sent.
type Traffic struct {
	RxPackets, TxPackets uint64
	RxBytes, TxBytes     uint64
	RxDropped, TxDropped uint64
}

func (n *Node) address(serial int) {
	n.gateway, n.gateway4 = host(linkNet(serial), 1), host(linkNet4(serial), 1)
	n.Addr, n.Addr4 = host(linkNet(serial), 2), host(linkNet4(serial), 2)
}

// towards is the next hop to p by way of the node.
func (n *Node) towards(p netip.Prefix) netip.Addr {
	if p.Addr().Is4() {
		return n.Addr4
	}
	return n.Addr
}

// MAC is the address of the node's eth0 on its link.
func (n *Node) MAC() (mac net.HardwareAddr, err error) {
	err = n.Do(func() error {
		dev, err := net.InterfaceByName(device)
		if err != nil {
			return fmt.Errorf("find MAC of %s: %w", n.Name, err)
		}
		mac = dev.HardwareAddr
		return nil
	})
	return mac, err
}

// Path is where the namespace is named.
func (n *Node) Path() string { return filepath.Join(namespaceDir, n.Namespace) }

// Loopback is the node's address inside its locator that the kernel answers
// at: locator::1, on lo.
func (n *Node) Loopback() netip.Addr { return host(n.Locator, 1) }

// Do runs f on the calling goroutine with its thread inside the namespace.
// Sockets and files below /proc/net that f opens belong there for good;
// goroutines that f starts do not run there.
func (n *Node) Do(f func() error) error {
	return elsewhere(func() error {
		if err := n.Enter(); err != nil {
			return err
		}
		return f()
	})
}

// Enter moves the calling thread into the namespace for good. The caller has
// locked its goroutine to the thread and never unlocks it.
func (n *Node) Enter() error { return enter(n.Path()) }

// DialContext connects from inside the namespace; it fits http.Transport. The
// address must be numeric.
func (n *Node) DialContext(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = n.Do(func() error {
		conn, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// Listen announces on an address inside the namespace.
func (n *Node) Listen(network, address string) (l net.Listener, err error) {
	err = n.Do(func() error {
		l, err = net.Listen(network, address)
		return err
	})
	return l, err
}

// Counters reads the node's eth0.
func (n *Node) Counters() (Traffic, error) { return n.counters(device) }

// LinkCounters reads the router's end of the node's link. With a delay box,
// the client's is the router's end of the box.
func (n *Node) LinkCounters() (Traffic, error) { return n.bed.Router.counters(n.Link) }

func (n *Node) counters(name string) (t Traffic, err error) {
	err = n.Do(func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return fmt.Errorf("count on %s of %s: %w", name, n.Name, err)
		}
		s := link.Attrs().Statistics
		t = Traffic{s.RxPackets, s.TxPackets, s.RxBytes, s.TxBytes, s.RxDropped, s.TxDropped}
		return nil
	})
	return t, err
}
