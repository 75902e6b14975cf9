package testbed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Kill lets a host die at once: an LB, a server with the application Behind it, or a
// transit. Its cable goes first, so that nothing it held sends a goodbye, no FIN
// and no RST; then its processes end by SIGKILL, and its namespace and pins
// disappear. The router turns to the other next hops in the same instant. Sockets
// of this process inside stay open, cut off.
func (b *Bed) Kill(n *Node) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.mortal(n); err != nil {
		return fmt.Errorf("testbed: kill %s: %w", n.Name, err)
	}
	if n.dead {
		return nil
	}
	// With an interface Linux deletes the whole of an IPv4 multipath route; of
	// an IPv6 one, the next hop alone.
	var err error
	if slices.Contains(b.announced, n) {
		others := slices.DeleteFunc(slices.Clone(b.announced), func(a *Node) bool { return a == n })
		err = errors.Join(err, b.announce(others))
	}
	return wrap("testbed: kill "+n.Name, errors.Join(err, b.bury(n)))
}

// mortal returns the reason why a node cannot die, if so.
func (b *Bed) mortal(n *Node) error {
	switch {
	case b.over:
		return errClosed
	case n.bed != b:
		return errors.New("it is another bed's")
	case n == b.Router, n == b.Client:
		return errors.New("a bed is not one without it: say an LB, a server or a transit")
	case n.Link == "":
		return errors.New("it is no host: kill the server it is behind, or its processes")
	}
	return nil
}

// bury removes a node, be it whole or half built.
func (b *Bed) bury(n *Node) error {
	errs := []error{b.Router.space.cut(n.Link)}
	for _, dying := range []*Node{n.app, n} {
		if dying != nil {
			errs = append(errs, dying.vanish())
		}
	}
	n.app = nil
	if n.plan.end == nil { // the SID was Agentless's
		n.SID = netip.Addr{}
	}
	return errors.Join(errs...)
}

// cut removes an interface and, with a veth, the other end.
func (s *space) cut(name string) error {
	link, err := s.netlink.LinkByName(name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	if err == nil {
		err = s.netlink.LinkDel(link)
	}
	if errors.Is(err, unix.ENODEV) { // it went meanwhile, with its other end's namespace
		err = nil
	}
	return wrap("cut "+name, err)
}

// vanish ends the node's processes and removes its namespace and pins. The
// name goes first: no process enters any more.
func (n *Node) vanish() error {
	n.dead = true
	ns, err := os.Open(n.Path())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer ns.Close() // no other namespace gets the identity meanwhile
	id, err := identify(fmt.Sprintf("/proc/self/fd/%d", ns.Fd()))
	if err != nil {
		return err
	}
	return errors.Join(
		unname(n.Path()),
		endInside(map[identity]bool{id: true}, 0),
		removePins(n.Pin()))
}

// Revive builds a killed node again, with the addresses it had and nothing that
// ran or was changed in it since Up: an LB is not announced, a server has
// nothing Behind it. When it fails or ctx ends, the node stays dead.
func (b *Bed) Revive(ctx context.Context, n *Node) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.mortal(n); err != nil {
		return fmt.Errorf("testbed: revive %s: %w", n.Name, err)
	}
	if !n.dead {
		return fmt.Errorf("testbed: revive %s: it is alive: Kill it first", n.Name)
	}
	if err := b.rebuild(ctx, n); err != nil {
		return errors.Join(err, b.bury(n))
	}
	n.dead = false
	return nil
}

func (b *Bed) rebuild(ctx context.Context, n *Node) error {
	defer n.space.close()
	for _, step := range []func(*Node) error{(*Node).create, b.wire} {
		if err := each(ctx, []*Node{n}, step); err != nil {
			return err
		}
	}
	if !b.lossy {
		return nil
	}
	return b.fray(n)
}

// Fail lets a host die at once, as Kill does, but nothing learns of it: frames in either
// direction vanish on its cable, which keeps its carrier, as behind a switch, and then its
// processes end by SIGKILL. The router goes on sending to it until Kill withdraws the
// route and removes the host.
func (b *Bed) Fail(n *Node) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.mortal(n); err != nil {
		return fmt.Errorf("testbed: fail %s: %w", n.Name, err)
	}
	if n.dead {
		return nil
	}
	return wrap("testbed: fail "+n.Name, errors.Join(b.darken(n), n.endAll()))
}

// darken makes a node's cable swallow every frame.
func (b *Bed) darken(n *Node) error {
	return errors.Join(
		b.receive(n.Link, b.programs.dark),
		b.Router.space.filter(n.Link, netlink.HANDLE_MIN_EGRESS, b.programs.darkOut))
}

// endAll ends the processes of a node, and of the application behind it, by SIGKILL.
func (n *Node) endAll() error {
	spaces := map[identity]bool{}
	for _, dying := range []*Node{n.app, n} {
		if dying == nil {
			continue
		}
		id, err := identify(dying.Path())
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		spaces[id] = true
	}
	return endInside(spaces, 0)
}

// Swallowed counts the frames to and from hosts that failed. It returns an error once the
// bed is closed.
func (b *Bed) Swallowed() (uint64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return 0, errClosed
	}
	return b.programs.shared.swallowed.Load(), nil
}

// swallowing drops every frame and counts it.
func swallowing(array *os.File, drop int32) *assembly {
	a := newAssembly()
	a.point(r6, array)
	a.count(r6, atSwallowed)
	a.leave(drop)
	return a
}

// SetMAC gives the node's eth0 another link address, which its kernel announces, as
// after a failover (ndisc_notify, arp_notify).
func (n *Node) SetMAC(mac net.HardwareAddr) error {
	return n.Do(func() error { return setMAC(device, mac) })
}

// SetGatewayMAC gives the router's end of the node's link another link address, likewise.
func (n *Node) SetGatewayMAC(mac net.HardwareAddr) error {
	return n.bed.Router.Do(func() error { return setMAC(n.Link, mac) })
}

func setMAC(name string, mac net.HardwareAddr) error {
	announced := []sysctl{
		{filepath.Join("net/ipv6/conf", name, "ndisc_notify"), "1"},
		{filepath.Join("net/ipv4/conf", name, "arp_notify"), "1"},
	}
	if err := setAll(announced); err != nil {
		return err
	}
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkSetHardwareAddr(link, mac)
	}
	return wrap(fmt.Sprintf("set the link address of %s", name), err)
}

// BurstRoutes adds so many routes by way of the node's gateway as fast as it can, and
// removes them again. They are of 2001:db8:b::/48, which no node uses.
func (n *Node) BurstRoutes(count int) error {
	return n.Do(func() error {
		link, err := netlink.LinkByName(device)
		if err != nil {
			return fmt.Errorf("find %s: %w", device, err)
		}
		for _, change := range []func(*netlink.Route) error{netlink.RouteReplace, netlink.RouteDel} {
			for i := range count {
				r := netlink.Route{LinkIndex: link.Attrs().Index, Gw: n.gateway.AsSlice(), Dst: ipNet(net64(0x2001, 0xdb8, 0xb, uint16(i)))}
				if err := change(&r); err != nil {
					return fmt.Errorf("change route %d of a burst on %s: %w", i, n.Name, err)
				}
			}
		}
		return nil
	})
}
