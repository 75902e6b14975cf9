package oracle

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"proffer/policy"
	"proffer/topo"
)

// fromDomain handles a packet for one of the LB's SIDs.
func (l *LB) fromDomain(outer ip) Answer {
	function := parseSID(outer.dst).function
	answer := function == createStickiness || function == removeStickiness
	if !answer && function != notMine && function != recoverStickiness {
		return drop(BadFunction)
	}
	s, bad := open(outer)
	if bad != "" {
		return drop(bad)
	}
	if answer {
		s.upper = s.upper.turned()
	}
	server := s.from()
	own := function == recoverStickiness
	svc := (*topo.Service)(nil)
	if s.upper.ports {
		svc = l.service(s.upper)
	}
	_, more := s.next()
	switch {
	case more || s.inserted && s.route.left > 1:
		return drop(SegmentsLeft)
	case own && server != l.Locator || !own && !l.isServer(server):
		return drop(Stranger)
	case svc == nil || !svc.Signals() || answer && s.upper.kind == tooBig: // its source may be any router
		return drop(NotOurService)
	case s.inserted != (inserts(svc, s.upper) && function != notMine):
		return drop(WrongWire)
	case !l.believed(s, own):
		return drop(BadTag)
	case !own && !l.mayHave(svc, s.upper.flow, server):
		return drop(NotCandidate)
	case answer:
		return l.answered(s, svc, server)
	case own:
		return l.goOn(s, svc)
	default:
		return l.givenBack(s, svc, server)
	}
}

// mayHave reports whether a server may have a flow: it is one of those that are asked, or has it.
func (l *LB) mayHave(svc *topo.Service, f policy.Flow, server netip.Prefix) bool {
	o, known := l.flows[f]
	e, waiting := l.embryonic[f]
	return known && o.server == server || waiting && e.server == server || slices.Contains(l.union(svc, f), server)
}

// believed reports whether a signal carries its sender's tag. An LB without keys
// believes every sender.
func (l *LB) believed(s *signal, own bool) bool {
	if len(l.Keys) == 0 {
		return true
	}
	for _, k := range l.Keys {
		if k.ID == s.sid.key {
			if own {
				return s.authentic(k.Farm)
			}
			return s.authentic(l.ServerKey(k, s.from()))
		}
	}
	return false
}

func (l *LB) isServer(p netip.Prefix) bool {
	for _, svc := range l.Services {
		for _, s := range svc.Servers {
			if s.Locator == p {
				return true
			}
		}
	}
	return false
}

// answered is createStickiness and removeStickiness. Its packet goes on to the
// client, unless another server was first.
func (l *LB) answered(s *signal, svc *topo.Service, server netip.Prefix) Answer {
	mac, near := l.Neighbours.Lookup(s.upper.flow.Client.Addr())
	switch {
	case s.inner.hop <= 1:
		return drop(HopLimit)
	case !near:
		return drop(NoNeighbour)
	}
	claim := owner{server: server, generation: s.sid.generation}
	claim.client = s.sid.flags&flagClientClosed != 0
	claim.closed = s.sid.flags&flagServerClosed != 0
	if s.sid.function == removeStickiness || s.upper.flags&flagRST != 0 { // no word of a life
		l.forget(s.upper, claim)
	} else if s.upper.kind == tcp && s.upper.flags&flagSYN != 0 && l.keeps(s.upper, claim) {
		return drop(NotReleased)
	} else if !l.learn(s.upper, claim) {
		return l.reject(s, svc, server)
	}
	p, ok := s.decapsulated()
	if !ok {
		return drop(Congested)
	}
	p.hop--
	if s.upper.kind == tcp && s.upper.flags&flagSYN != 0 {
		usual := len(svc.Via) + 1 + svc.Candidates()
		p = clamped(p, s.upper.bytes, l.MTU-cost(usual, svc.Wire == topo.Insert))
	}
	return l.send(mac, append(p.append(nil), p.trailer...), Unwrapped)
}

// learn returns false if another server took this very connection before.
func (l *LB) learn(u upper, claim owner) bool {
	o, known := l.flows[u.flow]
	if known && o.generation == claim.generation {
		if o.server == claim.server {
			l.flows[u.flow] = o.closedAs(claim)
		}
		return o.server == claim.server
	}
	if l.keeps(u, claim) {
		return true // late: it changes nothing
	}
	e, waiting := l.embryonic[u.flow]
	opening := u.kind == udp || u.kind == tcp && u.flags&flagSYN != 0
	if opening && !known && waiting && e.generation == claim.generation && e.server != claim.server {
		return false
	}
	if l.flows == nil {
		l.flows = map[policy.Flow]owner{}
	}
	if l.embryonic == nil {
		l.embryonic = map[policy.Flow]owner{}
	}
	delete(l.embryonic, u.flow)
	if opening {
		delete(l.flows, u.flow)
		claim.expects = u.seq + 1
		l.embryonic[u.flow] = claim
	} else {
		l.flows[u.flow] = claim
	}
	return true
}

// keeps reports whether a flow is another server's, in another connection, which that server has
// neither ended nor released. Time, in which it might fall silent, stands still.
func (l *LB) keeps(u upper, claim owner) bool {
	o, known := l.flows[u.flow]
	return known && !o.over() && o.server != claim.server && o.generation != claim.generation
}

