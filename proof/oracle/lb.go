package oracle

import (
	"net/netip"
	"slices"

	"proffer/policy"
	"proffer/table"
	"proffer/topo"
)

// LB is a load balancer with tables of no end and no clock.
type LB struct {
	Node
	Key      policy.DigestKey
	Services []topo.Service
	Keys     []topo.SignalKey
	// ServerKey is the key that a server signs with.
	ServerKey func(k topo.SignalKey, locator netip.Prefix) topo.Key

	tables    map[*topo.Service][]*table.Table // of today, then of the history
	flows     map[policy.Flow]owner
	embryonic map[policy.Flow]owner
	syns      map[uint16]seen
}

// owner is the server that has a flow, by the servers' signals.
type owner struct {
	server     netip.Prefix
	generation uint16
	expects    uint32 // of an embryonic flow: the number that the client acknowledges
	client     bool   // has closed
	closed     bool   // the server has
	reset      bool
	kept       bool // the client's packets made the entry
}

// closedAs is o after a word of its server about the sides that have closed.
func (o owner) closedAs(claim owner) owner {
	o.client, o.closed = o.client || claim.client, o.closed || claim.closed
	return o
}

func (o owner) over() bool { return o.reset || o.client && o.closed }

// seen is the LB's memory of SYNs: little, and a new SYN takes the slot
// of an old one.
type seen struct {
	digest uint32
	times  int
}

// Receive answers one frame and remembers the flow that it reports.
func (l *LB) Receive(frame []byte) Answer {
	eth, rest, ok := parseLink(frame)
	if !ok {
		return pass(NotForUs)
	}
	var p ip
	switch eth.kind {
	case kindIPv6:
		p, ok = parseIPv6(rest)
	case kindIPv4:
		p, ok = parseIPv4(rest)
	default:
		ok = false
	}
	switch {
	case !ok || eth.to != l.MAC:
		return pass(NotForUs)
	case !l.Locator.Contains(p.dst):
		return l.fromClient(eth, p, rest)
	case p.next == nextICMP6:
		return l.aboutOurs(p)
	case parseSID(p.dst).function == 0:
		return pass(NotForUs)
	default:
		return l.fromDomain(p)
	}
}

func (l *LB) service(u upper) *topo.Service {
	for i, s := range l.Services {
		if s.VIP == u.vip() {
			return &l.Services[i]
		}
	}
	return nil
}

func (l *LB) isVIP(a netip.Addr) bool {
	return slices.ContainsFunc(l.Services, func(s topo.Service) bool { return s.VIP.Addr == a })
}

func (l *LB) fromClient(eth link, p ip, raw []byte) Answer {
	u := parseUpper(p)
	svc := (*topo.Service)(nil)
	if u.ports {
		svc = l.service(u)
	}
	switch {
	case (p.hop <= 1 || u.bytes > 0 || u.quotes > 0) && !l.isVIP(p.dst): // whatever it quotes
		return pass(NotForUs)
	case svc == nil:
		return l.withoutService(eth, p, raw, u)
	case u.bad != "":
		return drop(u.bad)
	case !p.whole:
		return drop(Truncated)
	case u.kind == tooBig && p.six && u.mtu < 1280:
		return drop(SmallMTU)
	case p.hop <= 1:
		return l.expire(eth, p, raw, u)
	case svc.Dispatch.Keeps():
		return l.kept(p, raw, u, svc)
	case !svc.Dispatch.Signals():
		return l.stateless(p, raw, u, svc)
	default:
		return l.hunt(p, raw, u, svc)
	}
}

// withoutService is a packet that shows no port of a service.
func (l *LB) withoutService(eth link, p ip, raw []byte, u upper) Answer {
	if u.broken { // it may have been about a service, or not
		return Answer{Action: Drop, Why: Truncated, Either: true}
	}
	if !l.isVIP(p.dst) {
		return pass(NotForUs)
	}
	switch {
	case u.cut:
		return Answer{Action: Drop, Why: Truncated, Either: u.padded}
	case u.bad != "":
		return drop(u.bad)
	case !p.whole:
		return drop(Truncated)
	case u.hidden != "":
		return drop(u.hidden)
	case u.kind == echo && isOneNode(p.src):
		return l.send(eth.from, echoReply(p, u), Echoed)
	case u.kind == tcp && u.flags&flagRST == 0 && isOneNode(p.src):
		return l.send(eth.from, resetFor(u), Refused)
	case u.kind == udp && isOneNode(p.src):
		return l.send(eth.from, unreachableFor(p, raw, u), Refused)
	case isDiscovery(p):
		return pass(NotForUs)
	default:
		return drop(NotServed)
	}
}

