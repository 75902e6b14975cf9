package control

import (
	"fmt"
	"time"

	"proffer/dataplane"
	"proffer/report"
	"proffer/topo"
	"proffer/weights"
)

const (
	askedAtOnce = 16                    // requests of a server that wait for their answers
	perServer   = 50 * time.Microsecond // at least, between two requests
	missedMost  = 4                     // requests without an answer, after which a report is lost,
	lostAfter   = time.Second           // but not before
)

// Poller asks the agents of a service's servers for their loads. It owns no clock, no socket and no
// goroutine.
type Poller struct {
	svc     *topo.Service
	weigher *weights.Polled // nil: the mode has no weights by reports
	servers []polled
	next    time.Duration // when to ask
}

// polled is a server that is asked.
type polled struct {
	asks   [askedAtOnce]ask // the last ones
	asked  int
	missed int           // requests since the last report
	since  time.Duration // of the last report, or the first request
	known  bool          // there is a report, and it is not lost
	lost   bool          // that was noted
	why    string        // an answer without a report came last
	report weights.Report
	begun  uint32 // flows, when it was asked
	fresh  bool   // the data plane has not got it
}

// ask is a request.
type ask struct {
	nonce uint64
	begun uint32
	open  bool // it is not answered
}

// NewPoller makes the poller of a service. Servers of the poller before it, which may be nil, keep
// their reports.
func NewPoller(svc *topo.Service, before *Poller) *Poller {
	p := &Poller{svc: svc, servers: make([]polled, len(svc.Servers))}
	switch n := len(svc.Servers); svc.Dispatch.Row().Weights {
	case topo.FromLoads:
		p.weigher = weights.NewAdaptive(n)
	case topo.FromWorkers:
		p.weigher = weights.NewFeedback(n)
	}
	if before == nil {
		return p
	}
	for j := range before.svc.Servers {
		if i := p.find(before.svc.Servers[j].Where()); i >= 0 {
			p.servers[i] = before.servers[j]
			p.servers[i].fresh = p.servers[i].known
			p.weigh(0, i)
		}
	}
	return p
}

// find is the number of the server at a locator or address, or -1.
func (p *Poller) find(where string) int {
	for i := range p.svc.Servers {
		if p.svc.Servers[i].Where() == where {
			return i
		}
	}
	return -1
}

// weigh gives the weigher the report of a server.
func (p *Poller) weigh(at time.Duration, i int) {
	switch s := &p.servers[i]; {
	case p.weigher == nil:
	case s.known:
		p.weigher.Observe(at, weights.Sample{Server: i, Report: &s.report})
	default:
		p.weigher.Lose(i)
	}
}

// Every is the time between two requests of a server.
func (p *Poller) Every() time.Duration {
	return max(p.svc.Dispatch.Row().Polls, time.Duration(len(p.servers))*perServer)
}

// Due reports whether it is time to ask.
func (p *Poller) Due(at time.Duration) bool { return at >= p.next }

// Change is a report that was lost, or is there again.
type Change struct {
	Server string
	Lost   bool
	After  time.Duration // the last report
	Why    string
}

// Ask asks all servers, which have begun so many flows: by these nonces, in their order.
func (p *Poller) Ask(at time.Duration, begun []uint32, random func() uint64) (nonces []uint64, changes []Change) {
	p.next = at + p.Every()
	for i := range p.servers {
		s := &p.servers[i]
		if s.asked == 0 {
			s.since = at
		}
		if s.missed++; s.missed > missedMost && at-s.since >= lostAfter && !s.lost {
			s.known, s.lost = false, true
			p.weigh(at, i)
			changes = append(changes, Change{p.svc.Servers[i].Name, true, at - s.since, s.trouble()})
		}
		one := ask{random(), begun[i], true}
		s.asks[s.asked%askedAtOnce] = one
		s.asked++
		nonces = append(nonces, one.nonce)
	}
	p.average(begun)
	return nonces, changes
}

func (s *polled) trouble() string {
	if s.why != "" {
		return s.why
	}
	return "no answer"
}

// average has servers without a report count as the average of the others.
func (p *Poller) average(begun []uint32) {
	sum, n := 0.0, 0
	for i := range p.servers {
		if p.servers[i].known {
			sum += p.servers[i].report.Busy
			n++
		}
	}
	for i := range p.servers {
		if s := &p.servers[i]; !s.known {
			s.report.Busy, s.begun, s.fresh = sum/float64(max(n, 1)), begun[i], true
		}
	}
}

// Answer takes the answer of the server at a locator. False: it was not asked for, or is answered
// already, as a repeated datagram is.
func (p *Poller) Answer(at time.Duration, where string, m *report.Message) (asked bool, change *Change) {
	i := p.find(where)
	if i < 0 {
		return false, nil
	}
	s := &p.servers[i]
	begun, asked := s.close(m.Nonce)
	if !asked {
		return false, nil
	}
	if !m.Known {
		s.why = "its agent does not know the service, or its load (`load: busy` sees none of these modes)"
		return true, nil
	}
	if s.lost {
		change = &Change{p.svc.Servers[i].Name, false, at - s.since, ""}
	}
	s.known, s.lost, s.missed, s.since, s.why = true, false, 0, at, ""
	s.report, s.begun, s.fresh = m.Report, begun, true
	p.weigh(at, i)
	return true, change
}

// close ends a request and those before it, as their answers would be older.
func (s *polled) close(nonce uint64) (begun uint32, asked bool) {
	for k := range min(s.asked, askedAtOnce) {
		one := &s.asks[(s.asked-1-k)%askedAtOnce]
		if one.open && one.nonce == nonce {
			begun, asked = one.begun, true
		}
		one.open = one.open && !asked
	}
	return begun, asked
}

// Queues are the requests in hand that the data plane has not got, where the mode chooses by them.
func (p *Poller) Queues() (all []dataplane.Queue) {
	if !p.svc.Dispatch.Row().Choice.Queues() {
		return nil
	}
	for i := range p.servers {
		if s := &p.servers[i]; s.fresh {
			s.fresh = false
			all = append(all, dataplane.Queue{Server: i, Requests: uint32(s.report.Busy), Begun: s.begun})
		}
	}
	return all
}

// Weights are those by the reports; nil: the mode has none.
func (p *Poller) Weights(at time.Duration) []float64 {
	if p.weigher == nil {
		return nil
	}
	return p.weigher.Weights(at)
}

// why explains the weight of a server.
func (p *Poller) why(at time.Duration, i int) string {
	s := &p.servers[i]
	switch {
	case s.known:
		return fmt.Sprintf("%.0f requests in hand, of %.0f workers and %.3g cores, reported %.1f s ago", s.report.Busy, s.report.Workers, s.report.Cores, max(0, at-s.since).Seconds())
	case s.lost:
		return fmt.Sprintf("no report for %.1f s (%s): average assumed", (at - s.since).Seconds(), s.trouble())
	}
	return "no report yet: average assumed"
}
