package oracle

import (
	"net/netip"
	"slices"

	"proffer/policy"
	"proffer/table"
	"proffer/topo"
)

// wish is the request to a list of servers.
type wish struct {
	question   bool         // first: is the flow yours?
	offer      bool         // then: take it?
	first      netip.Prefix // the server that is offered it before the candidates
	held       bool         // it has a flow of those ports, and must release it
	except     netip.Prefix // the server that is left out
	turn       int          // of the order in each lap
	forced     int          // so many must take it
	from       int          // position in the list to start at
	generation uint16
	flags      byte
}

// A list has 245 positions: 240 for the members of a bucket, which are asked; one
// for the server that is offered the packet first; four for the candidates.
const (
	members    = 240
	firstPlace = members
	places     = members + 1 + topo.MaxChoices
)

// visitor is a server in its place.
type visitor struct {
	place  int
	server netip.Prefix
}

// visitors are the servers of a list that have a neighbour, in their order.
func (l *LB) visitors(svc *topo.Service, f policy.Flow, w wish) (list []visitor) {
	var all [places]netip.Prefix
	if w.question {
		all := all[:0]
		union := l.union(svc, f)
		for i := range union {
			all = append(all, union[(i+w.turn)%len(union)])
		}
	}
	if w.offer {
		all[firstPlace] = w.first
		candidates := l.candidates(svc, f)
		for i := range candidates {
			if c := candidates[(i+w.turn)%len(candidates)]; c != w.first {
				all[firstPlace+1+i] = c
			}
		}
	}
	for place, server := range all {
		if place < w.from || !server.IsValid() || server == w.except {
			continue
		}
		if _, near := l.Neighbours.Lookup(server.Addr()); near {
			list = append(list, visitor{place, server})
		}
	}
	return list
}

// toMany sends a packet along a list. Servers that do not fit are left for another
// round, for which the last segment brings the packet back.
func (l *LB) toMany(p ip, raw []byte, u upper, svc *topo.Service, w wish, why Reason) Answer {
	list := l.visitors(svc, u.flow, w)
	room := l.room(p, inserts(svc, u))
	if room < len(svc.Via)+2 && u.kind == tcp && l.isLong(p, u) {
		if p.length() > l.MTU {
			return drop(TooBig)
		}
		p = cutShort(p, u.bytes)
		room = l.room(p, inserts(svc, u))
	}
	if room == 0 {
		return l.tellTooBig(p, raw, u, svc)
	}
	if len(svc.Via) > 0 {
		if _, near := l.Neighbours.Lookup(svc.Via[0]); !near {
			return drop(NoNeighbour)
		}
	}
	if len(list) == 0 {
		return drop(NoServer)
	}
	room -= len(svc.Via)
	again := len(list) > room
	if again && room < 2 {
		return l.tellTooBig(p, raw, u, svc)
	}
	var servers []netip.Addr
	offered := 0
	for i, v := range list {
		s := sid{locator: v.server, function: recoverStickiness, generation: w.generation, flags: w.flags}
		if v.place >= firstPlace {
			offered++
			s.function = connectAvail
			if offered <= w.forced || i == len(list)-1 {
				s.function = connectForce
			}
		}
		if v.place == firstPlace && w.held {
			s.flags |= flagHeld
		}
		if again && i == room-1 {
			s.flags = w.flags
			s.locator, s.function, s.report = l.Locator, recoverStickiness, uint16(w.turn<<8|v.place)
		}
		if len(l.Keys) > 0 {
			s.key = l.Keys[0].ID
		}
		servers = append(servers, s.address())
		if again && i == room-1 {
			break
		}
	}
	path := l.path(svc, u, slices.Concat(svc.Via, servers), len(l.Keys) > 0)
	return l.forward(p, raw, u, svc, path, why)
}

// mostSegments is how many have room before a frame: some drivers leave 192 bytes, and XDP
// keeps 40 of them.
const mostSegments = 7

// room is how many segments fit beside a packet.
func (l *LB) room(p ip, insert bool) int {
	n := 0
	for n < mostSegments && p.length()+cost(n+1, insert) <= l.MTU {
		n++
	}
	return n
}

// candidates are the servers of the flow's bucket, by consistent hashing.
func (l *LB) candidates(svc *topo.Service, f policy.Flow) (list []netip.Prefix) {
	for _, i := range l.pools(svc)[0].Lookup(l.Key.Digest(f)) {
		list = append(list, svc.Servers[i].Locator)
	}
	return list
}

// union lists the servers that may have the flow: the candidates of today, then those of earlier
// pools that are still in this one.
func (l *LB) union(svc *topo.Service, f policy.Flow) []netip.Prefix {
	list := l.candidates(svc, f)
	for n, v := range svc.History {
		for _, i := range l.pools(svc)[1+n].Lookup(l.Key.Digest(f)) {
			s := v.Servers[i].Locator
			here := slices.ContainsFunc(svc.Servers, func(t topo.Server) bool { return t.Locator == s })
			if here && len(list) < members && !slices.Contains(list, s) {
				list = append(list, s)
			}
		}
	}
	return list
}

func (l *LB) pools(svc *topo.Service) []*table.Table {
	if l.tables == nil {
		l.tables = map[*topo.Service][]*table.Table{}
	}
	if l.tables[svc] == nil {
		pools := [][]topo.Server{svc.Servers}
		for _, v := range svc.History {
			pools = append(pools, v.Servers)
		}
		for _, pool := range pools {
			t, err := table.Of(svc, pool)
			if err != nil {
				panic(err) // the test's configuration is wrong
			}
			l.tables[svc] = append(l.tables[svc], t)
		}
	}
	return l.tables[svc]
}
