// Package oracle says what a Proffer node must do with one frame: slowly,
// obviously, and written from the RFCs (8200, 8754 §4.3.1.1, 8986 §4 and §5.2,
// 9293, 6040) and DESIGN.md §3 rather than from the programs, so that the real
// eBPF programs can be fuzzed against it. It decodes a frame into values and
// builds the answer from nothing; it knows no clock and no kernel.
package oracle

import (
	"encoding/binary"
	"net/netip"

	"proffer/topo"
)

// Action is what becomes of a frame.
type Action uint8

const (
	Pass     Action = iota // to the kernel, untouched
	Drop                   // nowhere
	Transmit               // out of the link it came by, as Answer.Frame
	Deliver                // to the kernel, as Answer.Frame
)

func (a Action) String() string { return [...]string{"pass", "drop", "transmit", "deliver"}[a] }

// Answer is what must become of one frame, and why.
type Answer struct {
	Action Action
	Frame  []byte
	Why    Reason
	// Either: the rules allow to pass the frame untouched or to drop it.
	Either bool
}

// Reason is a class of reasons: coarser than the programs' counters.
type Reason string

const (
	NotForUs      Reason = "not for us"
	Truncated     Reason = "truncated"
	ExtHeader     Reason = "extension header or fragment before TCP"
	BadTCP        Reason = "malformed TCP header"
	BadSRH        Reason = "malformed SRH"
	BadTLV        Reason = "TLV past the end of its SRH"
	NotEncaps     Reason = "no IPv6 inside"
	BadFunction   Reason = "no function of this node"
	SegmentsLeft  Reason = "segments left at a function that ends the route"
	Stranger      Reason = "sender is no server"
	NotOurService Reason = "inner packet is of no service here"
	NotSYN        Reason = "offer of something else than a SYN"
	Conflict      Reason = "another server has the connection"
	HopLimit      Reason = "hop limit"
	Congested     Reason = "congestion that the inner packet cannot express"
	TooBig        Reason = "too big"
	NoNeighbour   Reason = "no neighbour"
	NoServer      Reason = "no server"
	Forwarded     Reason = "forwarded"
)

func pass(why Reason) Answer { return Answer{Action: Pass, Why: why} }
func drop(why Reason) Answer { return Answer{Action: Drop, Why: why} }

// Node is what LB and Agent have in common.
type Node struct {
	Locator    netip.Prefix
	MAC        topo.MAC
	MTU        int
	Neighbours topo.NextHops
}

// Functions of DESIGN.md §3, as numbered on the wire.
const (
	connectAvail       = 0xca
	connectForce       = 0xcf
	ackStickiness      = 0xa5
	recoverStickiness  = 0xe5
	deliverHere        = 0xd7
	createStickiness   = 0xc5
	removeStickiness   = 0xf5
	protocolTCP        = 6
	nextIPv6           = 41
	nextRouting        = 43
	routingTypeSegment = 4
)

// function and generation take a SID apart: locator 64 bits, function 16, of
// the argument the first 16.
func function(sid netip.Addr) uint16 {
	a := sid.As16()
	return binary.BigEndian.Uint16(a[8:])
}

func generation(sid netip.Addr) uint16 {
	a := sid.As16()
	return binary.BigEndian.Uint16(a[10:])
}

func makeSID(locator netip.Prefix, function, generation uint16) netip.Addr {
	a := locator.Addr().As16()
	binary.BigEndian.PutUint16(a[8:], function)
	binary.BigEndian.PutUint16(a[10:], generation)
	return netip.AddrFrom16(a)
}

// ownAddress is locator::1, whence a node encapsulates.
func (n *Node) ownAddress() netip.Addr {
	a := n.Locator.Addr().As16()
	a[15] = 1
	return netip.AddrFrom16(a)
}

// signal is an SR packet for this node, taken apart.
type signal struct {
	outer  ipv6
	route  *segments // nil when one segment was enough
	inner  ipv6
	tcp    tcp
	behind []byte // what follows the inner packet in the frame
}

// next returns the segment after this node's, if there is one.
func (s *signal) next() (netip.Addr, bool) {
	if s.route == nil || s.route.left == 0 {
		return netip.Addr{}, false
	}
	return s.route.list[s.route.left-1], true
}

// open takes an SR packet apart from the outside in; outer is whole.
func open(outer ipv6, trailer []byte) (s signal, bad Reason) {
	s.outer = outer
	rest, next := outer.payload, outer.next
	if next == nextRouting {
		route, n, bad := parseSegments(rest)
		if bad == "" && !fits(route.tlvs) {
			bad = BadTLV
		}
		if bad != "" {
			return s, bad
		}
		s.route, next, rest = route, route.next, rest[n:]
	}
	if next != nextIPv6 {
		return s, NotEncaps
	}
	inner, ok := parseIPv6(rest)
	if !ok || !inner.whole {
		return s, Truncated
	}
	s.inner = inner
	s.behind = append(append([]byte(nil), inner.trailer...), trailer...)
	return s, ""
}

// decapsulated is RFC 6040 §4.2 on the inner packet: the ECN field it must
// have, or false if it must be dropped.
func decapsulated(inner, outer ipv6) (ipv6, bool) {
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
