package lb_test

import (
	"testing"

	"proffer/dataplane"
	"proffer/policy"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// TestLearnedAgentless: by every delivery, the flows of each server are read from its seat, and weights reach
// it: also of servers that have an address and no locator.
func TestLearnedAgentless(t *testing.T) {
	const servers, flows = 4, 40
	for _, d := range []topo.Delivery{topo.ByL2, topo.ByVXLAN, topo.ByDT6} {
		r := newAgentless(t, rig.Hits{}, learned(servers, by(d, false)))
		hops := topo.NextHops{}
		for _, s := range r.Cfg.Services[0].Servers {
			if s.Locator.IsValid() {
				hops[s.Locator] = rig.HopMAC(1)
			}
		}
		if len(hops) > 0 {
			if err := r.SetNextHops(hops); err != nil {
				t.Fatal(err)
			}
		}
		for i := range flows {
			if out := r.Send(t, client(i, wire.SYN).Frame()); out.Action != rig.XDPTX {
				t.Fatalf("%v: action %d for %v", d, out.Action, out.Reasons)
			}
		}
		for i, seat := range seats(t, r, 0) {
			if seat.Embryonic != flows/servers || seat.Begun != flows/servers || !seat.Ready {
				t.Errorf("%v: server %d has %+v, want %d embryonic flows", d, i, seat, flows/servers)
			}
		}
		only := dataplane.Spread{Inverses: []uint32{policy.NoInverse, policy.InverseOne, policy.NoInverse, policy.NoInverse}, Shares: []float64{0, 1, 0, 0}}
		if err := r.Spread(&r.Cfg.Services[0], only); err != nil {
			t.Fatal(err)
		}
		for i := range flows {
			r.Send(t, client(1000+i, wire.SYN).Frame())
		}
		if got := seats(t, r, 0)[1].Begun; got != flows/servers+flows {
			t.Errorf("%v: the only server with a weight began %d flows, want %d", d, got, flows/servers+flows)
		}
	}
}
