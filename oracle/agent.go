package oracle

import (
	"net/netip"

	"proffer/policy"
	"proffer/topo"
)

// Offering is a service of a server as far as the headers' fate depends on it.
type Offering struct {
	Listening bool // somebody accepts connections, and has room
	Takes     bool // offers that could be passed on too
}

// Agent is a server's agent over a kernel without a connection.
type Agent struct {
	Node
	Services map[topo.VIP]Offering
	conns    map[policy.Flow]uint16 // generation
}

// Receive answers one frame from the link and remembers what it accepted.
func (a *Agent) Receive(frame []byte) Answer {
	eth, rest, ok := parseLink(frame)
	if !ok || eth.kind != kindIPv6 {
		return pass(NotForUs)
	}
	outer, ok := parseIPv6(rest)
	switch {
	case !ok || !a.Locator.Contains(outer.dst) || function(outer.dst) == 0:
		return pass(NotForUs)
	case !outer.whole:
		return drop(Truncated)
	}
	s, bad := open(outer, outer.trailer)
	if bad != "" {
		return drop(bad)
	}
	if s.inner.next != protocolTCP {
		return drop(NotOurService)
	}
	if s.tcp, ok = parseTCP(s.inner.payload); !ok {
		return drop(BadTCP)
	}
	service, ours := a.Services[topo.VIP{Addr: s.inner.dst, Port: s.tcp.dst}]
	if !ours {
		return drop(NotOurService)
	}
	return a.perform(eth, s, service)
}

// perform is the function that the packet asks for.
func (a *Agent) perform(eth link, s signal, service Offering) Answer {
	_, more := s.next()
	switch fn := function(s.outer.dst); fn {
	case connectAvail, connectForce:
		if !s.tcp.opens() {
			return drop(NotSYN)
		}
		if more && fn == connectAvail && !a.wants(s, service) {
			return a.passOn(s)
		}
		if service.Listening {
			a.remember(s)
		}
		return a.deliver(eth, s)
	case ackStickiness:
		return a.deliver(eth, s)
	case recoverStickiness: // nothing is ours
		if more {
			return a.passOn(s)
		}
		return a.deliver(eth, s)
	case deliverHere: // End.DT6, RFC 8986 §4.6, S02
		if more {
			return drop(SegmentsLeft)
		}
		return a.deliver(eth, s)
	default:
		return drop(BadFunction)
	}
}

func (s *signal) flow() policy.Flow {
	return policy.Flow{
		Client: netip.AddrPortFrom(s.inner.src, s.tcp.src),
		VIP:    netip.AddrPortFrom(s.inner.dst, s.tcp.dst),
	}
}

// wants: a connection that is here already is answered again; another is taken
// if somebody listens and has nothing against it.
func (a *Agent) wants(s signal, service Offering) bool {
	if have, known := a.conns[s.flow()]; known && have == policy.Generation(s.tcp.seq) {
		return true
	}
	return service.Listening && service.Takes
}

func (a *Agent) remember(s signal) {
	if a.conns == nil {
		a.conns = map[policy.Flow]uint16{}
	}
	a.conns[s.flow()] = policy.Generation(s.tcp.seq)
}

// deliver hands the inner packet to the node's own stack.
func (a *Agent) deliver(eth link, s signal) Answer {
	inner, ok := decapsulated(s.inner, s.outer)
	if !ok {
		return drop(Congested)
	}
	frame := inner.append(link{a.MAC, eth.from, kindIPv6}.append(nil))
	return Answer{Action: Deliver, Frame: append(frame, s.behind...), Why: Forwarded}
}

// passOn is RFC 8754 §4.3.1.1, S05 to S15, for a packet with segments left.
func (a *Agent) passOn(s signal) Answer {
	next, _ := s.next()
	outer, route := s.outer, *s.route
	if outer.hop <= 1 {
		return drop(HopLimit)
	}
	mac, near := a.Neighbours.Lookup(next)
	if !near {
		return drop(NoNeighbour)
	}
	behind := outer.payload[len(s.route.append(nil)):]
	outer.hop--
	outer.dst = next
	route.left--
	outer.payload = append(route.append(nil), behind...)
	frame := outer.append(link{mac, a.MAC, kindIPv6}.append(nil))
	return Answer{Action: Transmit, Frame: append(frame, s.outer.trailer...), Why: Forwarded}
}

// Known counts the connections that it remembers.
func (a *Agent) Known() int { return len(a.conns) }

// Forget forgets all connections.
func (a *Agent) Forget() { a.conns = nil }
