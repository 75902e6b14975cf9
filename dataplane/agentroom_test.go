package dataplane

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"proffer/policy"
	"proffer/topo"
)

// testNoPlace: without a place for its state an offer is passed on, and taken
// without state by the last. The table makes room, unless another CPU is just there.
func testNoPlace(t *testing.T, seen hits) {
	newAgentRig(t, seen, offering(huntPort)) // for its namespace
	cfg := agentConfig(64, offering(huntPort))
	cfg.Flows.Embryonic = waitPlaces
	r := loadAgentRig(t, seen, cfg, inVirtualTime)
	listen(t, huntPort, 128)
	p := inward(huntPort, syn)
	busy := agentWaitSet{}
	for i := range busy.Mark {
		busy.Mark[i] = ^uint64(0)
	}
	waitsOf(t, r.Agent).write(t, 0, &busy)
	s := to(p, policy.Generation(p.seq), 0xca, 0xcf)
	r.send(t, s.frame()).is(t, "no place", xdpTX, s.onward(hopMAC(2)), "pass_on_table_full")
	r.send(t, to(p, policy.Generation(p.seq), 0xcf).frame()).is(t, "last", xdpPass, delivered(p), "table_full")
	s = s.flagged(sidRetry)
	r.send(t, s.frame()).is(t, "again", xdpTX, s.onward(hopMAC(2)), "pass_on_refused_before")
	r.setLoad(t, func(l *agentLoad) {
		for _, p := range l.Pending {
			if p.Count != 0 {
				t.Errorf("%d that found no place are expected", p.Count)
			}
		}
	})
}

// testFlood: openings displace each other and no established flow.
func testFlood(t *testing.T, seen hits) {
	const flows, openings = 200, 100_000
	newAgentRig(t, seen, offering(huntPort)) // for its namespace
	cfg := agentConfig(flows, offering(huntPort, byTable, func(o *topo.Offering) { o.Acceptance = topo.Always }))
	cfg.Flows.Embryonic = 512
	r := loadAgentRig(t, seen, cfg, inVirtualTime)
	p := inward(huntPort, syn)
	for i := range flows {
		p.src = netip.AddrPortFrom(clientAddr, uint16(1000+i))
		r.accept(t, p)
		r.acknowledge(t, p)
	}
	for i := range openings {
		p.src = netip.AddrPortFrom(netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 13: byte(i >> 16), 14: byte(i >> 8), 15: byte(i)}), 1)
		if out := r.run(t, to(p, policy.Generation(p.seq), 0xca, 0xcf).frame()); out.action != xdpPass {
			t.Fatalf("opening %d: action %d", i, out.action)
		}
	}
	for i := range flows {
		p.src = netip.AddrPortFrom(clientAddr, uint16(1000+i))
		if c, known := r.settled(t, p.flow()); !known || c.State != connDirect {
			t.Fatalf("flow %d after the flood: known %v, %+v", i, known, c)
		}
	}
	if waiting := waitsOf(t, r.Agent).count(t); waiting != cfg.Flows.Embryonic {
		t.Errorf("%d openings are remembered, not %d", waiting, cfg.Flows.Embryonic)
	}
	if got := r.asking(t); got != 0 {
		t.Errorf("%d requests in progress after a flood of none", got)
	}
}

// testConnsFull: an established flow that finds no room stays where openings are,
// and works; nobody established gives way.
func testConnsFull(t *testing.T, seen hits) {
	const entries = 4
	r := newAgentRigOf(t, seen, entries, offering(huntPort, byTable))
	p := inward(huntPort, syn)
	for i := range entries {
		p.src = netip.AddrPortFrom(clientAddr, uint16(clientPort+i))
		r.accept(t, p)
		r.acknowledge(t, p)
	}
	p.src = netip.AddrPortFrom(clientAddr, clientPort+entries)
	r.accept(t, p)
	generation := policy.Generation(p.seq)
	p.flags, p.seq, p.payload = ack, p.seq+1, []byte("GET")
	for _, why := range [][]string{{"acknowledged", "steered", "table_full"}, {"steered", "table_full"}} {
		r.send(t, to(p, generation, 0xa5).frame()).is(t, "no room", xdpPass, delivered(p), why...)
	}
	if c := r.mustConn(t, p); c.State != connDirect || c.Flags != connPending {
		t.Errorf("without room it is %+v", c)
	}
	if _, known := r.settled(t, p.flow()); known {
		t.Error("it is among the established")
	}
	if got := r.asking(t); got != 0 {
		t.Errorf("%d requests are counted in an entry that may vanish", got)
	}
	for i := range entries {
		p.src = netip.AddrPortFrom(clientAddr, uint16(clientPort+i))
		if _, known := r.settled(t, p.flow()); !known {
			t.Errorf("flow %d gave way", i)
		}
	}
}

// TestAgentSweepsMany: the kernel shows an iterator's reader a million entries and then
// lets it ask again. It counts in a chain how far it came, so that an entry may wait for
// the next sweep where one before it went.
func TestAgentSweepsMany(t *testing.T) {
	const flows = 1_100_000
	idle := 5 * time.Minute
	r := newAgentRigOf(t, hits{}, flows, offering(huntPort, byTable))
	keys, values := make([]lbTuple, flows), make([]agentConn, flows)
	for i := range keys {
		binary.NativeEndian.PutUint32(keys[i].Client.In6U.U6Addr8[:], uint32(i))
		values[i].SeenNs = uint64(start)
		if i%2 == 0 {
			values[i].SeenNs -= uint64(idle)
		}
	}
	if n, err := r.objs.Conns.BatchUpdate(keys, values, nil); err != nil || n != flows {
		t.Fatalf("%d of %d entries: %v", n, flows, err)
	}
	first, err := r.sweepAt(start + 1)
	if err != nil || first.Removed < flows/2-10 || first.Kept < flows/2-10 {
		t.Fatalf("%+v, %v, want about %d of each", first, err, flows/2)
	}
	second, err := r.sweepAt(start + 1)
	if err != nil || first.Removed+second.Removed != flows/2 || second.Kept != flows/2 {
		t.Fatalf("%+v, then %+v, %v, want %d of each", first, second, err, flows/2)
	}
}

// TestAgentSweepTurns: every fifth turn is the agent's, the first included; what is kept
// is told in all.
func TestAgentSweepTurns(t *testing.T) {
	r := newAgentRig(t, hits{}, offering(huntPort, byTable))
	known := agentConn{SeenNs: uint64(monotonic())}
	put := func(key byte) {
		t.Helper()
		if err := r.objs.Conns.Put(lbTuple{Protocol: key}, known); err != nil {
			t.Fatal(err)
		}
	}
	put(1)
	for turn, want := range []Swept{{Kept: 1}, {Kept: 1}, {Kept: 1}, {Kept: 1}, {Kept: 1}, {Kept: 1, Removed: 1}, {Kept: 1}} {
		if got, err := r.SweepTurn(); err != nil || got != want {
			t.Errorf("turn %d: %+v, %v, want %+v", turn, got, err, want)
		}
		if turn == 0 {
			known.SeenNs -= uint64(5*time.Minute + time.Second)
			put(2)
		}
	}
}
