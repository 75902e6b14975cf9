package lb_test

import (
	"net/netip"
	"testing"

	"proffer/dataplane/lb"
	"proffer/dataplane/objects"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// neighbours returns the locators of n servers with the same slot.
func neighbours(n int) (all []netip.Prefix) {
	first := lb.SenderSlot(objects.LocatorBits(rig.ServerLocator(0)))
	for i := 0; len(all) < n; i++ {
		a := rig.ServerLocator(0).Addr().As16()
		a[4], a[5], a[6] = byte(i>>16), byte(i>>8), byte(i)
		p := netip.PrefixFrom(netip.AddrFrom16(a), 64)
		if lb.SenderSlot(objects.LocatorBits(p)) == first {
			all = append(all, p)
		}
	}
	return all
}

// TestSendersOfOneSlot: servers are all known where their locators have the same slot, and a server
// that left is not, whichever of them has the slot.
func TestSendersOfOneSlot(t *testing.T) {
	all := neighbours(4)
	of := func(in []bool) (s topo.Service) {
		s = rig.Hunting(1, 0)
		for i, there := range in {
			if there {
				s.Servers = append(s.Servers, topo.Server{Name: string(rune('a' + i)), Locator: all[i], Weight: 1})
			}
		}
		rig.Members(&s)
		return s
	}
	r := rig.NewLB(t, rig.Hits{}, of([]bool{true, true, true, true}))
	for turn, in := range [][]bool{
		{true, true, true, true}, {false, true, true, true}, {true, true, false, true}, {false, false, false, true},
		{true, false, false, true}, {true, true, true, false}, {true, true, true, true},
	} {
		r.Reconfigure(t, of(in))
		for i, known := range in {
			answer := rig.SynAck(rig.HuntPort)
			frame := rig.SignalFrom(0, answer, wire.CreateStickiness, uint16(turn*8+i+1), func(w *rig.Route) { w.From = all[i] })
			out := r.Send(t, frame)
			if unknown := out.Reasons[0] == "drop_unknown_sender"; unknown == known {
				t.Errorf("turn %d: server %d of %v: %v", turn, i, in, out.Reasons)
			}
		}
	}
}
