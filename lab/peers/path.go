package peers

import (
	"errors"
	"fmt"

	"proffer/lab/farmrun"
)

// path is which way connections came.
type path struct {
	received uint64   // frames, at the balancer's place
	ended    uint64   // connections that its kernel took
	balanced uint64   // connections, by Proffer's books
	servers  []uint64 // connections that each server's kernel took
}

// counts are the kernels' counters so far.
func (c *contest) counts() (p path, err error) {
	frames, err := c.place().Counters()
	if err != nil {
		return p, err
	}
	p.received = frames.RxPackets
	if p.ended, err = farmrun.TCPCounter(c.place(), "PassiveOpens"); err != nil {
		return p, err
	}
	for _, n := range c.bed.Servers {
		count, err := farmrun.TCPCounter(n, "PassiveOpens")
		if err != nil {
			return p, err
		}
		p.servers = append(p.servers, count)
	}
	return p, nil
}

func (p path) minus(before path) path {
	d := path{received: p.received - before.received, ended: p.ended - before.ended, balanced: p.balanced - before.balanced}
	for i, count := range p.servers {
		d.servers = append(d.servers, count-before.servers[i])
	}
	return d
}

// check is that so many connections and no others came the way of a peer.
func (p path) check(peer string, connections uint64) error {
	var errs []error
	want := func(holds bool, name string, n uint64) {
		if !holds {
			errs = append(errs, fmt.Errorf("%s: %d %s, of %d made", peer, n, name, connections))
		}
	}
	served, reached := uint64(0), uint64(0)
	for _, n := range p.servers {
		served += n
		if n > 0 {
			reached++
		}
	}
	want(served >= connections, "connections were taken by servers", served)
	want(p.received >= 4*connections, "frames came to the balancer's place", p.received) // SYN, ACK, request, FIN
	switch peer {
	case byRoute:
		want(p.servers[0] == served, "came to the server they are routed to", p.servers[0])
	case byECMP:
		want(2*reached > uint64(len(p.servers)), fmt.Sprintf("of %d servers took connections", len(p.servers)), reached)
	default:
		want(reached > 1, "servers took connections", reached)
	}
	if peer == byHAProxy || peer == byNginx {
		want(p.ended >= connections, "connections ended at the proxy", p.ended)
	} else {
		want(p.ended == 0, "connections ended in the balancer's place", p.ended)
	}
	if peer == byHunt || peer == bySingle {
		want(p.balanced >= connections, "are in the LB's books", p.balanced)
	}
	return errors.Join(errs...)
}