// expire answers a packet that goes no further (RFC 4443 §3.3, RFC 792), unless that is an
// error.
func (l *LB) expire(eth link, p ip, raw []byte, u upper) Answer {
	if u.kind == tooBig || !isOneNode(p.src) {
		return drop(HopLimit)
	}
	return l.send(eth.from, timeExceededFor(p, raw, u), Expired)
}

// isOneNode: an address that may be answered (RFC 4443 §2.4(e), RFC 1122 §3.2.2).
func isOneNode(a netip.Addr) bool {
	if a.Is4() {
		b := a.As4()
		return b[0] != 0 && !a.IsLoopback() && b[0] < 224
	}
	return !a.IsUnspecified() && !a.IsLoopback() && !a.IsMulticast()
}

// isDiscovery: neighbour discovery of a node on the link (RFC 4861 §4, §7.1.1).
func isDiscovery(p ip) bool {
	p, _, _ = p.bare()
	b := append(slices.Clone(p.payload), p.trailer...)
	return p.six && p.next == nextICMP6 && p.hop == 255 && len(b) > 0 && b[0] >= 133 && b[0] <= 137
}

// hunt finds the server of a packet of a service with flows (6LB Table II, with
// the transitions that it leaves out).
func (l *LB) hunt(p ip, raw []byte, u upper, svc *topo.Service) Answer {
	if u.opens() {
		return l.offer(p, raw, u, svc)
	}
	if o, known := l.flows[u.flow]; known {
		if o.client && o.closed && u.data > 0 { // of another connection, it may be
			return l.ask(p, raw, u, svc)
		}
		if u.kind == tcp && u.flags&flagFIN != 0 {
			o.client = true
			l.flows[u.flow] = o
		}
		return l.toOne(p, raw, u, svc, o.server, ackStickiness, o.generation, Steered)
	}
	if o, known := l.embryonic[u.flow]; known {
		if u.kind == udp || u.kind == tcp && u.flags&flagACK != 0 && u.ack == o.expects {
			delete(l.embryonic, u.flow)
			l.flows[u.flow] = owner{
				server: o.server, generation: o.generation, client: u.kind == tcp && u.flags&flagFIN != 0,
			}
		} else if u.kind == tcp && u.flags&flagACK != 0 { // of a connection with another server
			return l.ask(p, raw, u, svc)
		}
		return l.toOne(p, raw, u, svc, o.server, ackStickiness, o.generation, Steered)
	}
	return l.ask(p, raw, u, svc)
}

// ask finds the server of a packet's flow. The order turns with every packet
// that comes again; datagrams are thought to do so from the fourth of a flow on,
// and then every second packet asks no server and is offered.
func (l *LB) ask(p ip, raw []byte, u upper, svc *topo.Service) Answer {
	w := wish{question: true, offer: u.kind == udp}
	if u.kind != tooBig {
		w.turn = l.sawBefore(u)
	}
	if u.kind == udp {
		w.question = w.turn < 3 || w.turn%2 == 0
		if w.turn < 3 {
			w.turn = 0
		}
		w.turn /= 2
	}
	return l.toMany(p, raw, u, svc, w, Asked)
}

// offer proffers a new connection: to the server that has the five-tuple, if any, then to
// its candidates. An offer that comes again is marked; from the second time on others
// come first, and every other time the first must take it.
func (l *LB) offer(p ip, raw []byte, u upper, svc *topo.Service) Answer {
	w := wish{offer: true, generation: generationOf(u.seq)}
	times := l.sawBefore(u)
	if times > 0 {
		w.flags, w.turn = flagRetry, times/2
		if times > 1 && times%2 == 1 {
			w.forced = 1
		}
	}
	if o, known := l.flows[u.flow]; known {
		w.first, w.held = o.server, !o.over() && o.generation != w.generation
	} else if o, known := l.embryonic[u.flow]; known {
		w.first = o.server
	}
	if times > 1 { // it does not answer
		w.first, w.held = netip.Prefix{}, false
	}
	return l.toMany(p, raw, u, svc, w, Offered)
}

