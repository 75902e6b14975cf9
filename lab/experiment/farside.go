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

// serveOn starts the servers that make makes.
func serveOn(bed *testbed.Bed, port uint16, make func(name string) farSide) (farSides, error) {
	var all farSides
	for _, n := range bed.Servers {
		var l net.Listener
		err := n.Do(func() (err error) {
			l, err = traffic.Listen(netip.AddrPortFrom(bed.VIP, port), manyBacklog)
			return err
		})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("listen on %s: %w", n.Name, err), all.Close())
		}
		server := make(n.Name)
		all = append(all, server)
		go server.Serve(l) // ends with Close
	}
	return all, nil
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
