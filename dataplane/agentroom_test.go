package dataplane

import (
	"net/netip"
	"testing"

	"proffer/policy"
	"proffer/topo"
)

// testNoPlace: without a place for its state an offer is passed on, and taken
// without state by the last. An opening makes room, but where another CPU is just there.
func testNoPlace(t *testing.T, seen hits) {
	newAgentRig(t, seen, offering(huntPort)) // for its namespace
	cfg := agentConfig(64, offering(huntPort))
	r := loadAgentRig(t, seen, cfg, inVirtualTime)
	listen(t, huntPort, 128)
	p := inward(huntPort, syn)
	busy := agentConnSet{}
	for i := range busy.Mark {
		busy.Mark[i] = ^uint64(0) &^ noDigest
	}
	fill := func() {
		for at := range r.lines {
			connsOf(t, r.Agent).write(t, at, &busy)
		}
	}
	fill()
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
	busy.Mark[3] = noDigest + 1 | uint64(start)>>20&0xffff // another flow's opening
	fill()
	p.src = netip.AddrPortFrom(clientAddr, 1)
	r.accept(t, p)
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
	places := int(r.lines) * setPlaces
	if openings, proved := connsOf(t, r.Agent).count(t); proved != flows || openings != places-flows {
		t.Errorf("%d openings and %d established flows in %d places", openings, proved, places)
	}
	if got := r.asking(t); got != 0 {
		t.Errorf("%d requests in progress after a flood of none", got)
	}
}

// testConnsFull: where all places of a flow are taken by established ones, an opening has
// no entry; nobody gives way.
func testConnsFull(t *testing.T, seen hits) {
	newAgentRig(t, seen, offering(huntPort)) // for its namespace
	cfg := agentConfig(1, offering(huntPort, byTable, func(o *topo.Offering) { o.Acceptance = topo.Always }))
	cfg.Flows.Embryonic = 2*setPlaces - 2
	r := loadAgentRig(t, seen, cfg, inVirtualTime)
	if r.lines != 2 {
		t.Fatalf("%d sets", r.lines)
	}
	var all, refused []packet
	for i := 0; len(refused) < 3; i++ {
		p := inward(huntPort, syn)
		p.src = netip.AddrPortFrom(clientAddr, uint16(clientPort+i))
		out := r.run(t, to(p, policy.Generation(p.seq), 0xca, 0xcf).frame())
		if out.action != xdpPass {
			refused = append(refused, p)
			continue
		}
		r.acknowledge(t, p)
		all = append(all, p)
	}
	// Some have the same set twice, so perhaps not every place could be taken.
	if openings, proved := connsOf(t, r.Agent).count(t); openings != 0 || proved != len(all) || proved < setPlaces {
		t.Errorf("%d openings, %d established, want 0 and %d", openings, proved, len(all))
	}
	for _, p := range refused {
		generation := policy.Generation(p.seq)
		r.send(t, to(p, generation, 0xcf).frame()).is(t, "the last", xdpPass, delivered(p), "table_full")
		p.flags, p.seq, p.payload = ack, p.seq+1, []byte("GET")
		s := to(p, generation, 0xa5)
		r.send(t, s.frame()).is(t, "by table", xdpTX, s.returned(), "not_mine")
	}
	for _, p := range all {
		if _, known := r.settled(t, p.flow()); !known {
			t.Errorf("flow %v gave way", p.src)
		}
	}
}

// TestConnAdoptedFull: a flow that the kernel has and for which there is no place works
// without an entry.
func TestConnAdoptedFull(t *testing.T) {
	r := newAgentRig(t, hits{}, offering(huntPort))
	p := inward(huntPort, syn)
	established(t, p, p.seq)
	conns := connsOf(t, r.Agent)
	for at := range r.lines {
		var full agentConnSet
		for i := range full.Mark {
			full.Mark[i] = ^uint64(0) &^ 0xffff >> 1 &^ manyStrays // of other flows, proved
		}
		conns.write(t, at, &full)
	}
	generation := policy.Generation(p.seq)
	p.flags, p.seq = ack, p.seq+1
	for range 2 {
		r.send(t, to(p, generation, 0xa5).frame()).is(t, "no room", xdpPass, delivered(p), "steered", "table_full")
	}
}
