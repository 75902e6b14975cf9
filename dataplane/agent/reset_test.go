package agent_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

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

// testLimitRefusals: a CPU sends 1,000 RSTs a second; beyond, SYNs are dropped.
func testLimitRefusals(t *testing.T, seen rig.Hits) {
	const refusals = 1000 // bpf/core/limit.h
	rig.Enter(t)
	for _, a := range []netip.Addr{rig.VipAddr, rig.ClientAddr} {
		rig.AddLocal(t, a)
	}
	r := rig.LoadAgent(t, seen, rig.AgentConfig(1024, rig.Offering(rig.HuntPort)), rig.Limited(t))
	rig.Queue(t, rig.Listen(t, rig.HuntPort, 1), rig.HuntPort, 2)
	p := rig.Inward(rig.HuntPort, wire.SYN)
	frame := rig.To(p, wire.Generation(p.Seq), wire.ConnectForce).Frame()
	for range refusals - 1 {
		r.Run(t, frame)
	}
	r.Send(t, frame).Is(t, "the last", rig.XDPTX, nil, "refuse_full_reset")
	r.Send(t, frame).Is(t, "one too many", rig.XDPDrop, nil, "drop_limit_refusal")
	r.At(t, r.Now+time.Millisecond)
	r.Send(t, frame).Is(t, "a millisecond later", rig.XDPTX, nil, "refuse_full_reset")
	r.Send(t, frame).Is(t, "and again", rig.XDPDrop, nil, "drop_limit_refusal")
}
