// Package handshake states the two machines that carry a TCP flow through a farm:
// the LB's (6LB Table II) and the server's (Table III), with the rows that the
// tables leave open. A row of the paper is marked "II" or "III" beside its case;
// all others are the completions of docs/failures.md. The real programs are held
// against it message by message (dataplane/exhaustive*_test.go), so it is also
// their specification.
//
// One flow, one service, wire and keys aside; servers are all up. The clock and the
// host's sockets are arguments.
package fsm

import (
	"time"

	"proffer/wire"
)

// TCP holds the fields of a segment that the machines read.
type TCP struct {
	Flags    uint8
	Seq, Ack uint32
	Payload  uint32 // bytes
}

func (s TCP) has(flag uint8) bool { return s.Flags&flag != 0 }

// opens reports whether a segment is the first of a connection.
func (s TCP) opens() bool { return s.Flags&(wire.SYN|wire.ACK|wire.RST|wire.FIN) == wire.SYN }

// establishes reports whether a segment of a flow shows that its client is there.
func (s TCP) establishes() bool { return s.Flags&(wire.ACK|wire.SYN|wire.RST) == wire.ACK }

// generation of the connection that the segment opens.
func (s TCP) generation() uint16 { return wire.Generation(s.Seq) }

// Node is a server or an LB, by number.
type Node int

// NoNode is no node.
const NoNode Node = -1

// SID is a segment of a route.
type SID struct {
	Node       Node
	Function   wire.Function
	Generation uint16
	Retry      bool
	Final      bool
	Held       bool
	Closed     uint8 // wire.CreateStickiness and RemoveStickiness: the sides that the server knows to have closed
	Position   int   // wire.RecoverStickiness at the LB: at which the list continues
}

// Packet is a segment of TCP at a node: for which of its SIDs, from which node, and
// whether the route goes on from there.
type Packet struct {
	TCP
	SID
	From   Node
	Others bool
}

// Act is a node's action on a packet.
type Act uint8

const (
	Drop    Act = iota
	Deliver     // to the own stack
	Client      // out of the domain, to the client
	Send        // along Outcome.Route
	PassOn      // to the next segment of the route it came on
	Refuse      // answered by a RST to the client
)

// Outcome is a node's action on a packet, and the counters that explain it.
type Outcome struct {
	Act   Act
	Route []SID
	RST   bool // the RST that replaces the packet is sent
	Why   []string
}

// memory is a bounded table of digests, here of sequence numbers of the one flow.
// It is never written in place: states share it.
type memory []remembered

type remembered struct {
	seq, second, times uint32
}

func (m memory) find(seq uint32) (remembered, bool) {
	for _, r := range m {
		if r.seq == seq {
			return r, true
		}
	}
	return remembered{}, false
}

func (m memory) with(fresh remembered) memory {
	next := memory{fresh}
	for _, r := range m {
		if r.seq != fresh.seq {
			next = append(next, r)
		}
	}
	return next
}

func seconds(now time.Duration) uint32 { return uint32(now / time.Second) }
