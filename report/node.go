package report

import (
	"crypto/subtle"
	"encoding/binary"
	"net/netip"
	"time"

	"proffer/policy"
	"proffer/topo"
	"proffer/weights"
)

// NodeSize is the length of either datagram between an edge LB and a datapath node.
const NodeSize = 352

// nodeMagic begins either datagram.
const nodeMagic = 0x50724531 // PrE1

// Offsets in a datagram between an edge LB and a node, behind the kind.
const (
	nodeAtServer  = 5
	nodeAtService = 6
	nodeAtNonce   = 8
	nodeAtKnown   = 16
	nodeAtCores   = 17
	nodeAtZero    = 18
	nodeAtClock   = 24
	nodeAtBusy    = 32
	nodeAtCost    = nodeAtBusy + 4*topo.MaxEdgeCores
	nodeAtTag     = NodeSize - 8
)

const (
	knowsCost = 1 << iota
	knowsBusy
	lacksChain
)

var _ = [1]int{}[nodeAtCost+4*len(weights.Curve{})-nodeAtTag]

// NodeMessage is a request of an edge LB to a datapath node, or the answer to a request.
type NodeMessage struct {
	Server  int // the node's number
	Service int // of which the cost is asked for
	Nonce   uint64
	Answer  bool
	Cores   int  // of the node, of an answer
	NoChain bool // the node has no functions for the service, of an answer
	// Cost of a packet, of an answer; nil: the node does not know it.
	Cost *weights.Curve
	// Busy is for how long each of Cores has worked until At by the node's clock, without the bits above
	// 32 of microseconds; nil: the node does not know it.
	Busy []time.Duration
	At   time.Duration
}

// Link is from an address to another, with the key of both ends.
type Link struct {
	Key      topo.Key
	From, To netip.Addr
}

// Encode is the message with its tag.
func (m *NodeMessage) Encode(l Link) []byte {
	b := make([]byte, NodeSize)
	binary.BigEndian.PutUint32(b, nodeMagic)
	b[atKind], b[nodeAtServer] = isRequest, uint8(m.Server)
	binary.BigEndian.PutUint16(b[nodeAtService:], uint16(m.Service))
	binary.BigEndian.PutUint64(b[nodeAtNonce:], m.Nonce)
	if m.Answer {
		b[atKind] = isAnswer
		m.encodeAnswer(b)
	}
	binary.LittleEndian.PutUint64(b[nodeAtTag:], nodeTag(b, l))
	return b
}

func (m *NodeMessage) encodeAnswer(b []byte) {
	b[nodeAtCores] = uint8(m.Cores)
	if m.NoChain {
		b[nodeAtKnown] |= lacksChain
	}
	if m.Cost != nil {
		b[nodeAtKnown] |= knowsCost
		for i, ns := range m.Cost {
			binary.BigEndian.PutUint32(b[nodeAtCost+4*i:], whole(ns))
		}
	}
	if m.Busy != nil {
		b[nodeAtKnown] |= knowsBusy
		binary.BigEndian.PutUint64(b[nodeAtClock:], uint64(m.At))
		for i, busy := range m.Busy {
			binary.BigEndian.PutUint32(b[nodeAtBusy+4*i:], uint32(busy.Microseconds()))
		}
	}
}

// ParseNode reads a datagram that the far end of a link sent. Every message has a single encoding, and
// ParseNode takes no other.
func ParseNode(b []byte, l Link) (m NodeMessage, err error) {
	if len(b) != NodeSize || binary.BigEndian.Uint32(b) != nodeMagic {
		return m, ErrMalformed
	}
	m.Server, m.Service = int(b[nodeAtServer]), int(binary.BigEndian.Uint16(b[nodeAtService:]))
	m.Nonce, m.Answer = binary.BigEndian.Uint64(b[nodeAtNonce:]), b[atKind] == isAnswer
	known := b[nodeAtKnown]
	m.Cores, m.NoChain = int(b[nodeAtCores]), known&lacksChain != 0
	if m.Cores > topo.MaxEdgeCores || m.Answer != (m.Cores > 0) {
		return NodeMessage{}, ErrMalformed
	}
	if known&knowsCost != 0 {
		m.Cost = new(weights.Curve)
		for i := range m.Cost {
			m.Cost[i] = float64(binary.BigEndian.Uint32(b[nodeAtCost+4*i:]))
		}
	}
	if known&knowsBusy != 0 {
		m.At = time.Duration(binary.BigEndian.Uint64(b[nodeAtClock:]))
		if m.At < 0 {
			return NodeMessage{}, ErrMalformed // so a difference does not wrap
		}
		for i := range m.Cores {
			m.Busy = append(m.Busy, time.Duration(binary.BigEndian.Uint32(b[nodeAtBusy+4*i:]))*time.Microsecond)
		}
	}
	if again := m.Encode(l); subtle.ConstantTimeCompare(again, b) != 1 { // the tag among them
		return NodeMessage{}, ErrMalformed
	}
	return m, nil
}

// nodeTag is SipHash-2-4 over both addresses and all that is before the tag.
func nodeTag(b []byte, l Link) uint64 {
	from, to := l.From.Unmap().As16(), l.To.Unmap().As16()
	data := append(append(make([]byte, 0, 32+nodeAtTag), from[:]...), to[:]...)
	return policy.SipHash(l.Key, append(data, b[:nodeAtTag]...))
}
