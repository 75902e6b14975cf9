package agent_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"proffer/proof/rig"
	"proffer/wire"
)

// checkResets: RFC 9293 §3.10.7.1: <SEQ=0><ACK=SEG.SEQ+SEG.LEN><CTL=RST,ACK>,
// where a SYN counts one and its payload (TCP fast open) its length.
func checkResets(t *testing.T, r *rig.Agent, p rig.Packet, payload int) {
	t.Helper()
	for _, options := range []int{0, 20, 40} {
		for _, seq := range []uint32{rig.ClientISN + 1000, 0xffffffff} {
			p.Seq, p.Options, p.Payload = seq, bytes.Repeat([]byte{1}, options), make([]byte, payload)
			answer := rig.Packet{
				To: rig.RouterMAC, From: rig.HereMAC, Hop: 64, Src: p.Dst, Dst: p.Src,
				Ack: seq + 1 + uint32(payload), Flags: wire.RST | wire.ACK,
			}
			want := answer.Frame()
			binary.BigEndian.PutUint32(want[rig.AtVersion:], 6<<28|wire.FlowLabel(p.Flow()))
			rig.NoWindow(want[wire.EthernetBytes:])
			label := fmt.Sprintf("last: %d bytes of options, %d of payload, seq %#x", options, payload, seq)
			r.Send(t, rig.To(p, wire.Generation(seq), wire.ConnectForce).Frame()).Is(t, label, rig.XDPTX, want, "refuse_full_reset")
		}
	}
}

// TestResetAcknowledgesPayload: a SYN with payload is refused as a whole.
func TestResetAcknowledgesPayload(t *testing.T) {
	r := rig.NewAgent(t, rig.Hits{}, rig.Offering(rig.HuntPort))
	rig.Queue(t, rig.Listen(t, rig.HuntPort, 1), rig.HuntPort, 2)
	checkResets(t, r, rig.Inward(rig.HuntPort, wire.SYN), 100)
}
