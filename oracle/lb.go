package oracle

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"proffer/policy"
	"proffer/topo"
)

// LB is a load balancer whose table has no end and no clock.
type LB struct {
	Node
	Key      topo.Key
	Services []topo.Service
	flows    map[policy.Flow]owner
}

type owner struct {
	server     netip.Prefix
	generation uint16
}

// Receive answers one frame and remembers what it learnt from it.
func (l *LB) Receive(frame []byte) Answer {
	eth, rest, ok := parseLink(frame)
	if !ok || eth.kind != kindIPv6 {
		return pass(NotForUs)
	}
	ip, ok := parseIPv6(rest)
	switch {
	case !ok:
		return pass(NotForUs)
	case !l.Locator.Contains(ip.dst):
		return l.fromClient(ip)
	case function(ip.dst) == 0:
		return pass(NotForUs)
	case !ip.whole:
		return drop(Truncated)
	default:
		return l.fromServer(ip)
	}
}

func (l *LB) service(a netip.Addr, port uint16) *topo.Service {
	for i, s := range l.Services {
		if s.VIP == (topo.VIP{Addr: a, Port: port}) {
			return &l.Services[i]
		}
	}
	return nil
}

func (l *LB) isVIP(a netip.Addr) bool {
	return slices.ContainsFunc(l.Services, func(s topo.Service) bool { return s.VIP.Addr == a })
}

func (l *LB) fromClient(ip ipv6) Answer {
	if !l.isVIP(ip.dst) {
		return pass(NotForUs)
	}
	if ip.next != protocolTCP {
		if mayHideTCP(ip.next) {
			return drop(ExtHeader)
		}
		return pass(NotForUs)
	}
	if len(ip.payload) < 4 { // no port to tell whose it is, unless padding is read as one
		return Answer{Action: Drop, Why: Truncated, Either: len(ip.payload)+len(ip.trailer) >= 4}
	}
	svc := l.service(ip.dst, binary.BigEndian.Uint16(ip.payload[2:]))
	if svc == nil {
		return pass(NotForUs)
	}
	if !ip.whole {
		return drop(Truncated)
	}
	segment, ok := parseTCP(ip.payload)
	if !ok {
		return drop(BadTCP)
	}
	flow := policy.Flow{
		Client: netip.AddrPortFrom(ip.src, segment.src),
		VIP:    netip.AddrPortFrom(ip.dst, segment.dst),
	}
	route := l.route(svc, flow, segment)
	if len(route) == 0 {
		return drop(NoServer)
	}
	return l.encapsulate(ip, flow, route)
}

// route lists the segments of a packet, first to last.
func (l *LB) route(svc *topo.Service, f policy.Flow, t tcp) (route []netip.Addr) {
	choices := svc.Choices
	if svc.Dispatch == topo.Single {
		choices = 1
	}
	var list []netip.Prefix
	for _, i := range policy.Candidates(policy.Hash(l.Key, f), len(svc.Servers), choices) {
		list = append(list, svc.Servers[i].Locator)
	}
	if svc.Dispatch == topo.Single {
		return []netip.Addr{makeSID(list[0], deliverHere, 0)}
	}
	known, isKnown := l.flows[f]
	if !t.opens() {
		if isKnown {
			return []netip.Addr{makeSID(known.server, ackStickiness, known.generation)}
		}
		for _, s := range list {
			route = append(route, makeSID(s, recoverStickiness, 0))
		}
		return route
	}
	if i := slices.Index(list, known.server); isKnown && i > 0 {
		list[0], list[i] = list[i], list[0]
	}
	for i, s := range list {
		fn := uint16(connectAvail)
		if i == len(list)-1 {
			fn = connectForce
		}
		route = append(route, makeSID(s, fn, policy.Generation(t.seq)))
	}
	return route
}

// encapsulate is H.Encaps.Red (RFC 8986 §5.2): the packet is forwarded into
// the tunnel, the first segment is only the destination, one segment needs no
// routing header.
func (l *LB) encapsulate(ip ipv6, f policy.Flow, route []netip.Addr) Answer {
	mac, ok := l.Neighbours.Lookup(route[0])
	if !ok {
		return drop(NoNeighbour)
	}
	if ip.hop <= 1 {
		return drop(HopLimit)
	}
	ip.hop--
	outer := ipv6{
		class: ip.class, label: policy.FlowLabel(f), next: nextIPv6, hop: 64,
		src: l.ownAddress(), dst: route[0],
	}
	if n := len(route); n > 1 {
		list := slices.Clone(route[1:])
		slices.Reverse(list)
		header := segments{next: nextIPv6, left: n - 1, last: n - 2, list: list}
		outer.next, outer.payload = nextRouting, header.append(nil)
	}
	outer.payload = ip.append(outer.payload)
	if 40+len(outer.payload) > l.MTU {
		return drop(TooBig)
	}
	frame := outer.append(link{mac, l.MAC, kindIPv6}.append(nil))
	return Answer{Action: Transmit, Frame: append(frame, ip.trailer...), Why: Forwarded}
}

// fromServer handles createStickiness and removeStickiness.
func (l *LB) fromServer(outer ipv6) Answer {
	s, bad := open(outer, outer.trailer)
	fn := function(outer.dst)
	ours := fn == createStickiness || fn == removeStickiness
	_, more := s.next()
	switch {
	case bad != "" && bad != Truncated:
		return drop(bad)
	case !ours:
		return drop(BadFunction)
	case more:
		return drop(SegmentsLeft)
	case !l.isServer(outer.src):
		return drop(Stranger)
	case bad != "":
		return drop(bad)
	case s.inner.next != protocolTCP:
		return drop(NotOurService)
	}
	segment, ok := parseTCP(s.inner.payload)
	if !ok {
		return drop(BadTCP)
	}
	if l.service(s.inner.src, segment.src) == nil {
		return drop(NotOurService)
	}
	if fn == createStickiness && !l.learn(s.inner, segment, outer) {
		return drop(Conflict)
	}
	return l.unwrap(s)
}

func (l *LB) isServer(a netip.Addr) bool {
	for _, svc := range l.Services {
		for _, s := range svc.Servers {
			if s.Locator.Contains(a) {
				return true
			}
		}
	}
	return false
}

// learn returns false if another server took this very connection before.
func (l *LB) learn(inner ipv6, t tcp, outer ipv6) bool {
	f := policy.Flow{Client: netip.AddrPortFrom(inner.dst, t.dst), VIP: netip.AddrPortFrom(inner.src, t.src)}
	says := owner{netip.PrefixFrom(outer.src, 64).Masked(), generation(outer.dst)}
	if have, known := l.flows[f]; known && have.generation == says.generation {
		return have == says
	}
	if l.flows == nil {
		l.flows = map[policy.Flow]owner{}
	}
	l.flows[f] = says
	return true
}

// unwrap sends the inner packet on to the client.
func (l *LB) unwrap(s signal) Answer {
	inner, ok := decapsulated(s.inner, s.outer)
	mac, near := l.Neighbours.Lookup(inner.dst)
	switch {
	case !ok:
		return drop(Congested)
	case inner.hop <= 1:
		return drop(HopLimit)
	case !near:
		return drop(NoNeighbour)
	}
	inner.hop--
	frame := inner.append(link{mac, l.MAC, kindIPv6}.append(nil))
	return Answer{Action: Transmit, Frame: append(frame, s.behind...), Why: Forwarded}
}

// Known counts the flows that it remembers.
func (l *LB) Known() int { return len(l.flows) }

// Forget forgets all flows.
func (l *LB) Forget() { l.flows = nil }
