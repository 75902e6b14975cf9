package control

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"proffer/dataplane"
	"proffer/topo"
)

// Health decides which servers are down, from the counts of a data plane: a server that has answered
// none of its new connections, while its peers answered theirs, gets no others but a few, the probes,
// until it answers a connection. It owns no clock and no goroutine.
//
// One answer proves that a server lives, so no packets of others take a server out that has clients.
// At most half of the servers of a service are down.
type Health struct {
	servers  []*observed // each once
	services []*peers    // with flows that the data plane knows
	at       map[netip.Addr]*observed
	turn     int
	turns    checkTurns
	heard    time.Duration // when a check came back last, from any server
	probes   []Probe
}

const (
	signalPatience = 200 * time.Millisecond // time in which a server with an agent answers
	clientPatience = 400 * time.Millisecond // time in which a client acknowledges an answer
	mostPatience   = 3200 * time.Millisecond
	lateWithin     = 3 * time.Second // of being down, an answer is one to an earlier connection
)

// observed is a server as far as it is known.
type observed struct {
	topo.Server
	pools    []*peers // that it is in, whose answers are seen
	open     []*peers // those of them in which it gets new flows, unless it is down
	starving []*peers // those of these that choose it by its flows
	every    []*peers // that it is in

	count dataplane.Health // at the last reading
	checking

	known bool    // there was one
	sum   answers // since the first
	hints uint64  // repeated SYNs and ICMP errors since then
	trail trail   // of sum
	base  base

	down   bool
	since  time.Duration // that it is down, or is not
	probed uint64        // connections that it was offered since it is down
	probing
	test    probing // while it is not down
	suspect bool    // it is not down, and gets connections that show whether it answers
}

// base has the sums when a server answered last.
type base struct {
	at    time.Duration
	own   answers
	hints uint64
	count dataplane.Health
	pools map[*peers]answers
}

// peers are the servers of a service, as far as they are known.
type peers struct {
	vip      topo.VIP
	shows    bool // answers to its connections are seen
	tabled   bool // its tables are without servers that are down
	servers  []*observed
	weighs   []bool        // of each server: it gets new flows, unless it is down
	patience time.Duration // in which connections are answered
	hunch    time.Duration // in which most are, as far as is known
	calm     time.Duration // since then no suspect has answered
	sum      answers       // of its servers, while they were not down
	trail    trail
	probe    wish // that the data plane has
}

// HealthChange is a server that went down, or answers again.
type HealthChange struct {
	Server string
	Down   bool
	After  time.Duration    // without an answer, or that it was down
	Counts dataplane.Health // of that time
}

// NewHealth makes a Health that knows no server.
func NewHealth() *Health { return &Health{at: map[netip.Addr]*observed{}} }

// Configure begins with other services; of servers and services that stay all is remembered.
func (h *Health) Configure(services []topo.Service) {
	before := map[topo.VIP]*peers{}
	for _, p := range h.services {
		before[p.vip] = p
	}
	known := h.at
	h.servers, h.services, h.at = nil, nil, map[netip.Addr]*observed{}
	for i := range services {
		svc := &services[i]
		p := before[svc.VIP]
		if p == nil {
			p = &peers{vip: svc.VIP, patience: clientPatience}
			if svc.Dispatch.Signals() {
				p.patience = signalPatience
			}
			p.hunch = p.patience / leastHunch
		}
		p.tabled = svc.Dispatch.Tracks()
		p.shows, p.servers, p.weighs = svc.VIP.Protocol == topo.TCP && p.tabled, nil, nil
		h.services = append(h.services, p)
		for j := range svc.Servers {
			s := h.take(&svc.Servers[j], known)
			p.servers = append(p.servers, s)
			drains := svc.Servers[j].Weight == 0
			p.weighs = append(p.weighs, !drains)
			s.drains = s.drains || drains
			s.checked = s.checked || drains || !p.shows
			if s.every = append(s.every, p); p.shows {
				s.pools = append(s.pools, p)
			}
			if p.shows && !drains {
				s.open = append(s.open, p)
				if svc.Dispatch.Row().Choice.Scores() {
					s.starving = append(s.starving, p)
				}
			}
		}
	}
}

