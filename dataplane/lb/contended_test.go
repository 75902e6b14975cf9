package lb_test

import (
	"slices"
	"testing"

	"proffer/proof/rig"
	"proffer/wire"
)

// testContended: a signal about an entry that another CPU moves, and does not get done with, changes
// nothing and is dropped, so that its sender repeats it; then the entry is at rest, and it is as if
// the signal came for the first time. A FIN of the client is steered all the same.
func testContended(t *testing.T, seen rig.Hits) {
	const owner = 2
	generation := wire.Generation(rig.ClientISN)
	r := rig.NewLB(t, seen, rig.Hunting(2, 8, rig.Members))
	flow := rig.Inward(rig.HuntPort, wire.SYN).Flow()
	closing := rig.Inward(rig.HuntPort, wire.FIN|wire.ACK)
	for _, c := range []struct {
		label string
		frame []byte
		why   string
	}{
		{"cs of data", rig.SignalFrom(owner, rig.Outward(rig.HuntPort, wire.ACK), wire.CreateStickiness, generation+1), "stickiness_recovered"},
		{"rms", rig.SignalFrom(owner, rig.Outward(rig.HuntPort, wire.FIN|wire.ACK), wire.RemoveStickiness, generation), "stickiness_removed"},
		{"nm", rig.SignalFrom(owner, rig.Inward(rig.HuntPort, wire.ACK), wire.NotMine, generation), "stale_removed"},
		{"nm of a SYN", rig.SignalFrom(owner, rig.Inward(rig.HuntPort, wire.SYN), wire.NotMine, generation+1), "stale_removed"},
	} {
		r.Learn(t, owner, rig.ClientISN)
		moving := r.Table.Get(t, flow)
		moving.Word |= rig.WordMoving
		r.Table.Put(t, flow, moving)
		r.Send(t, c.frame).Is(t, c.label+", moving", rig.XDPDrop, nil, "drop_contended")
		if out := r.Send(t, closing.Frame()); !slices.Equal(out.Reasons, []string{"steer"}) {
			t.Errorf("%s: the client's FIN counts as %v", c.label, out.Reasons)
		}
		if now := r.Table.Get(t, flow).Word; now != moving.Word {
			t.Errorf("%s: the moving entry became %x, was %x", c.label, now, moving.Word)
		}
		moving.Word &^= rig.WordMoving
		r.Table.Put(t, flow, moving)
		if out := r.Send(t, c.frame); out.Action != rig.XDPTX || !slices.Contains(out.Reasons, c.why) {
			t.Errorf("%s, again: action %d for %v", c.label, out.Action, out.Reasons)
		}
		r.Table.Put(t, flow, rig.Entry{})
	}
}
