package testbed

import (
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
)

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
