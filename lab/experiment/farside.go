package experiment

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"

	"proffer/lab/testbed"
	"proffer/lab/traffic"
)

// farSide is a server of long connections.
type farSide interface {
	Serve(net.Listener) error
	io.Closer
}

// farSides are servers on the VIP, one a server node.
type farSides []farSide

// serveOn starts the servers that make makes on all server nodes.
func serveOn(bed *testbed.Bed, port uint16, make func(name string) farSide) (farSides, error) {
	return serveAt(bed.Servers, netip.AddrPortFrom(bed.VIP, port), make)
}

func serveAt(nodes []*testbed.Node, at netip.AddrPort, make func(name string) farSide) (farSides, error) {
	var all farSides
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
		l, err = traffic.Listen(at, backlog)
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
func (s farSides) Close() error {
	var errs []error
	for _, server := range s {
		errs = append(errs, server.Close())
	}
	return errors.Join(errs...)
}

func newEcho(name string) farSide { return traffic.NewEcho(name) }

// pacedBulk is a bulk server that takes its time.
type pacedBulk struct{ *traffic.BulkServer }

func newBulk(name string) farSide { return pacedBulk{traffic.NewBulkServer(name)} }

func (b pacedBulk) Serve(l net.Listener) error { return b.BulkServer.Serve(paced{l}) }
