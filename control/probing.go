package control

import (
	"net/netip"
	"time"

	"proffer/topo"
)

// Probe is a server that a service's next suitable new connection is offered to although it is down;
// without a server: none is.
type Probe struct {
	VIP    topo.VIP
	Server netip.Addr
}

const (
	probeEvery   = time.Second     // at first; twice as long after each probe
	probeSeldom  = 8 * time.Second // at most
	steadyFor    = 30 * time.Second
	offeredAgain = time.Second // by another service, where no connection came
)

// probing is the search for a sign of life of a server that is down.
type probing struct {
	pause time.Duration // between two probes
	due   time.Duration // the next one
	out   bool          // it waits for a connection
	asked time.Duration // since then
	seen  uint64        // probes that were offered before it
	via   int           // which of the server's services it is for
}

// begin begins the probing of a server that was up for some time. A server that answers for a moment only
// is probed as seldom as before.
func (p *probing) begin(at, up time.Duration) {
	if p.pause == 0 || up >= steadyFor {
		p.pause = probeEvery
	}
	p.due, p.out = at+p.pause, false
}

// step moves on: offered is how many probes the server had so far.
func (p *probing) step(at time.Duration, offered uint64) {
	switch {
	case p.out && offered != p.seen:
		p.out, p.pause = false, min(2*p.pause, probeSeldom)
		p.due = at + p.pause
	case p.out && at-p.asked >= offeredAgain:
		p.asked = at
		p.via++
	case !p.out && at >= p.due:
		p.out, p.asked, p.seen = true, at, offered
		p.via++
	}
}

// wish is a probe that a service is to have, and the how manieth of its server: each is set again, as
// the data plane forgets it with the service's table.
type wish struct {
	server netip.Addr
	via    int
}

// probe notes which probes the data plane should have: of each service one at most.
func (h *Health) probe(at time.Duration) {
	wanted := map[*peers][]wish{}
	for _, s := range h.servers {
		if p, via := h.seeks(s, at); p != nil {
			wanted[p] = append(wanted[p], wish{s.At(), via})
		}
	}
	for _, p := range h.services {
		w := wish{}
		if list := wanted[p]; len(list) > 0 {
			w = list[h.turn%len(list)]
		}
		if w != p.probe {
			p.probe = w
			h.probes = append(h.probes, Probe{VIP: p.vip, Server: w.server})
		}
	}
}

// seeks is the service whose new connection is to be offered to a server, and the how manieth
// that is; nil: none.
func (h *Health) seeks(s *observed, at time.Duration) (*peers, int) {
	search, pools, offered := &s.probing, s.open, s.probed
	s.suspect = !s.down && s.isSuspect(at)
	if !s.down {
		search, pools, offered = &s.test, s.starving, s.sum.offered
		if !s.suspect {
			s.test.out = false
			return nil, 0
		}
	}
	if len(pools) == 0 || h.isDead(s, at) {
		return nil, 0
	}
	search.step(at, offered)
	if search.pause == 0 && !search.out { // a suspect's next one at once
		search.step(at, offered)
	}
	if !search.out {
		return nil, 0
	}
	return pools[search.via%len(pools)], search.via
}

const (
	// suspicion is evidence from which on a server gets new connections that show whether it answers:
	// once in twenty by chance.
	suspicion = 3
	// starved is how many unanswered connections a server has at most if they keep others away. Forged
	// SYNs are more, and do not count.
	starved = 8
	// leastHunch is the part of a service's patience after which a connection without an answer makes
	// its server a suspect, unless answers that came later have shown that this is too soon.
	leastHunch = 4
	calmFor    = 10 * time.Second // until it is tried again
)

// isSuspect reports whether a server lacks the connections that would show that it answers nothing.
// Where a server is chosen by its flows, those that it does not answer keep others away from it.
func (s *observed) isSuspect(at time.Duration) bool {
	return len(s.starving) > 0 && less(s.sum.offered, s.base.own.offered) < starved &&
		s.doubt(at, overdue) >= suspicion && s.doubt(at, all) < enough
}

// clear notes that a suspect has answered: its services wait longer until the next suspect is.
func (s *observed) clear(at time.Duration) {
	for _, p := range s.starving {
		p.hunch, p.calm = min(2*p.hunch, p.patience), at
	}
}

// settle lets a service suspect its servers sooner, as all suspects of late were down.
func (p *peers) settle(at time.Duration) {
	if at-p.calm >= calmFor {
		p.hunch, p.calm = max(p.hunch/2, p.patience/leastHunch), at
	}
}

// Probes are the changes of probes since the last call, for the data plane.
func (h *Health) Probes() []Probe {
	list := h.probes
	h.probes = nil
	return list
}
