package lb_test

import (
	"testing"

	"proffer/dataplane"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// TestSuspects: the LB counts signals without a valid tag by their sender, and none of a
// server with its key.
func TestSuspects(t *testing.T) {
	r := newSigningRig(t, rig.Hits{}, []topo.SignalKey{rig.OldKeys}, rig.Hunting(2, 8, rig.Members))
	other := rig.OldKeys
	other.Server[0] ^= 1
	generation := wire.Generation(rig.ClientISN)
	for _, server := range []int{2, 3, 3} {
		frame := signedSignal(server, other, rig.SynAck(rig.HuntPort), wire.CreateStickiness, generation)
		r.Send(t, frame).Is(t, "another key", rig.XDPDrop, nil, "drop_bad_tag")
	}
	r.Send(t, signedSignal(1, rig.OldKeys, rig.SynAck(rig.HuntPort), wire.CreateStickiness, generation))
	got := map[dataplane.Suspect]bool{}
	found, err := r.Suspects()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range found {
		got[s] = true
	}
	for server, packets := range map[int]uint64{2: 1, 3: 2} {
		if !got[dataplane.Suspect{Sender: rig.ServerLocator(server), Packets: packets}] || len(found) != 2 {
			t.Errorf("suspects %v, want server %d with %d packets", found, server, packets)
		}
	}
}
