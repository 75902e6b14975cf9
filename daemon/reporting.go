package daemon

import (
	"context"
	"net/netip"
	"sync/atomic"

	"proffer/api"
	"proffer/report"
	"proffer/topo"
	"proffer/weights"
)

// reporting counts the requests for this server's load.
type reporting struct {
	limit                      report.Limit
	answered, refused, limited atomic.Uint64
}

func (p *reporting) status() *api.ReportsStatus {
	return &api.ReportsStatus{Answered: p.answered.Load(), Refused: p.refused.Load(), Limited: p.limited.Load()}
}

// report answers the requests of LBs for this server's loads until ctx ends. Without the socket the
// server counts as average at those LBs, and serves.
func (r *agent) report(ctx context.Context) error {
	return answerAt(ctx, r.host, report.At(r.now.Load().Locator), "this server's load", r.answer)
}

// answerAt answers requests at an address until ctx ends. reported is the subject of the answers.
func answerAt(ctx context.Context, host *Host, at netip.AddrPort, reported string, answer func(from netip.Addr, b []byte) ([]byte, error)) error {
	socket, err := host.Reports(ctx, at)
	if err != nil {
		host.Log.Error("no LB gets "+reported, "error", err)
		return nil
	}
	closed := context.AfterFunc(ctx, func() { socket.Close() })
	defer func() {
		if closed() {
			socket.Close()
		}
	}()
	for {
		b, from, err := socket.Receive()
		if err != nil {
			if ctx.Err() == nil {
				host.Log.Error("no LB gets "+reported+" any more", "error", err)
			}
			return nil
		}
		back, err := answer(from.Addr(), b)
		if err != nil {
			return err
		}
		if back != nil {
			socket.Send(from, back) // one that cannot be sent is one that is lost
		}
	}
}

// answer is the answer to a datagram; nil: there is none.
func (r *agent) answer(from netip.Addr, b []byte) ([]byte, error) {
	p := &r.reporting
	m, lb, ok := report.Asked(&r.now.Load().Node, from, b)
	if !ok {
		p.refused.Add(1)
		return nil, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	cfg := r.now.Load()
	if !p.limit.Take(r.host.Clock.Now()) {
		p.limited.Add(1)
		return nil, nil
	}
	for i := range cfg.Services {
		if o := &cfg.Services[i]; o.VIP == m.VIP {
			l, err := r.plane.Load(i)
			if err != nil {
				return nil, err
			}
			// By payload only the requests of flows with an entry here are counted, which flows of
			// modes that ask have not.
			m.Known, m.Report = l.Known && !l.Measure.Row().Payload, r.loadOf(o, float64(l.Busy))
		}
	}
	p.answered.Add(1)
	return report.Reply(&cfg.Node, lb, m), nil
}

func (r *agent) loadOf(o *topo.Offering, busy float64) weights.Report {
	return weights.Report{Busy: busy, Workers: float64(o.Workers), Cores: r.cores(o)}
}
