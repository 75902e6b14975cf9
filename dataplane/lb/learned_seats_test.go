package lb_test

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"proffer/dataplane"
	"proffer/policy"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// alike spreads new flows over so many servers alike.
func alike(servers int) dataplane.Spread {
	return dataplane.Spread{Inverses: slices.Repeat([]uint32{policy.InverseOne}, servers)}
}

// waiting counts the servers that wait for a seat.
func waiting(t *testing.T, r *rig.LB) (n int) {
	t.Helper()
	for _, s := range seats(t, r, 0) {
		if s.Waits {
			n++
		}
	}
	return n
}

// TestSeatsRunOut: where flows of servers that left have most seats, another pool is served by those of
// its servers that get a seat, at once and after a restart; the others follow as flows end.
func TestSeatsRunOut(t *testing.T) {
	const servers, fewer = 700, topo.MaxSeats - 700
	rig.Enter(t)
	pin := filepath.Join(rig.BPFFS(t), "lb")
	load := func(svc topo.Service) *rig.LB {
		cfg := rig.LBConfig(svc)
		cfg.Pin, cfg.Flows.Entries = pin, 8192
		return successor(t, cfg)
	}
	next := 0
	fresh := func(r *rig.LB, label string, flows int) {
		t.Helper()
		for range flows {
			if at := sendTo(t, r, label, client(next, wire.SYN), -1, "deliver", "flow_begun"); r.Cfg.Services[0].Servers[0].Name == "s700" && at < servers {
				t.Fatalf("%s: a new flow is at server %d, which left", label, at)
			}
			next++
		}
	}
	step := func(r *rig.LB, label string, wait int) {
		t.Helper()
		if err := r.Spread(&r.Cfg.Services[0], alike(servers)); err != nil {
			t.Fatalf("%s: %v", label, err)
		}
		if got := waiting(t, r); got != wait {
			t.Errorf("%s: %d servers wait for a seat, want %d", label, got, wait)
		}
	}
	first := load(learned(servers))
	fresh(first, "the first pool", servers)
	for i := range servers {
		first.Run(t, client(i, wire.ACK).Frame())
	}
	other := learned(2 * servers)
	other.Servers = other.Servers[servers:]
	first.Cfg.Services = []topo.Service{other}
	if err := first.Configure(first.Cfg); err != nil {
		t.Fatal(err)
	}
	hopsOf(t, first)
	fresh(first, "another pool", 100)
	step(first, "another pool", servers-fewer)
	fresh(first, "after a step", 100)
	wantRecount(t, first, 0)
	first.Die(t)

	second := load(other)
	fresh(second, "after a restart", 100)
	step(second, "after a restart", servers-fewer)
	second.At(t, rig.Start+second.Cfg.Flows.IdleTCP()+time.Minute)
	if swept, err := second.Sweep(); err != nil || swept.Kept != 0 {
		t.Fatalf("%+v, %v; want all flows removed", swept, err)
	}
	step(second, "no flow is left", 0)
	step(second, "no flow is left, again", 0)
	before := seats(t, second, 0)
	fresh(second, "no flow is left", servers)
	for i, s := range seats(t, second, 0) {
		if s.Begun != before[i].Begun+1 {
			t.Fatalf("server %d of %d alike began %d of as many flows", i, servers, s.Begun-before[i].Begun)
		}
	}
	for i := range 50 { // of flows that no entry has: at their presumed owners, and counted
		second.Send(t, client(10_000+i, wire.ACK).Frame()).Is(t, "presumed", rig.XDPTX, nil, "recover_presumed", "flow_begun")
	}
	sum := uint32(0)
	for _, s := range seats(t, second, 0) {
		sum += s.Embryonic
	}
	if sum != servers+50 {
		t.Errorf("%d flows count, want %d", sum, servers+50)
	}
	wantRecount(t, second, 0)
	if err := errors.Join(second.Detach(), second.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestSeatsStay: a configuration that cannot be applied leaves a service's servers their seats, counts
// and weights, and new flows.
func TestSeatsStay(t *testing.T) {
	const servers = 8
	r := learner(t, rig.Hits{}, learned(servers))
	spread := alike(servers)
	spread.Inverses[3] = 3 * policy.InverseOne
	if err := r.Spread(&r.Cfg.Services[0], spread); err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		r.Run(t, client(i, wire.SYN).Frame())
		r.Run(t, client(i, wire.ACK).Frame())
	}
	was, before := tallyOf(t, r, 0), seats(t, r, 0)
	other := learned(2*servers, mode(topo.Learned2))
	other.Servers = other.Servers[servers-1:]
	r.LeaveRecords(0)
	if err := r.Configure(rig.LBConfig(other)); err == nil {
		t.Fatal("a record was written without room for it")
	}
	now := tallyOf(t, r, 0)
	for i := range now.Seat {
		if now.Seat[i] != was.Seat[i] || now.Leaf[i] != was.Leaf[i] {
			t.Errorf("seat %d has %+v, leaf %x; and had %+v, %x", i, now.Seat[i], now.Leaf[i], was.Seat[i], was.Leaf[i])
		}
	}
	if now.Ranked != was.Ranked || now.Rows != was.Rows || now.Seats != was.Seats {
		t.Errorf("ranked %d, rows %d, seats %d; and they were %d, %d, %d", now.Ranked, now.Rows, now.Seats, was.Ranked, was.Rows, was.Seats)
	}
	for i := range 40 {
		if at := sendTo(t, r, "a new flow", client(100+i, wire.SYN), -1, "deliver", "flow_begun"); at >= servers {
			t.Errorf("a new flow is at server %d, which is not configured", at)
		}
	}
	for i, s := range seats(t, r, 0) {
		if s.Established != before[i].Established || s.Begun == before[i].Begun {
			t.Errorf("server %d has %+v, and had %+v", i, s, before[i])
		}
	}
}

// TestCountingStays: in a flood of SYNs a change of the pool lets no embryonic flow count again, and a
// mode that has no flood ends it.
func TestCountingStays(t *testing.T) {
	r := learner(t, rig.Hits{}, learned(4))
	flood := alike(4)
	flood.Counting = topo.FloodCounting
	if err := r.Spread(&r.Cfg.Services[0], flood); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		mode topo.Dispatch
		want topo.Counting
	}{{topo.Learned, topo.FloodCounting}, {topo.LearnedLiteral, topo.LiteralCounting}, {topo.Learned, topo.AllCounting}} {
		r.Reconfigure(t, learned(5, mode(c.mode)))
		if got := topo.Counting(tallyOf(t, r, 0).Counting); got != c.want {
			t.Errorf("%v counts %v, want %v", c.mode, got, c.want)
		}
	}
}
