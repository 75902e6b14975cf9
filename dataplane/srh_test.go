package dataplane

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
)

// withSRH puts a routing header between the outer header of an encapsulated
// frame and what follows it.
func withSRH(frame, header []byte) []byte {
	out := slices.Concat(frame[:atUpper], header, frame[atUpper:])
	binary.BigEndian.PutUint16(out[atLength:], uint16(len(out)-atUpper))
	out[atNext] = 43
	return out
}

type badSRH struct {
	what   string
	header []byte
}

// badSRHs are headers that RFC 8754 §4.3.1.1 refuses, or RFC 8200 §4.4.
func badSRHs(a netip.Addr) []badSRH {
	change := func(at int, to byte, list ...netip.Addr) []byte {
		return altered(srh(41, 1, len(list)-1, list...), at, to)
	}
	return []badSRH{
		{"length past the packet", change(1, 200, a, a)},
		{"length of none", change(1, 0, a)},
		{"length of half a segment", change(1, 1, a)},
		{"last entry past the length", change(4, 2, a, a)},
		{"last entry 255", change(4, 255, a, a)},
		{"segments left past the last entry + 1", change(3, 3, a, a)},
		{"segments left 255", change(3, 255, a, a)},
		{"routing type 0", change(2, 0, a, a)},
		{"routing type 3, nothing left", altered(change(2, 3, a), 3, 0)},
	}
}

// badTLVs leaves the segment list alone and lets what follows it lie.
func badTLVs(a netip.Addr) []badSRH {
	with := func(tlv ...byte) []byte {
		header := append(srh(41, 0, 0, a), tlv...)
		header[1] += byte(len(tlv) / 8)
		return header
	}
	return []badSRH{
		{"TLV of 255 bytes in 8", with(124, 255, 0, 0, 0, 0, 0, 0)},
		{"one byte too long", with(4, 7, 0, 0, 0, 0, 0, 0)},
		{"type without length at the end", with(4, 5, 0, 0, 0, 0, 0, 124)},
	}
}

// TestTLVPastEnd: FAILURES.md, malformed SRH: dropped and counted. Pad1 and
// PadN (RFC 8754 §2.1.1) that fit are no reason to drop.
func TestTLVPastEnd(t *testing.T) {
	t.Run("lb", func(t *testing.T) {
		r := newLBRig(t, hits{}, hunting(2, 4))
		p := outward(huntPort, syn|ack)
		frame := signalFrom(1, p, create, 5)
		for _, c := range badTLVs(sid(lbLocator, create, 5)) {
			r.send(t, withSRH(frame, c.header)).is(t, c.what, xdpDrop, nil, "drop_malformed_srh")
		}
		good := append(srh(41, 0, 0, sid(lbLocator, create, 5)), 0, 0, 4, 4, 0, 0, 0, 0)
		good[1]++
		r.send(t, withSRH(frame, good)).is(t, "padding that fits", xdpTX, unwrapped(p), "stickiness_created")
	})
	t.Run("agent", func(t *testing.T) {
		r := newAgentRig(t, hits{}, offering(huntPort))
		frame := to(inward(huntPort, ack), 1, 0xd7).frame()
		for _, c := range badTLVs(sid(serverLocator(here), 0xd7, 1)) {
			r.send(t, withSRH(frame, c.header)).is(t, c.what, xdpDrop, nil, "drop_malformed_srh")
		}
	})
}
