package agent_test

import (
	"net/netip"
	"testing"

	"proffer/dataplane/objects"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// testNoPlace: an offer without a free slot is passed on, and accepted without an entry by
// the last candidate. An embryonic entry gives way, unless another CPU is writing it.
func testNoPlace(t *testing.T, seen rig.Hits) {
	rig.NewAgent(t, seen, rig.Offering(rig.HuntPort)) // for its namespace
	cfg := rig.AgentConfig(64, rig.Offering(rig.HuntPort))
	r := rig.LoadAgent(t, seen, cfg, rig.InVirtualTime)
	rig.Listen(t, rig.HuntPort, 128)
	p := rig.Inward(rig.HuntPort, wire.SYN)
	busy := objects.AgentConnLine{}
	for i := range busy.Fingerprint {
		busy.Fingerprint[i] = ^uint64(0) &^ objects.NoDigest
	}
	fill := func() {
		for at := range r.Lines {
			rig.ConnsOf(t, r.Agent).Write(t, at, &busy)
		}
	}
	fill()
	s := rig.To(p, wire.Generation(p.Seq), wire.ConnectAvail, wire.ConnectForce)
	r.Send(t, s.Frame()).Is(t, "no slot", rig.XDPTX, s.Onward(rig.HopMAC(2)), "pass_on_table_full")
	r.Send(t, rig.To(p, wire.Generation(p.Seq), wire.ConnectForce).Frame()).Is(t, "last", rig.XDPPass, rig.Delivered(p), "table_full")
	s = s.Flagged(wire.Retry)
	r.Send(t, s.Frame()).Is(t, "again", rig.XDPTX, s.Onward(rig.HopMAC(2)), "pass_on_again")
	r.SetLoad(t, func(l *objects.AgentLoad) {
		for _, p := range l.Pending {
			if p.Count != 0 {
				t.Errorf("%d that found no slot are pending", p.Count)
			}
		}
	})
	busy.Fingerprint[3] = objects.NoDigest + 1 | uint64(rig.Start)>>20&0xffff // of another flow, embryonic
	fill()
	p.Src = netip.AddrPortFrom(rig.ClientAddr, 1)
	r.Accept(t, p)
}

// testFlood: embryonic entries displace each other and no established flow.
func testFlood(t *testing.T, seen rig.Hits) {
	const flows, embryonic = 200, 100_000
	rig.NewAgent(t, seen, rig.Offering(rig.HuntPort)) // for its namespace
	cfg := rig.AgentConfig(flows, rig.Offering(rig.HuntPort, rig.ByTable, func(o *topo.Offering) { o.Acceptance = topo.Always }))
	cfg.Flows.Embryonic = 2048 // so that no line has established entries alone
	r := rig.LoadAgent(t, seen, cfg, rig.InVirtualTime)
	p := rig.Inward(rig.HuntPort, wire.SYN)
	for i := range flows {
		p.Src = netip.AddrPortFrom(rig.ClientAddr, uint16(1000+i))
		r.Accept(t, p)
		r.Acknowledge(t, p)
	}
	for i := range embryonic {
		p.Src = netip.AddrPortFrom(netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 13: byte(i >> 16), 14: byte(i >> 8), 15: byte(i)}), 1)
		if out := r.Run(t, rig.To(p, wire.Generation(p.Seq), wire.ConnectAvail, wire.ConnectForce).Frame()); out.Action != rig.XDPPass {
			t.Fatalf("opening %d: action %d", i, out.Action)
		}
	}
	for i := range flows {
		p.Src = netip.AddrPortFrom(rig.ClientAddr, uint16(1000+i))
		if c, known := r.Settled(t, p.Flow()); !known || c.State != objects.ConnDirect {
			t.Fatalf("flow %d after the flood: known %v, %+v", i, known, c)
		}
	}
	slots := int(r.Lines) * objects.LineSlots
	if embryonic, established := rig.ConnsOf(t, r.Agent).Count(t); established != flows || embryonic != slots-flows {
		t.Errorf("%d embryonic and %d established flows in %d slots", embryonic, established, slots)
	}
	if got := r.Asking(t); got != 0 {
		t.Errorf("%d requests in progress after a flood of none", got)
	}
}

// testConnsFull: where established flows have all slots of a flow's lines, the flow has no
// entry and none of them gives way.
func testConnsFull(t *testing.T, seen rig.Hits) {
	rig.NewAgent(t, seen, rig.Offering(rig.HuntPort)) // for its namespace
	cfg := rig.AgentConfig(1, rig.Offering(rig.HuntPort, rig.ByTable, func(o *topo.Offering) { o.Acceptance = topo.Always }))
	cfg.Flows.Embryonic = 2*objects.LineSlots - 2
	r := rig.LoadAgent(t, seen, cfg, rig.InVirtualTime)
	if r.Lines != 2 {
		t.Fatalf("%d lines", r.Lines)
	}
	var all, refused []rig.Packet
	for i := 0; len(refused) < 3; i++ {
		p := rig.Inward(rig.HuntPort, wire.SYN)
		p.Src = netip.AddrPortFrom(rig.ClientAddr, uint16(rig.ClientPort+i))
		out := r.Run(t, rig.To(p, wire.Generation(p.Seq), wire.ConnectAvail, wire.ConnectForce).Frame())
		if out.Action != rig.XDPPass {
			refused = append(refused, p)
			continue
		}
		r.Acknowledge(t, p)
		all = append(all, p)
	}
	// A flow's two lines may be the same, so perhaps not every slot was taken.
	if embryonic, established := rig.ConnsOf(t, r.Agent).Count(t); embryonic != 0 || established != len(all) || established < objects.LineSlots {
		t.Errorf("%d embryonic, %d established, want 0 and %d", embryonic, established, len(all))
	}
	for _, p := range refused {
		generation := wire.Generation(p.Seq)
		r.Send(t, rig.To(p, generation, wire.ConnectForce).Frame()).Is(t, "the last", rig.XDPPass, rig.Delivered(p), "table_full")
		p.Flags, p.Seq, p.Payload = wire.ACK, p.Seq+1, []byte("GET")
		s := rig.To(p, generation, wire.AckStickiness)
		r.Send(t, s.Frame()).Is(t, "by table", rig.XDPTX, s.Returned(), "give_back_not_mine")
	}
	for _, p := range all {
		if _, known := r.Settled(t, p.Flow()); !known {
			t.Errorf("flow %v gave way", p.Src)
		}
	}
}

// TestConnAdoptedFull: a flow that the kernel has and for which there is no slot works
// without an entry.
func TestConnAdoptedFull(t *testing.T) {
	r := rig.NewAgent(t, rig.Hits{}, rig.Offering(rig.HuntPort))
	p := rig.Inward(rig.HuntPort, wire.SYN)
	rig.Established(t, p, p.Seq)
	conns := rig.ConnsOf(t, r.Agent)
	for at := range r.Lines {
		var full objects.AgentConnLine
		for i := range full.Fingerprint {
			full.Fingerprint[i] = ^uint64(0) &^ 0xffff >> 1 &^ rig.ConnDisplaced // of other flows, established
			full.Slot[i].Seen = rig.Seen(rig.Start)
		}
		conns.Write(t, at, &full)
	}
	generation := wire.Generation(p.Seq)
	p.Flags, p.Seq = wire.ACK, p.Seq+1
	for range 2 {
		r.Send(t, rig.To(p, generation, wire.AckStickiness).Frame()).Is(t, "no room", rig.XDPPass, rig.Delivered(p), "steered", "table_full")
	}
}
