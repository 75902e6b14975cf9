package agent_test

import (
	"testing"

	"proffer/proof/rig"
	"proffer/wire"
)

// TestEndByEntry: while a connection closes, the client's next packet that acknowledges all that
// went out is delivered by its entry; for any other the kernel is asked, which has no socket here.
func TestEndByEntry(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*rig.Packet)
		taken  bool
	}{
		{"a FIN after the server's", func(p *rig.Packet) { p.Flags |= wire.FIN }, true},
		{"the acknowledgement of the server's FIN", func(*rig.Packet) {}, true},
		{"an older acknowledgement", func(p *rig.Packet) { p.Ack-- }, false},
		{"another sequence number", func(p *rig.Packet) { p.Seq++ }, false},
		{"no acknowledgement", func(p *rig.Packet) { p.Flags = wire.FIN }, false},
	} {
		for _, clientFirst := range []bool{false, true} {
			r := rig.NewAgent(t, rig.Hits{}, rig.Offering(rig.HuntPort))
			p := rig.Inward(rig.HuntPort, wire.SYN)
			generation := wire.Generation(p.Seq)
			fd := r.Begin(t, p)
			r.Acknowledge(t, p)
			next := p
			next.Flags, next.Seq = wire.ACK, p.Seq+1
			if clientFirst {
				fin := next
				fin.Flags |= wire.FIN
				r.Send(t, rig.To(fin, generation, wire.AckStickiness).Frame()).Is(t, "the client's FIN", rig.XDPPass, rig.Delivered(fin), "steered")
				next.Seq++
			}
			out := next.Reply(wire.FIN | wire.ACK)
			out.Seq, out.Ack = 5000, next.Seq
			answerOut(r, t, out, 0)
			rig.Reset(t, fd)
			next.Ack = out.Seq + 1
			c.change(&next)
			s := rig.To(next, generation, wire.AckStickiness)
			if c.taken {
				r.Send(t, s.Frame()).Is(t, c.name, rig.XDPPass, rig.Delivered(next), "steered")
			} else {
				r.Send(t, s.Frame()).Is(t, c.name, rig.XDPTX, s.Returned(), "give_back_not_mine")
			}
		}
	}
}