func (l *LB) stateless(p ip, raw []byte, u upper, svc *topo.Service) Answer {
	list := l.candidates(svc, u.flow)
	if len(list) == 0 {
		return drop(NoServer)
	}
	return l.toOne(p, raw, u, svc, list[0], deliverHere, 0, Forwarded)
}

// toOne sends a packet to one server. Only rj and cf are signed.
func (l *LB) toOne(p ip, raw []byte, u upper, svc *topo.Service, server netip.Prefix, function, generation uint16, why Reason) Answer {
	if _, near := l.Neighbours.Lookup(server.Addr()); !near {
		return drop(NoNeighbour)
	}
	last := sid{locator: server, function: function, generation: generation}
	signed := (function == rejectSecond || function == connectForce) && len(l.Keys) > 0
	if signed {
		last.key = l.Keys[0].ID
	}
	w := l.path(svc, u, append(slices.Clone(svc.Via), last.address()), signed)
	return l.forward(p, raw, u, svc, w, why)
}

// inserts: the packets of a service go with the segments inside; not those with options,
// as hop-by-hop options are right behind the IPv6 header (RFC 8200 §4.1).
func inserts(svc *topo.Service, u upper) bool { return svc.Wire == topo.Insert && u.bytes == 0 }

// path is a path that this LB signs, or not.
func (l *LB) path(svc *topo.Service, u upper, segments []netip.Addr, signed bool) path {
	return path{segments: segments, insert: inserts(svc, u), tag: func(covered []netip.Addr) netip.Addr {
		a := l.untagged(u.flow).As16()
		if signed {
			tag := tagOf(l.Keys[0].Farm, u.flow, l.Locator, covered)
			copy(a[8:], tag)
		}
		return netip.AddrFrom16(a)
	}}
}

// forward sends a packet on its path, as a router would (RFC 2473 §3.1).
func (l *LB) forward(p ip, raw []byte, u upper, svc *topo.Service, w path, why Reason) Answer {
	if p.length()+w.bytes() > l.MTU {
		return l.tellTooBig(p, raw, u, svc)
	}
	mac, near := l.Neighbours.Lookup(w.segments[0])
	switch {
	case !near:
		return drop(NoNeighbour)
	case p.hop <= 1:
		return drop(HopLimit)
	}
	p.hop--
	return l.send(mac, w.put(p, labelOf(u.flow)), why)
}

// tellTooBig answers a packet that has no room for its path. The client learns of
// a size that has room for every usual one: a question to as many servers as an
// offer has, and the way back.
func (l *LB) tellTooBig(p ip, raw []byte, u upper, svc *topo.Service) Answer {
	if l.isLong(p, u) {
		return l.leave(p)
	}
	if u.kind == tooBig { // no error about an error (RFC 4443 §2.4)
		return drop(TooBig)
	}
	mac, near := l.Neighbours.Lookup(u.flow.Client.Addr())
	if !near {
		return drop(NoNeighbour)
	}
	usual := len(svc.Via) + 1
	if svc.Signals() {
		usual += svc.Candidates()
	}
	report, ok := tooBigFor(p, raw, u, l.MTU-cost(usual, svc.Wire == topo.Insert))
	if !ok {
		return drop(TooBig)
	}
	return l.send(mac, report, ReportedTooBig)
}

// sawBefore counts how often this packet of the flow came before.
func (l *LB) sawBefore(u upper) int {
	h := policy.Mix(l.Key.Digest(u.flow) ^ uint64(u.seq))
	slot, d := uint16(h), uint32(h>>32)
	if l.syns == nil {
		l.syns = map[uint16]seen{}
	}
	was := l.syns[slot]
	if was.digest != d {
		was.times = 0
	}
	l.syns[slot] = seen{d, min(was.times+1, 255)}
	return was.times
}

// Known counts the flows that it remembers.
func (l *LB) Known() int { return len(l.flows) + len(l.embryonic) }

// Forget forgets all flows.
func (l *LB) Forget() { l.flows, l.embryonic = nil, nil }
