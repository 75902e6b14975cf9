package lb_test

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// testSourcesVary: docs/failures.md, receive queues: flows to one server differ in the low
// bits of their outer source, in which a flow stays the same, whether single or steered.
func testSourcesVary(t *testing.T, seen rig.Hits) {
	const flows = 500
	r := rig.NewLB(t, seen, rig.Hunting(2, 1), rig.Service(81, topo.Single, 1, 1))
	for _, c := range []struct {
		port     uint16
		function wire.Function
	}{{rig.HuntPort, wire.AckStickiness}, {81, wire.Deliver}} {
		low := map[uint16]bool{}
		for i := range flows {
			p := rig.Inward(c.port, wire.SYN)
			p.Src = netip.AddrPortFrom(rig.ClientAddr, uint16(1024+i))
			if c.function == wire.AckStickiness {
				r.Accepted(t, 0, p)
			}
			p.Flags, p.Seq, p.Ack = wire.ACK, p.Seq+1, rig.ServerISN+1
			first, again := r.Run(t, p.Frame()).Frame, r.Run(t, p.Frame()).Frame
			src, dst := netip.AddrFrom16([16]byte(first[rig.AtDst-16:])), netip.AddrFrom16([16]byte(first[rig.AtDst:]))
			if wire.ParseSID(dst).Function != c.function || src != wire.Untagged(rig.LbLocator, p.Flow()) {
				t.Fatalf("from %v to %v", src, dst)
			}
			if other := netip.AddrFrom16([16]byte(again[rig.AtDst-16:])); other != src {
				t.Fatalf("a flow came from %v, then %v", src, other)
			}
			low[binary.BigEndian.Uint16(first[rig.AtDst-2:])] = true
		}
		if len(low) < flows*9/10 {
			t.Errorf("%d flows by %v have %d low halves of words", flows, c.function, len(low))
		}
	}
}
