package farmrun

import (
	"errors"
	"fmt"
	"net/netip"

	"proffer/lab/testbed"
	"proffer/lab/traffic/responder"
)

// Servers are the bed's HTTP servers, one a server node, on the VIP.
type Servers struct {
	clock *responder.Clock
	All   []*responder.Server
}

// Serve starts them: each with a machine of its own, or all with the one that is given.
func Serve(bed *testbed.Bed, machines ...responder.Machine) (*Servers, error) {
	return ServeAt(bed.Servers, netip.AddrPortFrom(bed.VIP, testbed.Port), machines...)
}

func ServeAt(nodes []*testbed.Node, at netip.AddrPort, machines ...responder.Machine) (*Servers, error) {
	clock, err := responder.NewClock()
	if err != nil {
		return nil, fmt.Errorf("start the virtual cores: %w", err)
	}
	s := &Servers{clock: clock}
	for i, n := range nodes {
		l, err := listenAt(n, at, Backlog)
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		server := responder.NewServer(n.Name, machines[i%len(machines)], clock)
		s.All = append(s.All, server)
		go server.Serve(l) // ends with Close
	}
	return s, nil
}

// Books are the requests that each server served, by its name.
func (s *Servers) Books() map[string][]string {
	books := map[string][]string{}
	for i, server := range s.All {
		books[fmt.Sprintf("s%d", i+1)] = server.Served()
	}
	return books
}

// Busy are the requests that each server has in hand.
func (s *Servers) Busy() []float64 {
	busy := make([]float64, len(s.All))
	for i, server := range s.All {
		busy[i] = float64(server.Busy())
	}
	return busy
}

// Close ends all servers.
func (s *Servers) Close() error {
	var errs []error
	for _, server := range s.All {
		errs = append(errs, server.Close())
	}
	return errors.Join(append(errs, s.clock.Close())...)
}
