package oracle

import (
	"net/netip"

	"proffer/policy"
	"proffer/topo"
)

// keptGeneration is that of an entry which no signal made.
const keptGeneration = 1

// kept finds the server of a packet of a service of which the clients' packets make the
// entries. No packet of a client moves a flow.
func (l *LB) kept(p ip, raw []byte, u upper, svc *topo.Service) Answer {
	if o, known := l.flows[u.flow]; known {
		l.note(u, o)
		return l.toKeeper(p, raw, u, svc, o, true)
	}
	if o, known := l.embryonic[u.flow]; known {
		grown := u.kind == udp || u.kind == tcp && !u.opens() && u.flags&flagRST == 0
		if grown {
			delete(l.embryonic, u.flow)
			l.note(u, o)
		}
		return l.toKeeper(p, raw, u, svc, o, grown)
	}
	asks := svc.Recovery == topo.AgentsRecovery
	switch {
	case u.opens() || u.kind == udp && !asks:
		list := l.candidates(svc, u.flow)
		if len(list) == 0 {
			return drop(NoServer)
		}
		return l.begun(p, raw, u, svc, list[0])
	case asks:
		return l.ask(p, raw, u, svc)
	}
	return l.begun(p, raw, u, svc, l.presumed(svc, u.flow))
}

// note changes an established entry by a packet of its client.
func (l *LB) note(u upper, o owner) {
	if u.kind == tcp && u.opens() {
		o.client, o.closed, o.reset = false, false, false
	}
	if u.kind == tcp && u.flags&flagFIN != 0 {
		o.client, o.closed = true, true
	}
	if u.kind == tcp && u.flags&flagRST != 0 {
		o.reset = true
	}
	if l.flows == nil {
		l.flows = map[policy.Flow]owner{}
	}
	l.flows[u.flow] = o
}

// toKeeper sends a packet of a flow with an entry: in as, if a signal made it.
func (l *LB) toKeeper(p ip, raw []byte, u upper, svc *topo.Service, o owner, established bool) Answer {
	if established && !o.kept {
		return l.toOne(p, raw, u, svc, o.server, ackStickiness, o.generation, Steered)
	}
	return l.toOne(p, raw, u, svc, o.server, deliverHere, 0, Kept)
}

// begun sends a packet of a flow without an entry, and makes one if the flow goes on.
func (l *LB) begun(p ip, raw []byte, u upper, svc *topo.Service, server netip.Prefix) Answer {
	over := u.kind == tcp && u.flags&(flagFIN|flagRST) != 0
	if (u.kind == tcp || u.kind == udp) && !over {
		if l.embryonic == nil {
			l.embryonic = map[policy.Flow]owner{}
		}
		l.embryonic[u.flow] = owner{server: server, generation: keptGeneration, kept: true}
	}
	return l.toOne(p, raw, u, svc, server, deliverHere, 0, Begun)
}

// presumed is the server that the oldest pool has for a flow, if it is still there.
func (l *LB) presumed(svc *topo.Service, f policy.Flow) netip.Prefix {
	for n := len(svc.History) - 1; n >= 0; n-- {
		for _, i := range l.pools(svc)[1+n].Lookup(l.Key.Digest(f)) {
			for _, s := range svc.Servers {
				if s.Locator == svc.History[n].Servers[i].Locator {
					return s.Locator
				}
			}
		}
	}
	return l.candidates(svc, f)[0]
}
