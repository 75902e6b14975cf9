package dataplane

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"proffer/policy"
)

// checkResets: RFC 9293 §3.10.7.1: <SEQ=0><ACK=SEG.SEQ+SEG.LEN><CTL=RST,ACK>,
// where a SYN counts one and its payload (TCP fast open) its length.
func checkResets(t *testing.T, r *agentRig, p packet, payload int) {
	t.Helper()
	for _, options := range []int{0, 20, 40} {
		for _, seq := range []uint32{clientISN + 1000, 0xffffffff} {
			p.seq, p.options, p.payload = seq, bytes.Repeat([]byte{1}, options), make([]byte, payload)
			answer := packet{
				to: routerMAC, from: hereMAC, hop: 64, src: p.dst, dst: p.src,
				ack: seq + 1 + uint32(payload), flags: rst | ack,
			}
			want := answer.frame()
			binary.BigEndian.PutUint32(want[atVersion:], 6<<28|policy.FlowLabel(p.flow()))
			clear(want[atUpper+14 : atUpper+18]) // window 0, and the checksum anew
			binary.BigEndian.PutUint16(want[atUpper+16:], checksum(p.dst.Addr(), p.src.Addr(), 6, want[atUpper:]))
			what := fmt.Sprintf("last: %d bytes of options, %d of payload, seq %#x", options, payload, seq)
			r.send(t, to(p, policy.Generation(seq), 0xcf).frame()).is(t, what, xdpTX, want, "refuse_full_reset")
		}
	}
}

// TestResetAcknowledgesPayload: a SYN with payload is refused as a whole.
func TestResetAcknowledgesPayload(t *testing.T) {
	r := newAgentRig(t, hits{}, offering(huntPort))
	queue(t, listen(t, huntPort, 1), huntPort, 2)
	checkResets(t, r, inward(huntPort, syn), 100)
}
