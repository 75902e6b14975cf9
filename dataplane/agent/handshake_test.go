package agent_test

import (
	"testing"
	"time"

	"proffer/proof/rig"
	"proffer/wire"
)

// TestHandshakeByEntry: the answer to a SYN-ACK that went out here ends the handshake without a
// word of the kernel's, which has no socket of the flow in this test. Of any other packet the
// kernel is asked.
func TestHandshakeByEntry(t *testing.T) {
	p := rig.Inward(rig.HuntPort, wire.SYN)
	answered := rig.Outward(rig.HuntPort, wire.SYN|wire.ACK)
	answered.Seq, answered.Ack = rig.ServerISN, p.Seq+1
	ack := rig.Inward(rig.HuntPort, wire.ACK)
	ack.Seq, ack.Ack = p.Seq+1, rig.ServerISN+1
	with := func(p rig.Packet, change func(*rig.Packet)) rig.Packet {
		change(&p)
		return p
	}
	for _, c := range []struct {
		name     string
		out, in  rig.Packet
		after    time.Duration
		reasons  []string
		inserted bool
	}{
		{"its answer", answered, ack, 0, []string{"established", "acknowledged", "steered"}, false},
		{"with payload", answered, with(ack, func(p *rig.Packet) { p.Payload = []byte("GET") }), 0, []string{"established", "acknowledged", "steered"}, false},
		{"with an SRH inside", answered, ack, 0, []string{"established", "acknowledged", "steered"}, true},
		{"to another server's SYN-ACK", answered, with(ack, func(p *rig.Packet) { p.Ack++ }), 0, []string{"steered_embryonic"}, false},
		{"with another sequence number", answered, with(ack, func(p *rig.Packet) { p.Seq++ }), 0, []string{"steered_embryonic"}, false},
		{"no acknowledgement", answered, with(ack, func(p *rig.Packet) { p.Flags = wire.PSH }), 0, []string{"steered_embryonic"}, false},
		{"after a second", answered, ack, time.Second + rig.ConnUnit, []string{"steered_embryonic"}, false},
		{"to the SYN-ACK of an earlier SYN", with(answered, func(p *rig.Packet) { p.Ack-- }), ack, 0, []string{"steered_embryonic"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			change := func(s rig.SR) rig.SR { return s }
			offering := rig.Offering(rig.HuntPort)
			if c.inserted {
				rig.Inserts(&offering)
				change = rig.SR.Inserted
			}
			r := rig.NewAgent(t, rig.Hits{}, offering)
			rig.Listen(t, rig.HuntPort, 128)
			generation := wire.Generation(p.Seq)
			r.Send(t, change(rig.To(p, generation, wire.ConnectForce)).Frame()).
				Is(t, "offer", rig.XDPPass, rig.Delivered(p), "accept_force")
			if got := answerOut(r, t, c.out, 0); got.Reasons[0] != "signal_create" {
				t.Errorf("SYN-ACK: %v", got.Reasons)
			}
			r.At(t, rig.Start+c.after)
			r.Send(t, change(rig.To(c.in, generation, wire.AckStickiness)).Frame()).
				Is(t, c.name, rig.XDPPass, rig.Delivered(c.in), c.reasons...)
			if _, established := r.Settled(t, p.Flow()); established != (len(c.reasons) == 3) {
				t.Errorf("established: %v", established)
			}
		})
	}
}

// TestFINByEntry: a FIN by the shorter way ends the client's side of an entry, and counts once.
func TestFINByEntry(t *testing.T) {
	r := rig.NewAgent(t, rig.Hits{}, rig.Offering(rig.HuntPort, rig.ByTable))
	p := rig.Inward(rig.HuntPort, wire.SYN)
	r.Accept(t, p)
	r.Acknowledge(t, p)
	fin := rig.Inward(rig.HuntPort, wire.FIN|wire.ACK)
	fin.Seq, fin.Payload = p.Seq+1, []byte("QUIT")
	for range 2 {
		r.Send(t, rig.To(fin, wire.Generation(p.Seq), wire.AckStickiness).Frame()).
			Is(t, "FIN", rig.XDPPass, rig.Delivered(fin), "steered")
		if c := r.MustConn(t, p); c.NextIn != fin.Seq+5 || c.Flags&8 == 0 {
			t.Errorf("entry %+v after a FIN up to %d", c, fin.Seq+5)
		}
		if l, err := r.Load(0); err != nil || l.Asking != 1 {
			t.Errorf("load %+v, %v", l, err)
		}
	}
}
