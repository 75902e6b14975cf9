package daemon

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"proffer/api"
	"proffer/control"
	"proffer/report"
)

// inquiry is an edge LB's end of the reports of its nodes: a socket at each of its addresses there.
type inquiry struct {
	sockets map[netip.Addr]ReportSocket
	arrived chan nodeDatagram
	readers sync.WaitGroup
	failed  string // the last error, which was logged
}

// nodeDatagram came to an address of this host.
type nodeDatagram struct {
	to, from netip.Addr
	b        []byte
}

func newInquiry() *inquiry {
	return &inquiry{sockets: map[netip.Addr]ReportSocket{}, arrived: make(chan nodeDatagram, mostDatagrams)}
}

// at is the socket at an address.
func (q *inquiry) at(ctx context.Context, own netip.Addr, host *Host) (ReportSocket, error) {
	if s, open := q.sockets[own]; open {
		return s, nil
	}
	s, err := host.Reports(ctx, netip.AddrPortFrom(own, 0))
	if err != nil {
		return nil, err
	}
	q.sockets[own] = s
	q.readers.Go(func() {
		for {
			b, from, err := s.Receive()
			if err != nil {
				return
			}
			select {
			case q.arrived <- nodeDatagram{own, from.Addr().Unmap(), b}:
			default:
			}
		}
	})
	return s, nil
}

// keep closes the sockets at addresses that are no longer used.
func (q *inquiry) keep(used map[netip.Addr]bool) {
	for own, s := range q.sockets {
		if !used[own] {
			s.Close()
			delete(q.sockets, own)
		}
	}
}

func (q *inquiry) close() {
	q.keep(nil)
	q.readers.Wait()
}

// inquire asks all nodes for their costs and loads. A datagram that cannot be sent is lost.
func (r *edgeLB) inquire(ctx context.Context, now time.Duration) {
	cfg := r.now.Load()
	requests, changes := r.levels.Ask(now, rand.Uint64)
	used, failed := map[netip.Addr]bool{}, ""
	for i := range requests {
		n, own := &cfg.Nodes[i], r.plane.Address(cfg.Nodes[i].Server)
		used[own] = true
		socket, err := r.nodes.at(ctx, own, r.host)
		if err != nil {
			failed = err.Error()
			continue
		}
		socket.Send(netip.AddrPortFrom(n.Addr, report.Port), requests[i].Encode(report.Link{Key: *cfg.ReportKey, From: own, To: n.Addr}))
	}
	r.nodes.keep(used)
	if failed != r.nodes.failed && failed != "" {
		r.host.Log.Error("ask the nodes for their costs and loads", "error", failed)
	}
	r.nodes.failed = failed
	for _, c := range changes {
		r.noteNode(c)
	}
}

// noteNode logs that a node's reports end, or begin again.
func (r *edgeLB) noteNode(c control.Change) {
	more := []any{"node", c.Server, "for", c.After.Round(time.Millisecond)}
	if c.Lost {
		r.host.Log.Warn("a node does not report its costs and loads", append(more, "reason", c.Why)...)
	} else {
		r.host.Log.Info("a node reports its costs and loads again", more...)
	}
}

// listen takes the nodes' answers until ctx ends.
func (r *edgeLB) listen(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case d := <-r.nodes.arrived:
			r.take(d)
		}
	}
}

func (r *edgeLB) take(d nodeDatagram) {
	r.mu.Lock()
	defer r.mu.Unlock()
	cfg := r.now.Load()
	for i, n := range cfg.Nodes {
		if n.Addr != d.from || cfg.ReportKey == nil {
			continue
		}
		m, err := report.ParseNode(d.b, report.Link{Key: *cfg.ReportKey, From: n.Addr, To: d.to})
		if err != nil || !m.Answer || m.Server != n.Server {
			r.refusedReports.Add(1)
			return
		}
		if change := r.levels.Answer(r.host.Clock.Now(), i, &m); change != nil {
			r.noteNode(*change)
		}
		return
	}
	r.refusedReports.Add(1)
}

// pricesOf is the costs for a status.
func pricesOf(prices []control.Price) (all []api.CostStatus) {
	for _, p := range prices {
		all = append(all, api.CostStatus{Node: p.Node, Service: p.Service, Nanoseconds: p.Nanoseconds, From: string(p.Source)})
	}
	return all
}
