package oracle

import (
	"net/netip"
	"slices"

	"proffer/topo"
)

// signal is an SR packet for this node, taken apart: encapsulated, or with the
// segments inside its own header.
type signal struct {
	outer    ip
	sid      sid
	route    *segments // nil when one segment was enough
	inserted bool
	inner    ip // without its segments
	upper    upper
	sender   netip.Addr // of the segments: locator and tag
}

// next returns the segment after this node's, if it is another node's: the last
// one of an inserted route is the packet's destination.
func (s *signal) next() (netip.Addr, bool) {
	if s.route == nil || s.route.left == 0 || s.inserted && s.route.left == 1 {
		return netip.Addr{}, false
	}
	return s.route.list[s.route.left-1], true
}

func (s *signal) from() netip.Prefix { return netip.PrefixFrom(s.sender, 64).Masked() }

// open takes an SR packet apart from the outside in.
func open(outer ip) (s *signal, bad Reason) {
	s = &signal{outer: outer, sid: parseSID(outer.dst), sender: outer.src}
	if !outer.whole {
		return s, Truncated
	}
	rest, next := outer.payload, outer.next
	if next == nextRouting {
		route, n, bad := parseSegments(rest)
		if bad == "" && len(route.tlvs) > 0 {
			bad = WithTLV
		}
		if bad != "" {
			return s, bad
		}
		s.route, next, rest = route, route.next, rest[n:]
	}
	switch {
	case next == nextIPv6 || next == nextIPv4:
		inner, ok := parseIP(rest)
		if !ok || !inner.whole {
			if ok && inner.six != (next == nextIPv6) {
				return s, NotEncaps
			}
			return s, Truncated
		}
		if inner.six != (next == nextIPv6) {
			return s, NotEncaps
		}
		inner.trailer = slices.Concat(inner.trailer, outer.trailer)
		s.inner = inner
	case s.route != nil && (next == nextTCP || next == nextUDP || next == nextICMP6):
		s.inserted, s.inner = true, outer
		s.inner.next, s.inner.payload, s.inner.dst = next, rest, s.route.list[0]
		s.sender = s.route.list[s.route.last]
	default:
		return s, NotEncaps
	}
	s.upper = parseUpper(s.inner)
	switch {
	case s.upper.cut:
		return s, Truncated
	case s.upper.bad != "":
		return s, s.upper.bad
	}
	return s, ""
}

// signed are the segments that the sender's tag covers, in the order of the SRH.
func (s *signal) signed() []netip.Addr {
	switch {
	case s.route == nil:
		return []netip.Addr{s.outer.dst}
	case s.inserted:
		return s.route.list[:s.route.last]
	default:
		return s.route.list
	}
}

// authentic reports whether the sender's address is the tag that key gives.
func (s *signal) authentic(key topo.Key) bool {
	a := s.sender.As16()
	tag := tagOf(key, s.upper.flow, s.from(), s.signed())
	return len(s.signed()) <= 16 && slices.Equal(a[8:], tag)
}

// decapsulated is the packet as it comes out: of a tunnel by RFC 6040 §4.2, or
// false if it must be dropped.
func (s *signal) decapsulated() (ip, bool) {
	if s.inserted {
		return s.inner, true
	}
	return decapsulated(s.inner, s.outer)
}

func decapsulated(inner, outer ip) (ip, bool) {
	const notECT, ect1, ect0, ce = 0, 1, 2, 3
	in, out := inner.class&3, outer.class&3
	switch {
	case out != ce && !(out == ect1 && in == ect0):
		return inner, true
	case in == notECT:
		return inner, false
	default:
		inner.class = inner.class&^3 | out
		return inner, true
	}
}

// A path is where a packet goes.
type path struct {
	segments []netip.Addr // first to last
	insert   bool
	tag      func(covered []netip.Addr) netip.Addr // the sender's address
}

// bytes is the cost of the path: RFC 8986 §5.2, or sender and destination in the
// list as well.
func (w path) bytes() int { return cost(len(w.segments), w.insert) }

func cost(n int, insert bool) int {
	switch {
	case insert:
		return 8 + 16*(n+2)
	case n == 1:
		return 40
	default:
		return 40 + 8 + 16*(n-1)
	}
}

// put is the packet on its path.
func (w path) put(p ip, label uint32) []byte {
	last := slices.Clone(w.segments)
	slices.Reverse(last)
	if w.insert {
		covered := append([]netip.Addr{p.dst}, last...)
		header := segments{
			next: p.next, left: len(last), last: len(last) + 1, list: append(slices.Clone(covered), w.tag(covered)),
		}
		p.next, p.dst, p.payload = nextRouting, w.segments[0], append(header.append(nil), p.payload...)
		return append(p.append(nil), p.trailer...)
	}
	inside := byte(nextIPv6)
	if !p.six {
		inside = nextIPv4
	}
	outer := ip{six: true, class: p.class, label: label, next: inside, hop: 64, dst: w.segments[0]}
	if n := len(last); n > 1 {
		header := segments{next: inside, left: n - 1, last: n - 2, list: last[:n-1]}
		outer.next, outer.payload = nextRouting, header.append(nil)
		outer.src = w.tag(last[:n-1])
	} else {
		outer.src = w.tag(last)
	}
	outer.payload = p.append(outer.payload)
	return append(outer.append(nil), p.trailer...)
}