// forget closes a flow, and knows of it from now on.
func (l *LB) forget(u upper, claim owner) {
	o, known := l.flows[u.flow]
	e, waiting := l.embryonic[u.flow]
	if known {
		waiting = false
	} else if !waiting {
		e = claim
	} else {
		o = e
	}
	if (known || waiting) && (o.generation != claim.generation || o.server != claim.server) {
		return
	}
	if !known {
		o = owner{server: e.server, generation: e.generation}
		delete(l.embryonic, u.flow)
	}
	o = o.closedAs(claim)
	o.reset = o.reset || u.flags&flagRST != 0
	o.closed = o.closed || u.flags&flagRST == 0
	if l.flows == nil {
		l.flows = map[policy.Flow]owner{}
	}
	l.flows[u.flow] = o
}

// reject ends the request of the server that came second, once the client has
// confirmed the first: the client's RST (RFC
// 9293 §3.10.7.3: at the sequence number that the SYN-ACK acknowledged) in an rj.
func (l *LB) reject(s *signal, svc *topo.Service, server netip.Prefix) Answer {
	u := s.upper
	_, confirmed := l.flows[u.flow]
	if u.kind != tcp || u.flags&flagSYN == 0 || !confirmed { // the survivor is not decided
		return drop(Conflict)
	}
	if _, ok := s.decapsulated(); !ok {
		return drop(Congested)
	}
	client, vip := u.flow.Client, u.flow.VIP
	u.bytes = 0
	seg := make([]byte, 20)
	binary.BigEndian.PutUint16(seg[0:], client.Port())
	binary.BigEndian.PutUint16(seg[2:], vip.Port())
	binary.BigEndian.PutUint32(seg[4:], u.ack)
	seg[12], seg[13] = 5<<4, flagRST
	binary.BigEndian.PutUint16(seg[16:], checksum(pseudo(client.Addr(), vip.Addr(), nextTCP, len(seg)), seg))
	p := ip{
		six: s.inner.six, next: nextTCP, hop: 64, src: client.Addr(), dst: vip.Addr(),
		label: labelOf(u.flow), payload: seg, whole: true,
	}
	if !p.six {
		p.header = header4(p.src, p.dst, nextTCP, len(seg))
	}
	return l.toOne(p, nil, u, svc, server, rejectSecond, s.sid.generation, Rejected)
}

// givenBack is a client's packet that a server does not want: the others are
// asked once, and for a SYN the last of them has the last word.
func (l *LB) givenBack(s *signal, svc *topo.Service, server netip.Prefix) Answer {
	u := s.upper
	w := wish{except: server}
	o, known := l.flows[u.flow]
	switch {
	case u.opens() && s.sid.flags&flagHeld != 0:
		return l.challenged(s, svc, server)
	case u.opens() && known && !o.over() && o.server == server && o.generation != s.sid.generation:
		delete(l.flows, u.flow) // released
		w.offer, w.generation = true, s.sid.generation
	case u.opens() || u.kind == udp && s.sid.generation == 0:
		w.offer, w.generation, w.flags, w.forced = true, s.sid.generation, flagFinal, topo.MaxChoices
	default:
		for _, entries := range []map[policy.Flow]owner{l.flows, l.embryonic} {
			if o, known := entries[u.flow]; known && o.server == server && o.generation == s.sid.generation {
				delete(entries, u.flow)
			}
		}
		w.question, w.offer = true, u.kind == udp
	}
	if len(l.union(svc, u.flow)) < 2 {
		w.except = netip.Prefix{}
	}
	return l.again(s, svc, w, GivenBack)
}

// challenged is a SYN for a live connection, which the stack of its server answers.
func (l *LB) challenged(s *signal, svc *topo.Service, server netip.Prefix) Answer {
	p, ok := s.decapsulated()
	if !ok {
		return drop(Congested)
	}
	return l.toOne(p, append(p.append(nil), p.trailer...), s.upper, svc, server, connectForce, s.sid.generation, Offered)
}

// goOn is a packet that comes back for the rest of its list.
func (l *LB) goOn(s *signal, svc *topo.Service) Answer {
	u := s.upper
	w := wish{from: int(s.sid.report & 0xff), turn: int(s.sid.report >> 8), generation: s.sid.generation, flags: s.sid.flags}
	w.offer = u.opens() || u.kind == udp
	w.question = !u.opens()
	return l.again(s, svc, w, GoneOn)
}

// again sends a client's packet that came back to servers.
func (l *LB) again(s *signal, svc *topo.Service, w wish, why Reason) Answer {
	p, ok := s.decapsulated()
	if !ok {
		return drop(Congested)
	}
	return l.toMany(p, append(p.append(nil), p.trailer...), s.upper, svc, w, why)
}

// clamped lowers the MSS that a SYN offers (RFC 9293 §3.7.1) to the payload of a
// packet of mtu bytes.
func clamped(p ip, options, mtu int) ip {
	most := mtu - 40
	if p.six {
		most = mtu - 60
	}
	whole := append([]byte(nil), p.payload...)
	b := whole[options:]
	end := int(b[12]>>4) * 4
	for at := 20; at+4 <= end; {
		switch {
		case b[at] == 0:
			return p
		case b[at] == 1:
			at++
			continue
		case b[at] == 2:
			value := int(binary.BigEndian.Uint16(b[at+2:]))
			if b[at+1] != 4 || value <= most {
				return p
			}
			check := binary.BigEndian.Uint16(b[16:])
			for _, from := range []int{at + 2, at + 3} { // byte by byte: it may stand anywhere
				new := byte(most >> 8)
				if from == at+3 {
					new = byte(most)
				}
				word := from &^ 1
				old := binary.BigEndian.Uint16(b[word:])
				b[from] = new
				check = ^add(^check, ^old, binary.BigEndian.Uint16(b[word:]))
			}
			binary.BigEndian.PutUint16(b[16:], check)
			p.payload = whole
			return p
		case b[at+1] < 2:
			return p
		default:
			at += int(b[at+1])
		}
	}
	return p
}
