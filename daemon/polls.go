package daemon

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"proffer/control"
	"proffer/report"
	"proffer/topo"
)

// ReportSocket sends and receives the datagrams of an LB that asks for loads.
type ReportSocket interface {
	Send(to netip.AddrPort, b []byte) error
	Receive() (b []byte, from netip.AddrPort, err error) // until Close
	Close() error
}

// datagram was received.
type datagram struct {
	from netip.Addr
	b    []byte
}

// mostDatagrams wait to be read; more are lost, as in a network.
const mostDatagrams = 2048

// poll is the LB's end of the reports.
type poll struct {
	socket  ReportSocket // nil: no service needs one yet
	arrived chan datagram
	reader  sync.WaitGroup
	failed  string // the last error, which was logged
}

// noPoll is how often an LB without a service that polls looks for such a service.
const noPoll = 250 * time.Millisecond

// polling asks agents for their loads, as services need them, until ctx ends.
func (r *lb) polling(ctx context.Context) error {
	p := &poll{arrived: make(chan datagram, mostDatagrams)}
	defer p.close()
	pace := noPoll
	ticks, stop := r.host.Clock.Tick(pace)
	defer func() { stop() }()
	for {
		select {
		case <-ctx.Done():
			return nil
		case d := <-p.arrived:
			p.note(r, r.take(p, d))
			continue
		case <-ticks:
		case <-r.reloaded: // an earlier configuration's pace may be slower
		}
		next, err := r.ask(ctx, p)
		if next != pace {
			stop()
			pace = next
			ticks, stop = r.host.Clock.Tick(pace)
		}
		p.note(r, err)
	}
}

// note logs an error once.
func (p *poll) note(r *lb, err error) {
	if err == nil {
		return
	}
	if err.Error() != p.failed {
		r.host.Log.Error("ask agents for their loads", "error", err)
	}
	p.failed = err.Error()
}

func (p *poll) close() {
	if p.socket != nil {
		p.socket.Close()
	}
	p.reader.Wait()
}

// open opens the socket, and reads it until it is closed.
func (p *poll) open(ctx context.Context, r *lb) (err error) {
	if p.socket != nil {
		return nil
	}
	socket, err := r.host.Reports(ctx, netip.AddrPortFrom(report.At(r.started.Locator).Addr(), 0))
	if err != nil {
		return err
	}
	p.socket = socket
	p.reader.Go(func() {
		for {
			b, from, err := socket.Receive()
			if err != nil {
				return
			}
			select {
			case p.arrived <- datagram{from.Addr(), b}:
			default:
			}
		}
	})
	return nil
}

// ask asks the agents of all services for which it is time, and returns when to look again.
func (r *lb) ask(ctx context.Context, p *poll) (next time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next = noPoll
	at := r.host.Clock.Now()
	err = r.renewLearners()
	for _, l := range r.learners {
		polls := l.Polls()
		if polls == nil {
			continue
		}
		next = min(next, polls.Every())
		if !polls.Due(at) {
			continue
		}
		if e := p.open(ctx, r); e != nil {
			return next, errors.Join(err, e)
		}
		err = errors.Join(err, r.askAll(l.Service(), polls, p.socket, at))
	}
	return next, err
}

// askAll asks the agents of a service's servers. A datagram that cannot be sent is lost.
func (r *lb) askAll(svc *topo.Service, polls *control.Poller, socket ReportSocket, at time.Duration) error {
	begun, err := r.plane.Begun(svc)
	if err != nil {
		return err
	}
	nonces, changes := polls.Ask(at, begun, rand.Uint64)
	node := &r.now.Load().Node
	for i, nonce := range nonces {
		server := svc.Servers[i].Locator
		err = errors.Join(err, socket.Send(report.At(server), report.Ask(node, server, svc.VIP, nonce)))
	}
	for _, c := range changes {
		r.noteReport(svc, c)
	}
	return errors.Join(err, r.queue(svc, polls))
}

// queue gives the plane the reports that it has not got.
func (r *lb) queue(svc *topo.Service, polls *control.Poller) error {
	if queues := polls.Queues(); len(queues) > 0 {
		return r.plane.Queues(svc, queues)
	}
	return nil
}

// take takes a datagram, and all that wait behind it.
func (r *lb) take(p *poll, d datagram) (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, node := r.host.Clock.Now(), &r.now.Load().Node
	err = r.renewLearners()
	for waiting := len(p.arrived); ; waiting-- {
		if m, server, ok := report.Answered(node, d.from, d.b); ok && r.learners[m.VIP] != nil && r.learners[m.VIP].Polls() != nil {
			l := r.learners[m.VIP]
			if _, change := l.Polls().Answer(at, server.String(), &m); change != nil {
				r.noteReport(l.Service(), *change)
			}
		}
		if waiting == 0 {
			break
		}
		d = <-p.arrived
	}
	for _, l := range r.learners {
		if polls := l.Polls(); polls != nil {
			err = errors.Join(err, r.queue(l.Service(), polls))
		}
	}
	return err
}

// noteReport logs that a server's reports end, or begin again.
func (r *lb) noteReport(svc *topo.Service, c control.Change) {
	more := []any{"service", svc.Name, "server", c.Server, "for", c.After.Round(time.Millisecond)}
	if c.Lost {
		r.host.Log.Warn("a server does not report its load, and counts as average", append(more, "reason", c.Why)...)
	} else {
		r.host.Log.Info("a server reports its load again", more...)
	}
}
