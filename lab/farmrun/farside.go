package farmrun

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"

	"proffer/lab/testbed"
	"proffer/lab/traffic/responder"
)

// FarSide is a server of long connections.
type FarSide interface {
	Serve(net.Listener) error
	io.Closer
}

// FarSides are servers on the VIP, one a server node.
type FarSides []FarSide

// FarSidesOn starts the servers that make makes on all server nodes.
func FarSidesOn(bed *testbed.Bed, port uint16, make func(name string) FarSide) (FarSides, error) {
	return FarSidesAt(bed.Servers, netip.AddrPortFrom(bed.VIP, port), make)
}

func FarSidesAt(nodes []*testbed.Node, at netip.AddrPort, make func(name string) FarSide) (FarSides, error) {
	var all FarSides
	for _, n := range nodes {
		l, err := listenAt(n, at, manyBacklog)
		if err != nil {
			return nil, errors.Join(err, all.Close())
		}
		server := make(n.Name)
		all = append(all, server)
		go server.Serve(l) // ends with Close
	}
	return all, nil
}

func listenAt(n *testbed.Node, at netip.AddrPort, backlog int) (l net.Listener, err error) {
	err = n.Do(func() (err error) {
		l, err = responder.Listen(at, backlog)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", n.Name, err)
	}
	return l, nil
}

// manyBacklog holds all flows that are opened at once.
const manyBacklog = 4096

// Close ends all servers.
func (s FarSides) Close() error {
	var errs []error
	for _, server := range s {
		errs = append(errs, server.Close())
	}
	return errors.Join(errs...)
}

func NewEcho(name string) FarSide { return responder.NewEcho(name) }