// take returns a server of the configuration, as it was known before.
func (h *Health) take(server *topo.Server, known map[netip.Addr]*observed) *observed {
	addr := server.At()
	if s := h.at[addr]; s != nil {
		return s
	}
	s := known[addr]
	if s == nil {
		s = &observed{base: base{pools: map[*peers]answers{}}}
	}
	s.Server, s.pools, s.open, s.starving, s.every = *server, nil, nil, nil, nil
	s.checked, s.drains = false, false
	h.at[addr] = s
	h.servers = append(h.servers, s)
	return s
}

// Servers are those of all services, each once, in an order that stays until Configure.
func (h *Health) Servers() []topo.Server {
	all := make([]topo.Server, len(h.servers))
	for i, s := range h.servers {
		all[i] = s.Server
	}
	return all
}

// Observe takes a reading of Servers, and returns those that changed.
func (h *Health) Observe(at time.Duration, counts []dataplane.Health) (changes []HealthChange) {
	h.turn++
	for i, s := range h.servers {
		h.grow(s, at, counts[i])
	}
	for _, p := range h.services {
		p.trail = p.trail.add(at, p.sum, at-mostPatience)
		p.settle(at)
	}
	for _, s := range h.servers {
		answered := s.base.own.answered != s.sum.answered || s.off && s.missed == 0
		if answered && s.down {
			changes = append(changes, s.revive(at))
		}
		if answered && s.suspect {
			s.clear(at)
		}
		if answered {
			s.rebase(at)
		}
	}
	changes = append(changes, h.takeOut(at)...)
	h.probe(at)
	return changes
}

// grow adds a server's counts, which wrap, to its sums and to those of its services.
func (h *Health) grow(s *observed, at time.Duration, now dataplane.Health) {
	was := s.count
	s.count = now
	if !s.known {
		s.known, s.since, s.base.at, s.base.count, was = true, at, at, now, now
	}
	if now.Alive != was.Alive || now.Answered != was.Answered {
		s.life, s.missed, s.lived = at, 0, true
	}
	if now.Alive != was.Alive {
		s.proved, h.heard = true, at
	}
	if s.Delivery != topo.ByAgent {
		s.look(at, now.Reached)
	}
	s.doubted = s.checked && s.missed > 0 && (s.proved || !s.lived)
	more := answers{uint64(now.Offered - was.Offered), uint64(now.Answered - was.Answered)}
	s.sum.add(more)
	s.hints += uint64(now.Repeated-was.Repeated) + uint64(now.Unreachable-was.Unreachable)
	s.trail = s.trail.add(at, s.sum, at-mostPatience)
	if s.down {
		s.probed += more.offered
		return
	}
	for _, p := range s.pools {
		p.sum.add(more)
	}
}

// rebase begins the observation of a server again: it has just answered.
func (s *observed) rebase(at time.Duration) {
	s.base = base{at: at, own: s.sum, hints: s.hints, count: s.count, pools: map[*peers]answers{}}
	for _, p := range s.pools {
		s.base.pools[p] = p.sum
	}
}

// sinceAnswer counts since the last answer before this reading; the counts wrap.
func (s *observed) sinceAnswer() dataplane.Health {
	now, was := s.count, s.base.count
	return dataplane.Health{
		Offered: now.Offered - was.Offered, Repeated: now.Repeated - was.Repeated,
		Answered: now.Answered - was.Answered, Unreachable: now.Unreachable - was.Unreachable,
	}
}

