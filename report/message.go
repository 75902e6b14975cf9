// Package report is how an LB asks the agent of a server for its load (HLB §I-B3, 6LB §VI-B7): a datagram
// each way, between the nodes' own addresses. docs/design/reports.md has the format.
//
// A request names a service and carries a nonce, which the answer repeats. Both are Size bytes long, so
// an agent sends no more than it received. With signal keys both carry a tag: requests by the farm's
// key, answers by the server's own.
package report

import (
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"math"
	"net/netip"

	"proffer/policy"
	"proffer/topo"
	"proffer/weights"
	"proffer/wire"
)

const (
	// Port is the port that agents are asked at, of UDP.
	Port = 20650
	// Size is the length of either datagram.
	Size = 64
)

// magic begins either datagram; a change of the format is another magic.
const magic = 0x50726f31 // Pro1

// Offsets in a datagram.
const (
	atKind     = 4
	atKeyID    = 5
	atProtocol = 6
	atAnswers  = 7
	atNonce    = 8
	atVIP      = 16
	atPort     = 32
	atZero     = 34
	atBusy     = 36
	atWorkers  = 40
	atCores    = 44 // in thousandths
	atRest     = 48
	atTag      = 56
)

const (
	isRequest = 1
	isAnswer  = 2
)

// The most workers and cores of a server, as its agent's file may have them.
const (
	mostWorkers = 65535
	mostCores   = 65535
)

// Message is a request, or the answer to a request.
type Message struct {
	VIP    topo.VIP
	Nonce  uint64
	Answer bool
	// Known: of an answer, the agent has the service and knows its load, which is the report.
	Known  bool
	Report weights.Report
	KeyID  uint8 // that the tag names; 0: there is none
}

// ErrMalformed is of a datagram that is no message.
var ErrMalformed = errors.New("malformed report or request")

// Way is from a node to another, by their locators.
type Way struct{ From, To netip.Prefix }

// Encode is the message with a tag by the key; with key id 0 it has none.
func (m *Message) Encode(w Way, key topo.Key) []byte {
	b := make([]byte, Size)
	binary.BigEndian.PutUint32(b, magic)
	b[atKind], b[atKeyID], b[atProtocol] = isRequest, m.KeyID, m.VIP.Protocol.Number()
	binary.BigEndian.PutUint64(b[atNonce:], m.Nonce)
	vip := m.VIP.Addr.As16()
	copy(b[atVIP:], vip[:])
	binary.BigEndian.PutUint16(b[atPort:], m.VIP.Port)
	if m.Answer {
		b[atKind] = isAnswer
		m.encodeReport(b)
	}
	if m.KeyID != 0 {
		binary.LittleEndian.PutUint64(b[atTag:], tag(b, w, key))
	}
	return b
}

func (m *Message) encodeReport(b []byte) {
	if !m.Known {
		return
	}
	b[atAnswers] = 1
	binary.BigEndian.PutUint32(b[atBusy:], whole(min(m.Report.Busy, topo.MostBusy)))
	binary.BigEndian.PutUint32(b[atWorkers:], whole(m.Report.Workers))
	binary.BigEndian.PutUint32(b[atCores:], whole(m.Report.Cores*1000))
}

// whole is the nearest number that a field has room for.
func whole(x float64) uint32 { return uint32(math.Round(min(max(x, 0), math.MaxUint32))) }

// Parse reads a datagram. Every message has a single encoding, and Parse takes no other.
func Parse(b []byte) (m Message, err error) {
	if len(b) != Size || binary.BigEndian.Uint32(b) != magic || b[atAnswers] > 1 || !isZero(b[atZero:atBusy]) || !isZero(b[atRest:atTag]) {
		return m, ErrMalformed
	}
	m.KeyID, m.Nonce, m.Answer, m.Known = b[atKeyID], binary.BigEndian.Uint64(b[atNonce:]), b[atKind] == isAnswer, b[atAnswers] == 1
	m.VIP = topo.VIP{Addr: netip.AddrFrom16([16]byte(b[atVIP:])).Unmap(), Port: binary.BigEndian.Uint16(b[atPort:])}
	field := func(at int) float64 { return float64(binary.BigEndian.Uint32(b[at:])) }
	possible := field(atBusy) <= topo.MostBusy && field(atWorkers) <= mostWorkers && field(atCores) <= 1000*mostCores
	m.Report = weights.Report{Busy: field(atBusy), Workers: field(atWorkers), Cores: field(atCores) / 1000}
	if b[atProtocol] == topo.UDP.Number() {
		m.VIP.Protocol = topo.UDP
	}
	switch {
	case b[atProtocol] != m.VIP.Protocol.Number():
	case !m.Answer && (b[atKind] != isRequest || m.Known):
	case !m.Known && !isZero(b[atBusy:atRest]):
	case m.Known && (m.Report.Workers == 0 || m.Report.Cores == 0 || !possible):
	case m.KeyID == 0 && !isZero(b[atTag:]):
	default:
		return m, nil
	}
	return Message{}, ErrMalformed
}

func isZero(b []byte) bool {
	for _, x := range b {
		if x != 0 {
			return false
		}
	}
	return true
}

// tag is SipHash-2-4 over both locators and all that is before the tag: 72 bytes, as no signal has
// (wire.Tag), so that a tag of either is none of the other.
func tag(b []byte, w Way, key topo.Key) uint64 {
	from, to := w.From.Addr().As16(), w.To.Addr().As16()
	data := make([]byte, 0, 16+atTag)
	data = append(append(append(data, from[:8]...), to[:8]...), b[:atTag]...)
	return policy.SipHash(key, data)
}

// IsSigned reports whether a datagram that was parsed has the tag of a key.
func IsSigned(b []byte, w Way, key topo.Key) bool {
	var want [8]byte
	binary.LittleEndian.PutUint64(want[:], tag(b, w, key))
	return subtle.ConstantTimeCompare(want[:], b[atTag:]) == 1
}

// Signing is the key of a node that signs, and its id; without keys 0.
func Signing(keys []topo.SignalKey, of func(topo.SignalKey) topo.Key) (key topo.Key, id uint8) {
	if len(keys) == 0 {
		return key, 0
	}
	return of(keys[0]), keys[0].ID
}

// believes reports whether a node with these keys believes a datagram.
func believes(b []byte, m *Message, w Way, keys []topo.SignalKey, of func(topo.SignalKey) topo.Key) bool {
	for _, k := range keys {
		if k.ID == m.KeyID {
			return IsSigned(b, w, of(k))
		}
	}
	return len(keys) == 0
}

// farmKey signs requests; serverKey answers, at the server; masterOf those of a server, at an LB.
func farmKey(k topo.SignalKey) topo.Key   { return k.Farm }
func serverKey(k topo.SignalKey) topo.Key { return k.Server }
func masterOf(server netip.Prefix) func(topo.SignalKey) topo.Key {
	return func(k topo.SignalKey) topo.Key { return wire.ServerKey(k.Server, server) }
}
