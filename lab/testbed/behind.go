package testbed

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
)

// Kind is how an application's namespace hangs behind a server.
type Kind int

const (
	// Macvlan shares the server's link: the application has a MAC and
	// addresses of its own there (host 3 of the link's nets) and its default
	// route is the router's. The server's kernel cannot reach it by IP.
	Macvlan Kind = iota
	// RoutedVeth is a cable to the server, which forwards to it the VIPs and
	// the cable's nets.
	RoutedVeth
)

const appDevice = "app0" // a server's end of a RoutedVeth

// Behind moves the VIPs of a server into an application's namespace behind it,
// as a container runtime does: the server's kernel sees the packets, not the
// sockets. The node it returns starts programs like any other; it has no
// locator and no link to the router. It ends with its server and with the bed.
// When Behind fails, the server may have lost its VIPs: Kill and Revive it.
func (b *Bed) Behind(server *Node, kind Kind) (*Node, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.serving(server); err != nil {
		return nil, fmt.Errorf("testbed: behind %s: %w", server.Name, err)
	}
	if server.app != nil {
		return nil, fmt.Errorf("testbed: behind %s: %s is there already", server.Name, server.app.Name)
	}
	app := b.planApp(server, kind)
	if err := app.hang(server); err != nil {
		return nil, errors.Join(fmt.Errorf("testbed: behind %s: %w", server.Name, err), app.vanish())
	}
	server.app = app
	return app, nil
}

// Restart ends the application's namespace behind a server and makes another under its
// name, as when a container restarts. Nothing runs in it. Sockets of this process inside the
// old one stay open, cut off.
func (b *Bed) Restart(app *Node) (*Node, error) {
	b.mu.Lock()
	server := app.server
	err := b.serving(server)
	if err == nil {
		err = errors.Join(app.vanish(), server.inside(func() error {
			if app.kind == RoutedVeth {
				return server.space.cut(appDevice)
			}
			return nil
		}))
		server.app = nil
	}
	b.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("testbed: restart %s: %w", app.Name, err)
	}
	return b.Behind(server, app.kind)
}

// serving returns the reason why a node is no server that runs, if so.
func (b *Bed) serving(server *Node) error {
	switch {
	case b.over:
		return errClosed
	case !slices.Contains(b.Servers, server):
		return errors.New("it is no server of this bed")
	case server.dead:
		return errors.New("it is dead: Revive it first")
	}
	return nil
}

func (b *Bed) planApp(server *Node, kind Kind) *Node {
	i := slices.Index(b.Servers, server) + 1
	app := b.node(server.Name + "-app")
	app.Link, app.kind, app.server = "", kind, server
	app.plan = plan{
		sysctls:  append(append(forwarding("0"), quiet()...), serving()...),
		loopback: vips(),
	}
	if kind == RoutedVeth {
		app.address(appSerial + i)
		return app
	}
	app.gateway, app.gateway4 = server.gateway, server.gateway4
	app.Addr, app.Addr4 = host(linkNet(serverSerial+i), 3), host(linkNet4(serverSerial+i), 3)
	return app
}

// hang makes the application's namespace and hangs it behind the server.
func (n *Node) hang(server *Node) error {
	if err := n.create(); err != nil {
		return err
	}
	defer n.space.close()
	return server.inside(func() error {
		for _, vip := range vips() {
			if err := server.space.forget("lo", vip); err != nil {
				return err
			}
		}
		if n.kind == RoutedVeth {
			return n.cable(server)
		}
		return n.share(server)
	})
}

// cable lays a veth to the server and routes both ways. The thread is in the
// server's namespace.
func (n *Node) cable(server *Node) error {
	if err := setAll(forwarding("1")); err != nil {
		return err
	}
	if err := join(end{&server.space, appDevice}, end{&n.space, device}); err != nil {
		return err
	}
	gateway, gateway4 := netip.PrefixFrom(n.gateway, 64), netip.PrefixFrom(n.gateway4, 24)
	if err := server.space.address(appDevice, gateway, gateway4); err != nil {
		return err
	}
	if err := server.space.route(appDevice, ways(vips(), n)...); err != nil {
		return err
	}
	own := []netip.Prefix{gateway.Masked(), gateway4.Masked()}
	if err := n.bed.Router.space.route(server.Link, ways(own, server)...); err != nil {
		return err
	}
	if err := server.space.settle(gateway); err != nil {
		return err
	}
	return n.connect()
}

// share makes a macvlan on the server's link.
func (n *Node) share(server *Node) error {
	parent, err := server.space.netlink.LinkByName(device)
	if err != nil {
		return fmt.Errorf("find %s: %w", device, err)
	}
	attributes := netlink.LinkAttrs{
		Name: device, ParentIndex: parent.Attrs().Index, MTU: MTU, TxQLen: -1,
		Namespace: netlink.NsFd(n.space.ns.Fd()),
	}
	if err := server.space.netlink.LinkAdd(&netlink.Macvlan{LinkAttrs: attributes, Mode: netlink.MACVLAN_MODE_BRIDGE}); err != nil {
		return fmt.Errorf("create macvlan: %w", err)
	}
	if err := n.space.start(device); err != nil { // segments and checksums are its parent's affair
		return err
	}
	return n.connect()
}

// connect gives the node its addresses and routes and waits until it and its
// gateway know each other.
func (n *Node) connect() error {
	if err := n.configure(); err != nil {
		return err
	}
	return n.knock()
}

// inside opens the node's space while f runs, with the thread in the namespace.
func (n *Node) inside(f func() error) error {
	return n.Do(func() error {
		if err := n.open(); err != nil {
			return err
		}
		defer n.space.close()
		return f()
	})
}
