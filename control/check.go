package control

import (
	"slices"
	"time"

	"proffer/dataplane"
	"proffer/topo"
)

// Where connections show nothing, a server is checked through its agent: of services of UDP and of modes
// that know no flows, and while it drains. A server that answered checks and then leaves more than
// mostMissed of them without an answer is down, if another server gave a sign of life meanwhile: else it is
// the network, or this machine. A server that never gave a sign is down after twice as many, if checks of
// another server came back. Checks are counted, not time, so a machine that stalls takes no server out; and
// so many, that a server that drops a third of its packets is wrongly down once in a hundred million checks.
const (
	quietFor   = 200 * time.Millisecond
	mostMissed = 16
	mostChecks = 32 // at a time

	seldomFor = 10 * time.Second // until a server is asked again whether it answers checks, if its connections are seen
)

// checking is what checks show of a server.
type checking struct {
	checked bool          // it is checked
	drains  bool          // of a service
	life    time.Duration // when a check came back, or it answered a connection
	lived   bool          // it did
	proved  bool          // a check came back
	missed  int           // checks since then
	doubted bool          // some, at the last reading
	last    time.Duration // the last check
	turn    int           // of its services, which are asked about
	off     bool          // it is down by its checks
}

// Checks are the servers that the data plane is to check after this reading: first those that have left a check
// without an answer, so that it shows soon whether they are down, and while any is in doubt or down, a server that lives,
// as a sign that checks come back. Turn after turn goes on with those that this turn has no room for.
func (h *Health) Checks(at time.Duration) []dataplane.Check {
	doubted := func(s *observed) bool { return s.checked && s.missed > 0 && !s.down }
	list := h.check(nil, at, mostChecks/2, &h.turns.doubted, doubted)
	sought := len(list) > 0 || slices.ContainsFunc(h.servers, func(s *observed) bool { return s.down })
	if sought && at-h.heard >= quietFor {
		witness := func(s *observed) bool { return s.proved && s.missed == 0 && !s.down }
		list = h.check(list, at, len(list)+1, &h.turns.witnesses, witness)
	}
	return h.check(list, at, mostChecks, &h.turns.others, func(s *observed) bool { return !doubted(s) && s.due(at) })
}

// checkTurns are the servers that are checked first at the next time.
type checkTurns struct{ doubted, witnesses, others int }

// check adds servers to a list, from a number on.
func (h *Health) check(list []dataplane.Check, at time.Duration, most int, from *int, which func(*observed) bool) []dataplane.Check {
	first := *from
	for i := range h.servers {
		if len(list) == most {
			break
		}
		number := (first + i) % len(h.servers)
		s := h.servers[number]
		if !s.known || s.Delivery != topo.ByAgent || s.last == at || !which(s) {
			continue
		}
		*from = number + 1
		s.missed++
		s.last = at
		s.turn++ // its agent may have some of its services alone
		list = append(list, dataplane.Check{VIP: s.every[s.turn%len(s.every)].vip, Server: s.Server})
	}
	return list
}

// due reports whether a server that is not in doubt is checked: a server that drains with each reading, as datagrams of
// unknown flows ask it; a server that is down not so often; others when they were quiet for a moment.
func (s *observed) due(at time.Duration) bool {
	switch {
	case s.down:
		return at-s.last >= quietFor
	case !s.proved && (s.last == 0 || at-s.last >= seldomFor):
		return true
	default:
		return s.checked && (s.drains || at-s.life >= quietFor)
	}
}

// look takes the kernel's word for a server without an agent: a server that has no next hop is at its link address no
// more, or its gateway is gone. Each reading counts as a check.
func (s *observed) look(at time.Duration, reached bool) {
	if s.missed++; reached {
		s.life, s.lived, s.proved, s.missed = at, true, true, 0
	}
}

// isDead reports whether a server that is down, and has answered checks, leaves them without an answer while they
// come back from another: a new connection that is offered to it would wait in vain. Once a minute one does, as its
// kernel may serve in the place of its agent.
func (h *Health) isDead(s *observed, at time.Duration) bool {
	return s.down && s.proved && s.missed > 0 && h.heard > s.since && at < s.probing.due+time.Minute
}

// isOff reports whether a server that is checked leaves its checks without an answer while others live.
func (h *Health) isOff(s *observed) bool {
	if !s.checked || s.missed <= mostMissed || !s.lived && s.missed <= 2*mostMissed {
		return false
	}
	for _, o := range h.servers {
		if o != s && o.life > s.life+quietFor && (s.proved || o.proved) {
			return true
		}
	}
	return false
}

// Doubted are the servers that are not down and have left a check without an answer: no datagram that may
// begin a flow asks them.
func (h *Health) Doubted() (list []topo.Server) {
	for _, s := range h.servers {
		if s.doubted && !s.down {
			list = append(list, s.Server)
		}
	}
	return list
}
