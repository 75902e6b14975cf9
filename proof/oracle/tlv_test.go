package oracle_test

import (
	"testing"

	"proffer/proof/rig"
)

// TestTLVPastEnd: FAILURES.md, malformed SRH: dropped and counted. Pad1 and
// PadN (RFC 8754 §2.1.1) that fit are no reason to drop.
func TestTLVPastEnd(t *testing.T) {
	t.Run("lb", func(t *testing.T) {
		r := rig.NewLB(t, rig.Hits{}, rig.Hunting(2, 4))
		p := rig.Outward(rig.HuntPort, rig.SYN|rig.ACK)
		frame := rig.SignalFrom(1, p, rig.Create, 5)
		for _, c := range rig.BadTLVs(rig.SID(rig.LbLocator, rig.Create, 5)) {
			r.Send(t, rig.WithSRH(frame, c.Header)).Is(t, c.What, rig.XDPDrop, nil, "drop_malformed_srh")
		}
		good := append(rig.SRH(41, 0, 0, rig.SID(rig.LbLocator, rig.Create, 5)), 0, 0, 4, 4, 0, 0, 0, 0)
		good[1]++
		r.Send(t, rig.WithSRH(frame, good)).Is(t, "padding that fits", rig.XDPTX, rig.Unwrapped(p), "stickiness_created")
	})
	t.Run("agent", func(t *testing.T) {
		r := rig.NewAgent(t, rig.Hits{}, rig.Offering(rig.HuntPort))
		frame := rig.To(rig.Inward(rig.HuntPort, rig.ACK), 1, 0xd7).Frame()
		for _, c := range rig.BadTLVs(rig.SID(rig.ServerLocator(rig.Here), 0xd7, 1)) {
			r.Send(t, rig.WithSRH(frame, c.Header)).Is(t, c.What, rig.XDPDrop, nil, "drop_malformed_srh")
		}
	})
}
