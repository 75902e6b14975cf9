package oracle_test

import (
	"net/netip"
	"testing"

	"proffer/proof/rig"
	"proffer/wire"
)

// TestTLVs: docs/failures.md, cost before belief: bytes behind a segment list are dropped
// under their own name, and under the sender's if that is outside the domain.
func TestTLVs(t *testing.T) {
	inside := []netip.Prefix{netip.MustParsePrefix("fd00::/32")}
	t.Run("lb", func(t *testing.T) {
		rig.Enter(t)
		cfg := rig.LBConfig(rig.Hunting(2, 4, rig.Members))
		cfg.Domain = inside
		r := rig.LoadLB(t, rig.Hits{}, cfg)
		p := rig.Outward(rig.HuntPort, wire.SYN|wire.ACK)
		own := rig.SID(rig.LbLocator, wire.CreateStickiness, 5)
		frame := rig.SignalFrom(1, p, wire.CreateStickiness, 5)
		for _, c := range rig.WithTLVs(own) {
			r.Send(t, rig.WithSRH(frame, c.Header)).Is(t, c.Name, rig.XDPDrop, nil, "drop_tlv")
			r.Send(t, fromOutside(rig.WithSRH(frame, c.Header))).Is(t, c.Name+" from outside", rig.XDPDrop, nil, "drop_outside")
		}
		r.Send(t, rig.WithSRH(frame, wire.SRH(wire.ProtoIPv6, 0, own))).Is(t, "the list alone", rig.XDPTX, rig.Unwrapped(p), "stickiness_created")
	})
	t.Run("agent", func(t *testing.T) {
		rig.Enter(t)
		cfg := rig.AgentConfig(1024, rig.Offering(rig.HuntPort))
		cfg.Domain = inside
		r := rig.LoadAgent(t, rig.Hits{}, cfg, rig.InVirtualTime)
		p := rig.Inward(rig.HuntPort, wire.ACK)
		own := rig.SID(rig.ServerLocator(rig.Here), wire.Deliver, 1)
		frame := rig.To(p, 1, wire.Deliver).Frame()
		for _, c := range rig.WithTLVs(own) {
			r.Send(t, rig.WithSRH(frame, c.Header)).Is(t, c.Name, rig.XDPDrop, nil, "drop_tlv")
			r.Send(t, fromOutside(rig.WithSRH(frame, c.Header))).Is(t, c.Name+" from outside", rig.XDPDrop, nil, "drop_outside")
		}
		r.Send(t, rig.WithSRH(frame, wire.SRH(wire.ProtoIPv6, 0, own))).Is(t, "the list alone", rig.XDPPass, rig.Delivered(p), "deliver")
	})
}

// fromOutside gives a frame an outer source in no domain.
func fromOutside(frame []byte) []byte {
	return rig.Altered(frame, rig.AtSrc, 0x20)
}