// revive gives new flows to a server that answers again. If that is a late answer to a connection of
// the time before it was down, the clients of its services are farther away than was known.
func (s *observed) revive(at time.Duration) HealthChange {
	if s.probed == 0 && !s.off && at-s.since < lateWithin {
		for _, p := range s.pools {
			p.patience = min(2*p.patience, mostPatience)
		}
	}
	change := HealthChange{Server: s.Name, After: at - s.since, Counts: s.sinceAnswer()}
	s.down, s.off, s.since = false, false, at
	return change
}

// takeOut takes out servers that answer nothing, the surest first.
func (h *Health) takeOut(at time.Duration) (changes []HealthChange) {
	doubts := map[*observed]float64{}
	var suspects []*observed
	for _, s := range h.servers {
		if s.down {
			continue
		}
		if doubts[s] = s.doubt(at, ripe); h.isOff(s) {
			doubts[s] = enough + doubts[s]
		}
		if doubts[s] >= enough {
			suspects = append(suspects, s)
		}
	}
	slices.SortStableFunc(suspects, func(a, b *observed) int { return cmp.Compare(doubts[b], doubts[a]) })
	for _, s := range suspects {
		if slices.ContainsFunc(s.every, func(p *peers) bool { return p.gives(s) && !p.spares() }) {
			continue
		}
		changes = append(changes, HealthChange{Server: s.Name, Down: true, After: at - s.base.at, Counts: s.sinceAnswer()})
		s.begin(at, at-s.since)
		s.down, s.off, s.since, s.probed = true, h.isOff(s), at, 0
	}
	return changes
}

// spares reports whether a service can do without another server: at most half of its servers are
// down.
func (p *peers) spares() bool {
	down, all := p.downAndAll()
	return 2*(down+1) <= all
}

// gives reports whether a server gets new flows of a service, unless it is down.
func (p *peers) gives(s *observed) bool {
	i := slices.Index(p.servers, s)
	return i >= 0 && p.weighs[i]
}

// downAndAll counts the servers that get new flows, or would if they were not down.
func (p *peers) downAndAll() (down, all int) {
	for i, s := range p.servers {
		if p.weighs[i] {
			all++
		}
		if p.weighs[i] && s.down {
			down++
		}
	}
	return down, all
}

// Down reports whether a server is down.
func (h *Health) Down(addr netip.Addr) bool {
	s := h.at[addr]
	return s != nil && s.down
}

// Served returns cfg as new flows meet it: servers that are down have no weight. A service of which
// more than half of the servers are down, as its pool has changed since, keeps all.
func (h *Health) Served(cfg *topo.LB) *topo.LB {
	served := *cfg
	served.Services = slices.Clone(cfg.Services)
	for _, p := range h.services {
		i := slices.IndexFunc(served.Services, func(s topo.Service) bool { return s.VIP == p.vip })
		if down, all := p.downAndAll(); i < 0 || !p.tabled || down == 0 || 2*down > all {
			continue
		}
		svc := &served.Services[i]
		svc.Servers = slices.Clone(svc.Servers)
		for j := range svc.Servers {
			if h.Down(svc.Servers[j].At()) {
				svc.Servers[j].Weight = 0
			}
		}
	}
	return &served
}

// ServerHealth is all that is known of a server.
type ServerHealth struct {
	Counts dataplane.Health
	Down   bool
	Since  time.Duration // that it is down, or is not
	Silent time.Duration // since its last answer, or since it is known
	Doubt  float64       // evidence that it answers nothing, of Enough
	Pause  time.Duration // between two probes
	Probed uint64        // probes since it is down
}

// Of returns the counts and the state of a server; false: it was not read yet.
func (h *Health) Of(addr netip.Addr, at time.Duration) (ServerHealth, bool) {
	s := h.at[addr]
	if s == nil || !s.known {
		return ServerHealth{}, false
	}
	answered := s.base.at
	if s.Delivery == topo.ByAgent {
		answered = max(answered, s.life)
	}
	return ServerHealth{
		Counts: s.count, Down: s.down, Since: at - s.since, Silent: at - answered, Doubt: s.doubt(at, ripe), Pause: s.pause, Probed: s.probed,
	}, true
}
