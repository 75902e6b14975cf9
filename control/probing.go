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

// begin begins the probing of a server that was up for some time. One that answers for a moment only
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

// probe notes which probes the data plane should have: of each service one at most.
func (h *Health) probe(at time.Duration) {
	wanted := map[*peers][]netip.Addr{}
	for _, s := range h.servers {
		if !s.down || len(s.pools) == 0 {
			continue
		}
		s.step(at, s.probed)
		if p := s.pools[s.via%len(s.pools)]; s.out {
			wanted[p] = append(wanted[p], s.At())
		}
	}
	for _, p := range h.services {
		addr := netip.Addr{}
		if list := wanted[p]; len(list) > 0 {
			addr = list[h.turn%len(list)]
		}
		if addr != p.probe {
			p.probe = addr
			h.probes = append(h.probes, Probe{VIP: p.vip, Server: addr})
		}
	}
}

// Probes are the changes of probes since the last call, for the data plane.
func (h *Health) Probes() []Probe {
	list := h.probes
	h.probes = nil
	return list
}
