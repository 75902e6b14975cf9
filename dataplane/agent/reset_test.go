package agent_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"proffer/proof/rig"
	"proffer/topo"
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

// testLimitRefusals: a client has 100 RSTs a second, and a service sends 10,000; beyond, SYNs are
// dropped, and no neighbour is looked for.
func testLimitRefusals(t *testing.T, seen rig.Hits) {
	const each, refusals = 100, 10_000 // bpf/core/limit.h
	rig.Enter(t)
	for _, a := range []netip.Addr{rig.VipAddr, rig.ClientAddr} {
		rig.AddLocal(t, a)
	}
	r := rig.LoadAgent(t, seen, rig.AgentConfig(1024, rig.Offering(rig.HuntPort)), rig.Limited)
	rig.Queue(t, rig.Listen(t, rig.HuntPort, 1), rig.HuntPort, 2)
	p := rig.Inward(rig.HuntPort, wire.SYN)
	frame := func(client int) []byte {
		p.Src = netip.AddrPortFrom(rig.ClientNumber(client), p.Src.Port())
		return rig.To(p, wire.Generation(p.Seq), wire.ConnectForce).Frame()
	}
	if err := r.SetNextHops(topo.NextHops{netip.MustParsePrefix("::/0"): rig.RouterMAC}); err != nil {
		t.Fatal(err)
	}
	for range each - 1 {
		r.Run(t, frame(0))
	}
	r.Send(t, frame(0)).Is(t, "the last of a client", rig.XDPTX, nil, "refuse_full_reset")
	r.Send(t, frame(0)).Is(t, "one too many", rig.XDPDrop, nil, "drop_limit_refusal")
	for i := range refusals - each - 1 {
		r.Run(t, frame(1+i))
	}
	r.Send(t, frame(refusals)).Is(t, "the last of the service", rig.XDPTX, nil, "refuse_full_reset")
	if err := r.SetNextHops(nil); err != nil {
		t.Fatal(err)
	}
	r.Send(t, frame(refusals+1)).Is(t, "another client", rig.XDPDrop, nil, "drop_limit_refusal")
	r.At(t, r.Now+time.Second/refusals)
	r.Send(t, frame(refusals+1)).Is(t, "a token later", rig.XDPDrop, nil, "drop_no_next_hop")
}
