package oracle

import (
	"encoding/binary"
	"net/netip"

	"proffer/policy"
	"proffer/topo"
)

// Offering is a service of a server as far as the headers' fate depends on it.
type Offering struct {
	Listening bool // a process accepts connections, and has room
	Takes     bool // offers that could be passed on too
	Wire      topo.Wire
}

// Agent is a server's agent over a kernel without a connection: whatever it
// accepts stays embryonic.
type Agent struct {
	Node
	Services map[topo.VIP]Offering
	waits    map[policy.Flow]uint16 // generation
	refused  map[uint16]uint32      // by slot: a new offer takes the slot of an old one
}

// Receive answers one frame from the link and remembers an accepted flow.
func (a *Agent) Receive(frame []byte) Answer {
	eth, rest, ok := parseLink(frame)
	if !ok || eth.kind != kindIPv6 || eth.to != a.MAC {
		return pass(NotForUs)
	}
	outer, ok := parseIPv6(rest)
	if !ok || !a.Locator.Contains(outer.dst) || parseSID(outer.dst).function == 0 {
		return pass(NotForUs)
	}
	s, bad := open(outer)
	if bad != "" {
		return drop(bad)
	}
	if !s.upper.ports {
		return drop(NotOurService)
	}
	service, ours := a.Services[s.upper.vip()]
	if !ours {
		return drop(NotOurService)
	}
	if s.inserted != (service.Wire == topo.Insert && s.upper.bytes == 0) {
		return drop(WrongWire)
	}
	return a.perform(eth, s, service)
}

// perform is the function that the packet asks for (6LB Table III, with the
// transitions that it leaves out).
func (a *Agent) perform(eth link, s *signal, service Offering) Answer {
	_, more := s.next()
	generation, waiting := a.waits[s.upper.flow]
	same := waiting && generation == s.sid.generation
	switch s.sid.function {
	case connectAvail, connectForce:
		return a.offered(eth, s, service)
	case ackStickiness:
		if same {
			return a.deliver(eth, s)
		}
		return a.giveBack(s)
	case recoverStickiness: // nothing is ours
		switch {
		case more:
			return a.passOn(s)
		case s.upper.kind == tcp: // TCP's stack has an answer
			return a.deliver(eth, s)
		default:
			return drop(NoServer)
		}
	case rejectSecond:
		switch {
		case more:
			return drop(SegmentsLeft)
		case s.upper.kind != tcp || s.upper.flags&flagRST == 0 || !same:
			return drop(Stale)
		default:
			delete(a.waits, s.upper.flow)
			return a.deliver(eth, s)
		}
	case deliverHere: // End.DT6, RFC 8986 §4.6, S02
		if more {
			return drop(SegmentsLeft)
		}
		return a.deliver(eth, s)
	default:
		return drop(BadFunction)
	}
}

// offered: a connection that is here already is answered again; another is taken
// if a process listens and its load allows it, or the server must.
func (a *Agent) offered(eth link, s *signal, service Offering) Answer {
	_, more := s.next()
	generation := generationOf(s.upper.seq)
	if !s.upper.opens() {
		return drop(NotSYN)
	}
	if have, waiting := a.waits[s.upper.flow]; waiting && have == generation {
		return a.deliver(eth, s)
	}
	h := digest(s.upper)
	place, mark := uint16(h), uint32(h>>32)|1
	passOn := a.passOn
	if s.sid.flags&flagHeld != 0 { // released, for others
		passOn = a.giveBack
	}
	switch {
	case more && s.sid.flags&flagRetry != 0 && a.refused[place] == mark:
		return passOn(s)
	case !service.Listening && more:
		return passOn(s)
	case !service.Listening && s.sid.flags&flagFinal != 0:
		return a.deliver(eth, s)
	case !service.Listening:
		return a.giveBack(s)
	case more && s.sid.function == connectAvail && !service.Takes:
		if a.refused == nil {
			a.refused = map[uint16]uint32{}
		}
		a.refused[place] = mark
		return passOn(s)
	}
	if a.waits == nil {
		a.waits = map[policy.Flow]uint16{}
	}
	a.waits[s.upper.flow] = generation
	return a.deliver(eth, s)
}

// deliver hands the inner packet to the node's own stack.
func (a *Agent) deliver(eth link, s *signal) Answer {
	p, ok := s.decapsulated()
	if !ok {
		return drop(Congested)
	}
	answer := a.send(a.MAC, append(p.append(nil), p.trailer...), Forwarded)
	answer.Action = Deliver
	copy(answer.Frame[6:12], eth.from[:]) // the source address stays
	return answer
}

// giveBack returns a packet to the LB that sent it, which asks the others.
func (a *Agent) giveBack(s *signal) Answer {
	p, ok := s.decapsulated()
	to := sid{locator: s.from(), function: notMine, generation: s.sid.generation}.address()
	mac, near := a.Neighbours.Lookup(to)
	switch {
	case !near:
		return drop(NoNeighbour)
	case !ok:
		return drop(Congested)
	}
	w := path{segments: []netip.Addr{to}, tag: func([]netip.Addr) netip.Addr { return a.untagged(s.upper.flow) }}
	return a.send(mac, w.put(p, labelOf(s.upper.flow)), GivenBack)
}

// passOn is RFC 8754 §4.3.1.1, S05 to S15, for a packet with segments left.
func (a *Agent) passOn(s *signal) Answer {
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
	return a.send(mac, append(outer.append(nil), s.outer.trailer...), Asked)
}

// Known counts the connections that it remembers.
func (a *Agent) Known() int { return len(a.waits) }

// Forget forgets all connections.
func (a *Agent) Forget() { a.waits = nil }

// digest mixes a flow and its initial sequence number.
func digest(u upper) uint64 {
	var b [40]byte
	client, vip := u.flow.Client.Addr().As16(), u.flow.VIP.Addr().As16()
	copy(b[0:], client[:])
	copy(b[16:], vip[:])
	binary.BigEndian.PutUint16(b[32:], u.flow.Client.Port())
	binary.BigEndian.PutUint16(b[34:], u.flow.VIP.Port())
	b[36] = u.flow.Protocol.Number()
	h := uint64(u.seq)
	for i := 0; i < len(b); i += 8 {
		h = policy.Mix(h ^ binary.LittleEndian.Uint64(b[i:]))
	}
	return h
}
