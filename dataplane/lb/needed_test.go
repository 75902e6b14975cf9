package lb_test

import (
	"net/netip"
	"slices"
	"testing"

	"proffer/proof/rig"
	"proffer/topo"
)

// TestNeeded: an earlier pool is needed while a flow in the table is at a server that was its
// candidate there, and is none of a newer pool.
func TestNeeded(t *testing.T) {
	svc := rig.Hunting(1, 8, drained(3), func(s *topo.Service) { s.Select = topo.Random })
	r := rig.NewLB(t, rig.Hits{}, svc)
	want := func(pools ...bool) {
		t.Helper()
		got, err := r.Needed([]topo.VIP{svc.VIP})
		if err != nil || !slices.Equal(got[svc.VIP], pools) {
			t.Errorf("needed %v, %v; want %v", got[svc.VIP], err, pools)
		}
	}
	want()
	svc.Version, svc.History = 2, []topo.Version{{Version: 1, Servers: rig.Farm(5)}, {Version: 0, Servers: rig.Farm(8)}}
	r.Reconfigure(t, svc)
	want(false, false)
	p := rig.Inward(rig.HuntPort, 0)
	var today, newer, oldest int
	for i := 0; i < 10_000 && (today == newer || newer == oldest || oldest == today); i++ { // a flow that each pool has elsewhere
		p.Src = netip.AddrPortFrom(p.Src.Addr(), p.Src.Port()+1)
		today = r.List(t, 0, p.Flow())[0]
		newer = rig.Candidates(t, &svc, rig.Farm(5), p.Flow())[0]
		oldest = rig.Candidates(t, &svc, rig.Farm(8), p.Flow())[0]
	}
	fp, _ := r.Table.LinesOf(p.Flow())
	at := func(server int) {
		t.Helper()
		number, _ := numberOf(r, server)
		r.Table.Put(t, p.Flow(), rig.Entry{Fingerprint: fp << rig.DigestShift, Word: uint64(number) | rig.WordEstablished})
	}
	at(oldest)
	want(false, true)
	at(newer)
	want(true, false)
	at(today)
	want(false, false)
}
