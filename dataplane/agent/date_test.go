package agent_test

import (
	"slices"
	"testing"
	"time"

	"proffer/dataplane"
	"proffer/dataplane/objects"
	"proffer/proof/rig"
	"proffer/wire"
)

// TestDateWraps: the date of an entry wraps after 52 days, and its age is right across that.
func TestDateWraps(t *testing.T) {
	const wraps = rig.ConnUnit << 32
	r := rig.NewAgent(t, rig.Hits{}, rig.Offering(rig.HuntPort))
	p := rig.Inward(rig.HuntPort, wire.SYN)
	later := p
	later.Flags, later.Seq = wire.ACK, p.Seq+1
	s := rig.To(later, wire.Generation(p.Seq), wire.AckStickiness)
	steered := func(label string, at time.Duration, why string) {
		t.Helper()
		r.At(t, at)
		if out := r.Send(t, s.Frame()); !slices.Contains(out.Reasons, why) {
			t.Errorf("%s: %v, want %s", label, out.Reasons, why)
		}
	}
	sweep := func(label string, at time.Duration, want dataplane.Swept) {
		t.Helper()
		if got, err := r.SweepAt(at); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", label, got, err, want)
		}
	}
	r.At(t, wraps-time.Second/2)
	fd := r.Begin(t, p)
	r.Acknowledge(t, p)
	r.SetLoad(t, func(l *objects.AgentLoad) {
		for _, p := range l.Pending { // their epochs are of 32 bits, an entry's of 16
			if p.Count != 0 {
				t.Errorf("%d arrived and are pending", p.Count)
			}
		}
	})
	rig.Reset(t, fd) // the entry alone decides
	sweep("by a clock that is behind", wraps-time.Second, dataplane.Swept{Kept: 1})
	sweep("after the wrap", wraps, dataplane.Swept{Kept: 1})
	steered("half a second later", wraps, "steered")
	if is := r.MustConn(t, p).Seen; is != 0 {
		t.Errorf("dated %d, want 0", is)
	}
	steered("more than a second later", wraps+2*time.Second, "give_back_not_mine")
	sweep("almost idle", wraps+5*time.Minute-rig.ConnUnit, dataplane.Swept{Kept: 1})
	sweep("idle", wraps+5*time.Minute+2*rig.ConnUnit, dataplane.Swept{Removed: 1})
}

// TestSweepReadItsClockLongAgo: a daemon that was stopped between its clock and its sweep removes no
// entry that was seen since, nor the entry of a flow that ended since.
func TestSweepReadItsClockLongAgo(t *testing.T) {
	r := rig.NewAgent(t, rig.Hits{}, rig.Offering(rig.HuntPort, rig.ByTable))
	p := rig.Inward(rig.HuntPort, wire.SYN)
	r.Accept(t, p)
	r.Acknowledge(t, p)
	p.Flags, p.Seq = wire.ACK, p.Seq+1
	steered := func(since time.Duration) {
		t.Helper()
		r.At(t, rig.Start+since)
		r.Send(t, rig.To(p, wire.Generation(p.Seq-1), wire.AckStickiness).Frame()).Is(t, "a packet", rig.XDPPass, rig.Delivered(p), "steered")
		if got, err := r.SweepAt(rig.Start); err != nil || got != (dataplane.Swept{Kept: 1}) {
			t.Errorf("%v ago: %+v, %v", since, got, err)
		}
	}
	for _, since := range []time.Duration{time.Second, 10 * time.Second, 2 * time.Hour} {
		steered(since)
	}
	p.Flags = wire.RST
	steered(2*time.Hour + time.Second)
}
