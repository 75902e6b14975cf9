package edge

import (
	"fmt"
	"net"
	"net/netip"
	"time"

	"proffer/topo"
	"proffer/wire"
)

// AnsweredWithin is the least time between two packets of a node by which Answered changes.
const AnsweredWithin = 1 << 25 * time.Nanosecond // EDGE_ANSWERED_SHIFT of bpf/edge/learn.h

// Probe sends a probe to every node. The node's program answers, and the LB's program takes the
// answer.
func (l *LB) Probe() error {
	for _, n := range l.cfg.Nodes {
		if err := l.probe(n); err != nil {
			return fmt.Errorf("probe node %d: %w", n.Server, err)
		}
	}
	return nil
}

func (l *LB) probe(n topo.EdgeNode) (err error) {
	if l.prober == nil {
		if l.prober, err = net.ListenUDP("udp", nil); err != nil {
			return err
		}
	}
	_, err = l.prober.WriteToUDPAddrPort(wire.Probe(n.Server), netip.AddrPortFrom(n.Addr, wire.VXLANPort))
	return err
}

// Answered changes when a packet of a node comes: an answer to a probe, or any other.
func (l *LB) Answered(server int) (at uint64, err error) {
	if err := l.objs.EdgeAnswered.Lookup(uint32(server), &at); err != nil {
		return 0, fmt.Errorf("read when node %d answered: %w", server, err)
	}
	return at, nil
}
