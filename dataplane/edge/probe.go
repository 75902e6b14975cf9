package edge

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"proffer/topo"
	"proffer/wire"
)

// AnsweredWithin is the least time between two packets of a node by which Answered changes.
const AnsweredWithin = 1 << 25 * time.Nanosecond // EDGE_ANSWERED_SHIFT of bpf/edge/from_node.h

// Probe sends a probe to every node, from the address that packets to it come from. The node's program
// answers, and the LB's program takes the answer.
func (l *LB) Probe() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, n := range l.cfg.Nodes {
		if err := l.probe(n); err != nil { // those to other nodes go on
			errs = append(errs, fmt.Errorf("probe node %d: %w", n.Server, err))
		}
	}
	return errors.Join(errs...)
}

func (l *LB) probe(n topo.EdgeNode) (err error) {
	if l.prober == nil {
		if l.prober, err = net.ListenUDP("udp", nil); err != nil {
			return err
		}
	}
	e := l.ends[n.Server]
	from := unix.PktInfo6(&unix.Inet6Pktinfo{Addr: e.From.In6U.U6Addr8, Ifindex: e.Link}) // of IPv4, too: mapped
	_, _, err = l.prober.WriteMsgUDPAddrPort(wire.Probe(n.Server), from, netip.AddrPortFrom(n.Addr, wire.VXLANPort))
	return err
}

// Answered changes when a packet of a node comes: an answer to a probe, or any other.
func (l *LB) Answered(server int) (at uint64, err error) {
	if err := l.objs.EdgeAnswered.Lookup(uint32(server), &at); err != nil {
		return 0, fmt.Errorf("read when node %d answered: %w", server, err)
	}
	return at, nil
}
