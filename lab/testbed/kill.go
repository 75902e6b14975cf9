package testbed

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
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
