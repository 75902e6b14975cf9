// Package oracle computes a Proffer node's duty with one frame: slowly,
// obviously, and written from the RFCs (8200, 8754 §4.3.1.1, 8986 §4 and §5.2,
// 2473, 4443, 9293, 768, 6040, 1624) and docs/design/wire.md rather than from the
// programs, so that the real eBPF programs can be fuzzed against it. It decodes a
// frame into values and builds the answer from nothing; it knows no clock and no
// kernel.
package oracle

import (
	"encoding/binary"
	"net/netip"

	"proffer/policy"
	"proffer/topo"
)

// Action is a node's action on a frame.
type Action uint8

const (
	Pass     Action = iota // to the kernel, untouched
	Drop                   // nowhere
	Transmit               // out of the link it came by, as Answer.Frame
	Deliver                // to the kernel, as Answer.Frame
)

func (a Action) String() string { return [...]string{"pass", "drop", "transmit", "deliver"}[a] }

// Answer is the required action on one frame, and its reason.
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
	NotForUs       Reason = "not for us"
	Truncated      Reason = "truncated"
	ExtHeader      Reason = "a header before the ports that is not looked behind, or a fragment"
	SourceRoute    Reason = "source route"
	BadTransport   Reason = "malformed transport header"
	BadSRH         Reason = "malformed SRH"
	WithTLV        Reason = "bytes behind a segment list"
	NotEncaps      Reason = "no packet inside"
	BadFunction    Reason = "no function of this node"
	SegmentsLeft   Reason = "segments left at a function that ends the route"
	Stranger       Reason = "sender is no server"
	BadTag         Reason = "not the sender's tag"
	NotOurService  Reason = "inner packet is of no service here"
	WrongWire      Reason = "inserted where the service encapsulates, or the other way round"
	NotSYN         Reason = "offer of something else than a SYN"
	Stale          Reason = "a RST for nothing that waits"
	NotCandidate   Reason = "sender is not one that may have the flow"
	NotReleased    Reason = "another server's flow, which that has not released"
	Conflict       Reason = "another server has the connection"
	HopLimit       Reason = "hop limit"
	Congested      Reason = "congestion that the inner packet cannot express"
	TooBig         Reason = "too big"
	SmallMTU       Reason = "a link smaller than IPv6 allows"
	BadTooBig      Reason = "too big about nothing of ours"
	ErrorAboutOurs Reason = "another ICMP error about a packet of ours"
	NoNeighbour    Reason = "no neighbour"
	NoServer       Reason = "no server"
	Forwarded      Reason = "forwarded"
	Offered        Reason = "offered"
	Asked          Reason = "asked for its owner"
	Steered        Reason = "steered"
	Begun          Reason = "sent to the server that its new entry names"
	Kept           Reason = "sent to the server that has it"
	Unwrapped      Reason = "unwrapped"
	GivenBack      Reason = "given back"
	GoneOn         Reason = "list continued"
	Rejected       Reason = "second acceptance rejected"
	Echoed         Reason = "echoed"
	Refused        Reason = "refused: no service has the port"
	NotServed      Reason = "for a VIP, and of no service"
	ReportedTooBig Reason = "sender informed that it was too big"
	Expired        Reason = "sender informed that its hop limit ended"
)

func pass(why Reason) Answer { return Answer{Action: Pass, Why: why} }
func drop(why Reason) Answer { return Answer{Action: Drop, Why: why} }

// Node holds the fields that LB and Agent have in common.
type Node struct {
	Locator    netip.Prefix
	MAC        topo.MAC
	MTU        int
	Neighbours topo.NextHops
}

// Functions of docs/design/wire.md, as numbered on the wire.
const (
	connectAvail      = 0xca
	connectForce      = 0xcf
	ackStickiness     = 0xa5
	recoverStickiness = 0xe5
	deliverHere       = 0xd7
	rejectSecond      = 0x4e
	createStickiness  = 0xc5
	removeStickiness  = 0xf5
	notMine           = 0x40
)

// Flags of a SID.
const (
	flagRetry        = 1
	flagFinal        = 2
	flagHeld         = 4
	flagClientClosed = 64
	flagServerClosed = 128
)

// sid is an address as RFC 8986 §3.1 takes it apart: locator 64 bits, function
// 16, and an argument: generation 16, flags 8, key id 8, report 16.
type sid struct {
	locator    netip.Prefix
	function   uint16
	generation uint16
	flags      byte
	key        byte
	report     uint16
}

func parseSID(a netip.Addr) sid {
	b := a.As16()
	return sid{
		locator:    netip.PrefixFrom(a, 64).Masked(),
		function:   binary.BigEndian.Uint16(b[8:]),
		generation: binary.BigEndian.Uint16(b[10:]),
		flags:      b[12],
		key:        b[13],
		report:     binary.BigEndian.Uint16(b[14:]),
	}
}

func (s sid) address() netip.Addr {
	b := s.locator.Addr().As16()
	binary.BigEndian.PutUint16(b[8:], s.function)
	binary.BigEndian.PutUint16(b[10:], s.generation)
	b[12], b[13] = s.flags, s.key
	binary.BigEndian.PutUint16(b[14:], s.report)
	return netip.AddrFrom16(b)
}

// untagged is the source of a flow's packets without a tag: below the locator the flow label.
func (n *Node) untagged(f policy.Flow) netip.Addr {
	a := n.Locator.Addr().As16()
	binary.BigEndian.PutUint32(a[12:], labelOf(f))
	return netip.AddrFrom16(a)
}

// send puts a link header before an IP packet.
func (n *Node) send(to topo.MAC, ip []byte, why Reason) Answer {
	kind := uint16(kindIPv6)
	if ip[0]>>4 == 4 {
		kind = kindIPv4
	}
	return Answer{Action: Transmit, Frame: append(link{to, n.MAC, kind}.append(nil), ip...), Why: why}
}
