package dataplane

import (
	"net/netip"
	"testing"

	"proffer/policy"
	"proffer/topo"
)

// testNoPlace: an offer without a free slot is passed on, and accepted without an entry by
// the last candidate. An embryonic entry gives way, unless another CPU is writing it.
func testNoPlace(t *testing.T, seen hits) {
	newAgentRig(t, seen, offering(huntPort)) // for its namespace
	cfg := agentConfig(64, offering(huntPort))
	r := loadAgentRig(t, seen, cfg, inVirtualTime)
	listen(t, huntPort, 128)
	p := inward(huntPort, syn)
	busy := agentConnLine{}
	for i := range busy.Fingerprint {
		busy.Fingerprint[i] = ^uint64(0) &^ noDigest
	}
	fill := func() {
		for at := range r.lines {
			connsOf(t, r.Agent).write(t, at, &busy)
		}
	}
	fill()
	s := to(p, policy.Generation(p.seq), 0xca, 0xcf)
	r.send(t, s.frame()).is(t, "no slot", xdpTX, s.onward(hopMAC(2)), "pass_on_table_full")
	r.send(t, to(p, policy.Generation(p.seq), 0xcf).frame()).is(t, "last", xdpPass, delivered(p), "table_full")
	s = s.flagged(sidRetry)
	r.send(t, s.frame()).is(t, "again", xdpTX, s.onward(hopMAC(2)), "pass_on_again")
	r.setLoad(t, func(l *agentLoad) {
		for _, p := range l.Pending {
			if p.Count != 0 {
				t.Errorf("%d that found no slot are pending", p.Count)
			}
		}
	})
	busy.Fingerprint[3] = noDigest + 1 | uint64(start)>>20&0xffff // of another flow, embryonic
	fill()
	p.src = netip.AddrPortFrom(clientAddr, 1)
	r.accept(t, p)
}

// testFlood: embryonic entries displace each other and no established flow.
func testFlood(t *testing.T, seen hits) {
	const flows, embryonic = 200, 100_000
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
	for i := range embryonic {
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
	slots := int(r.lines) * lineSlots
	if embryonic, established := connsOf(t, r.Agent).count(t); established != flows || embryonic != slots-flows {
		t.Errorf("%d embryonic and %d established flows in %d slots", embryonic, established, slots)
	}
	if got := r.asking(t); got != 0 {
		t.Errorf("%d requests in progress after a flood of none", got)
	}
}

// testConnsFull: where established flows have all slots of a flow's lines, the flow has no
// entry and none of them gives way.
func testConnsFull(t *testing.T, seen hits) {
	newAgentRig(t, seen, offering(huntPort)) // for its namespace
	cfg := agentConfig(1, offering(huntPort, byTable, func(o *topo.Offering) { o.Acceptance = topo.Always }))
	cfg.Flows.Embryonic = 2*lineSlots - 2
	r := loadAgentRig(t, seen, cfg, inVirtualTime)
	if r.lines != 2 {
		t.Fatalf("%d lines", r.lines)
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
	// A flow's two lines may be the same, so perhaps not every slot was taken.
	if embryonic, established := connsOf(t, r.Agent).count(t); embryonic != 0 || established != len(all) || established < lineSlots {
		t.Errorf("%d embryonic, %d established, want 0 and %d", embryonic, established, len(all))
	}
	for _, p := range refused {
		generation := policy.Generation(p.seq)
		r.send(t, to(p, generation, 0xcf).frame()).is(t, "the last", xdpPass, delivered(p), "table_full")
		p.flags, p.seq, p.payload = ack, p.seq+1, []byte("GET")
		s := to(p, generation, 0xa5)
		r.send(t, s.frame()).is(t, "by table", xdpTX, s.returned(), "give_back_not_mine")
	}
	for _, p := range all {
		if _, known := r.settled(t, p.flow()); !known {
			t.Errorf("flow %v gave way", p.src)
		}
	}
}

// TestConnAdoptedFull: a flow that the kernel has and for which there is no slot works
// without an entry.
func TestConnAdoptedFull(t *testing.T) {
	r := newAgentRig(t, hits{}, offering(huntPort))
	p := inward(huntPort, syn)
	established(t, p, p.seq)
	conns := connsOf(t, r.Agent)
	for at := range r.lines {
		var full agentConnLine
		for i := range full.Fingerprint {
			full.Fingerprint[i] = ^uint64(0) &^ 0xffff >> 1 &^ connDisplaced // of other flows, established
		}
		conns.write(t, at, &full)
	}
	generation := policy.Generation(p.seq)
	p.flags, p.seq = ack, p.seq+1
	for range 2 {
		r.send(t, to(p, generation, 0xa5).frame()).is(t, "no room", xdpPass, delivered(p), "steered", "table_full")
	}
}
