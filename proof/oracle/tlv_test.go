package oracle_test

import (
	"testing"

	"proffer/proof/rig"
	"proffer/wire"
)

// TestTLVPastEnd: docs/failures.md, malformed SRH: dropped and counted. Pad1 and
// PadN (RFC 8754 §2.1.1) that fit are no reason to drop.
func TestTLVPastEnd(t *testing.T) {
	t.Run("lb", func(t *testing.T) {
		r := rig.NewLB(t, rig.Hits{}, rig.Hunting(2, 4))
		p := rig.Outward(rig.HuntPort, wire.SYN|wire.ACK)
		frame := rig.SignalFrom(1, p, wire.CreateStickiness, 5)
		for _, c := range rig.BadTLVs(rig.SID(rig.LbLocator, wire.CreateStickiness, 5)) {
			r.Send(t, rig.WithSRH(frame, c.Header)).Is(t, c.Name, rig.XDPDrop, nil, "drop_malformed_srh")
		}
		good := append(wire.SRH(wire.ProtoIPv6, 0, rig.SID(rig.LbLocator, wire.CreateStickiness, 5)), 0, 0, 4, 4, 0, 0, 0, 0)
		good[1]++
		r.Send(t, rig.WithSRH(frame, good)).Is(t, "padding that fits", rig.XDPTX, rig.Unwrapped(p), "stickiness_created")
	})
	t.Run("agent", func(t *testing.T) {
		r := rig.NewAgent(t, rig.Hits{}, rig.Offering(rig.HuntPort))
		frame := rig.To(rig.Inward(rig.HuntPort, wire.ACK), 1, wire.Deliver).Frame()
		for _, c := range rig.BadTLVs(rig.SID(rig.ServerLocator(rig.Here), wire.Deliver, 1)) {
			r.Send(t, rig.WithSRH(frame, c.Header)).Is(t, c.Name, rig.XDPDrop, nil, "drop_malformed_srh")
		}
	})
}
