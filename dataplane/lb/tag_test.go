package lb_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"proffer/dataplane/lb"
	"proffer/policy"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// newSigningRig loads an LB that has keys.
func newSigningRig(t *testing.T, seen rig.Hits, keys []topo.SignalKey, services ...topo.Service) *rig.LB {
	t.Helper()
	rig.Enter(t)
	cfg := rig.LBConfig(services...)
	cfg.Keys = keys
	return rig.LoadLB(t, seen, cfg)
}

// signedSignal is a signal of server i with its own key.
func signedSignal(i int, k topo.SignalKey, p rig.Packet, function wire.Function, generation uint16, change ...func(*rig.Route)) []byte {
	to := rig.WithKey(rig.SID(rig.LbLocator, function, generation), k.ID)
	return rig.SignalTo(i, p, to, append(change, rig.SignedBy(wire.ServerKey(k.Server, rig.ServerLocator(i))))...)
}

// state is all that signals may change.
func state(r *rig.LB, t *testing.T, f policy.Flow) string {
	t.Helper()
	flow, known := r.Flow(t, f)
	all, embryonic := r.Table.Count(t)
	entry, waiting := r.Embryonic(t, f)
	return fmt.Sprintln(flow, known, entry, waiting, embryonic, all)
}

// testLBTags: with keys, a signal without its sender's own tag is dropped and
// changes nothing: neither without state nor of an embryonic flow nor of a flow.
func testLBTags(t *testing.T, seen rig.Hits) {
	for _, by := range []topo.Wire{topo.Encap, topo.Insert} {
		r := newSigningRig(t, seen, []topo.SignalKey{rig.OldKeys}, rig.Hunting(2, 8, rig.Members, func(s *topo.Service) { s.Wire = by }))
		carried := func(w *rig.Route) { w.Insert = by == topo.Insert }
		p := rig.Inward(rig.HuntPort, wire.SYN)
		generation := wire.Generation(p.Seq)
		for _, stage := range []struct {
			label string
			next  []byte
		}{
			{"nothing", signedSignal(1, rig.OldKeys, rig.SynAck(rig.HuntPort), wire.CreateStickiness, generation, carried)},
			{"embryonic", confirmation(p).Frame()},
			{"flow", nil},
		} {
			before := state(r, t, p.Flow())
			for _, c := range forgeries(generation, carried) {
				r.Send(t, c.frame).Is(t, stage.label+": "+c.label, rig.XDPDrop, nil, "drop_bad_tag")
				if after := state(r, t, p.Flow()); after != before {
					t.Fatalf("%s: %s changed\n%sto\n%s", stage.label, c.label, before, after)
				}
			}
			if stage.next != nil {
				if out := r.Send(t, stage.next); out.Action != rig.XDPTX {
					t.Fatalf("%s: action %d for %v", stage.label, out.Action, out.Reasons)
				}
			}
		}
		closing := rig.Outward(rig.HuntPort, wire.FIN|wire.ACK)
		r.Send(t, signedSignal(1, rig.OldKeys, closing, wire.RemoveStickiness, generation, carried)).
			Is(t, "FIN", rig.XDPTX, rig.Unwrapped(closing), "stickiness_removed")
		p.Flags = wire.ACK
		out := r.Send(t, signedSignal(1, rig.OldKeys, p, wire.NotMine, generation))
		if !slices.Equal(out.Reasons, []string{"recover_returned", "stale_removed"}) {
			t.Errorf("a signed nm: %v", out.Reasons)
		}
		// The LB's own: whatever comes back to it.
		for _, c := range []struct {
			key topo.Key
			id  uint8
			why string
		}{
			{rig.OldKeys.Farm, 7, "list_continued"}, {rig.OldKeys.Farm, 8, "drop_bad_tag"}, {rig.OldKeys.Farm, 0, "drop_bad_tag"},
			{wire.ServerKey(rig.OldKeys.Server, rig.LbLocator), 7, "drop_bad_tag"},
		} {
			to := rig.WithKey(rig.SID(rig.LbLocator, wire.RecoverStickiness, 0), c.id)
			back := rig.Route{From: rig.LbLocator, Segments: []netip.Addr{to}, Hop: 63, Insert: by == topo.Insert, Key: &c.key}
			if out := r.Send(t, wire.Frame(rig.HereMAC, rig.RouterMAC, back.Around(p))); !slices.Equal(out.Reasons, []string{c.why}) {
				t.Errorf("list that comes back, key %d: %v, want %s", c.id, out.Reasons, c.why)
			}
		}
	}
}

// confirmation is the client's ACK to the SYN-ACK for p.
func confirmation(p rig.Packet) rig.Packet {
	p.Flags, p.Seq, p.Ack = wire.ACK, p.Seq+1, rig.ServerISN+1
	return p
}

type forgery struct {
	label string
	frame []byte
}

// forgeries are signals about the test's flow that server 1 never sent.
func forgeries(generation uint16, carried func(*rig.Route)) (all []forgery) {
	given := rig.Inward(rig.HuntPort, wire.ACK)
	closing := rig.Outward(rig.HuntPort, wire.RST|wire.ACK)
	for _, p := range []struct {
		rig.Packet
		function wire.Function
	}{{rig.SynAck(rig.HuntPort), wire.CreateStickiness}, {rig.Outward(rig.HuntPort, wire.ACK), wire.CreateStickiness}, {closing, wire.RemoveStickiness}, {given, wire.NotMine}} {
		carried := carried
		if p.function == wire.NotMine {
			carried = func(*rig.Route) {}
		}
		label := func(s string) string { return fmt.Sprintf("%s, %s", p.function, s) }
		plain := rig.SID(rig.LbLocator, p.function, generation)
		with := func(id uint8, key topo.Key) []byte {
			return rig.SignalTo(1, p.Packet, rig.WithKey(plain, id), carried, rig.SignedBy(key))
		}
		own := wire.ServerKey(rig.OldKeys.Server, rig.ServerLocator(1))
		good := signedSignal(1, rig.OldKeys, p.Packet, p.function, generation, carried)
		at := 22 // the source address
		if good[rig.AtNext] == 43 {
			at = rig.AtUpper + 8 + 2*16 // the first segment
		}
		all = append(all,
			forgery{label("without a tag"), rig.SignalTo(1, p.Packet, plain, carried)},
			forgery{label("without a tag, key named"), rig.SignalTo(1, p.Packet, rig.WithKey(plain, 7), carried)},
			forgery{label("a key that no node has"), with(9, own)},
			forgery{label("key 0"), with(0, own)},
			forgery{label("the farm's key"), with(7, rig.OldKeys.Farm)},
			forgery{label("the master key"), with(7, rig.OldKeys.Server)},
			forgery{label("another server's key"), with(7, wire.ServerKey(rig.OldKeys.Server, rig.ServerLocator(2)))},
			forgery{label("one bit of the tag"), rig.Altered(good, at+15, good[at+15]^1)},
			forgery{label("one bit of the tag"), rig.Altered(good, at+8, good[at+8]^0x80)},
			forgery{label("another server's name"), rig.Altered(good, at+7, 2)},
			forgery{label("another generation"), rig.Altered(good, rig.AtDst+11, good[rig.AtDst+11]^1)},
			forgery{label("a flag"), rig.Altered(good, rig.AtDst+12, 1)},
			forgery{label("a report"), rig.Altered(good, rig.AtDst+15, 1)},
		)
	}
	// In an inserted header the segment that is signed is that in the list.
	return slices.DeleteFunc(all, func(f forgery) bool {
		_, label, _ := strings.Cut(f.label, ", ")
		return f.frame[rig.AtNext] == wire.ProtoRouting && (label == "another generation" || label == "a flag" || label == "a report")
	})
}

// testSigned: a request to a server carries the farm's tag; a packet that only
// goes to its flow's server, or to a server without an agent, does not.
func testSigned(t *testing.T, seen rig.Hits) {
	for _, by := range []topo.Wire{topo.Encap, topo.Insert} {
		r := newSigningRig(t, seen, []topo.SignalKey{rig.OldKeys, rig.NewKeys},
			rig.Hunting(3, 8, rig.ViaTransit(1), func(s *topo.Service) { s.Wire = by }), rig.Service(81, topo.Stateless, 1, 8))
		carried := func(w *rig.Route) { w.Insert = by == topo.Insert }
		signed := func(segments []netip.Addr) []netip.Addr {
			for i := range segments {
				segments[i] = rig.WithKey(segments[i], rig.OldKeys.ID)
			}
			return slices.Concat([]netip.Addr{rig.Transit(0)}, segments)
		}
		p := rig.Inward(rig.HuntPort, wire.SYN)
		list := r.List(t, 0, p.Flow())
		r.Send(t, p.Frame()).Is(t, "offer", rig.XDPTX,
			rig.Sent(p, rig.TransitMAC, signed(rig.Offer(p, 0, list...)), carried, rig.SignedBy(rig.OldKeys.Farm)), "offer")
		p.Flags = wire.ACK
		r.Send(t, p.Frame()).Is(t, "question", rig.XDPTX,
			rig.Sent(p, rig.TransitMAC, signed(rig.Ask(wire.RecoverStickiness, 0, list...)), carried, rig.SignedBy(rig.OldKeys.Farm)), "recover")
		generation := wire.Generation(p.Seq)
		r.Send(t, signedSignal(list[0], rig.NewKeys, rig.SynAck(rig.HuntPort), wire.CreateStickiness, generation, carried))
		out := r.Send(t, confirmation(p).Frame())
		out.Is(t, "steer", rig.XDPTX, rig.Sent(confirmation(p), rig.TransitMAC,
			[]netip.Addr{rig.Transit(0), rig.SID(rig.ServerLocator(list[0]), wire.AckStickiness, generation)}, carried), "steer", "flow_established")
		out = r.Send(t, signedSignal(list[1], rig.NewKeys, rig.SynAck(rig.HuntPort), wire.CreateStickiness, generation, carried))
		out.Is(t, "reject", rig.XDPTX, nil, "reject", "stickiness_conflict")
		checkReject(r, t, out.Frame, p.Flow(), list[1], generation, by == topo.Insert)
		q := rig.Inward(81, wire.ACK)
		r.Send(t, q.Frame()).Is(t, "single", rig.XDPTX, rig.ToOne(q, r.List(t, 1, q.Flow())[0], wire.Deliver, 0), "deliver")
	}
	for choices := 1; choices <= 4; choices++ { // the first segment signs itself
		r := newSigningRig(t, seen, []topo.SignalKey{rig.OldKeys}, rig.Hunting(choices, 8))
		p := rig.Inward(rig.HuntPort, wire.SYN)
		list := r.List(t, 0, p.Flow())
		segments := rig.Offer(p, 0, list...)
		for i := range segments {
			segments[i] = rig.WithKey(segments[i], rig.OldKeys.ID)
		}
		r.Send(t, p.Frame()).Is(t, fmt.Sprintf("to %d", choices), rig.XDPTX,
			rig.Sent(p, rig.HopMAC(list[0]), segments, rig.SignedBy(rig.OldKeys.Farm)), "offer")
	}
}

// checkReject compares the tag of an rj with the right tag.
func checkReject(r *rig.LB, t *testing.T, frame []byte, f policy.Flow, server int, generation uint16, insert bool) {
	t.Helper()
	segments := segmentsOf(frame, insert)
	last := rig.WithKey(rig.SID(rig.ServerLocator(server), wire.Reject, generation), rig.OldKeys.ID)
	covered, at := []netip.Addr{last}, 30
	if insert {
		covered, at = []netip.Addr{rig.VipAddr, last, rig.Transit(0)}, rig.AtUpper+8+3*16+8
	}
	tag := wire.Tag(rig.OldKeys.Farm, f, rig.LbLocator, covered)
	if !slices.Equal(segments, []netip.Addr{rig.Transit(0), last}) || !slices.Equal(frame[at:at+8], tag[:]) {
		t.Errorf("rj by %v with tag %x, want %x", segments, frame[at:at+8], tag)
	}
}

// testRotation: both are accepted, the new one signs, the old one is dropped; at
// no time is a signal refused that an honest server may send.
func testRotation(t *testing.T, seen rig.Hits) {
	r := newSigningRig(t, seen, []topo.SignalKey{rig.OldKeys}, rig.Hunting(2, 8, rig.Members))
	isn := uint32(1)
	for i, stage := range []struct {
		keys []topo.SignalKey
		old  bool
		new  bool
		id   uint8
	}{
		{[]topo.SignalKey{rig.OldKeys}, true, false, 7},
		{[]topo.SignalKey{rig.OldKeys, rig.NewKeys}, true, true, 7},
		{[]topo.SignalKey{rig.NewKeys, rig.OldKeys}, true, true, 8},
		{[]topo.SignalKey{rig.NewKeys}, false, true, 8},
		{nil, true, true, 0},
	} {
		r.Cfg.Keys = stage.keys
		if err := r.Configure(r.Cfg); err != nil {
			t.Fatal(err)
		}
		for _, k := range []struct {
			topo.SignalKey
			valid bool
		}{{rig.OldKeys, stage.old}, {rig.NewKeys, stage.new}} {
			isn++
			out := r.Send(t, signedSignal(3, k.SignalKey, rig.SynAck(rig.HuntPort), wire.CreateStickiness, wire.Generation(isn)))
			if out.Action == rig.XDPTX != k.valid {
				t.Errorf("stage %d, signal with key %d: action %d for %v", i, k.ID, out.Action, out.Reasons)
			}
			p := rig.Inward(rig.HuntPort, wire.ACK)
			to := rig.WithKey(rig.SID(rig.LbLocator, wire.RecoverStickiness, 0), k.ID)
			back := rig.Route{From: rig.LbLocator, Segments: []netip.Addr{to}, Hop: 63, Key: &k.Farm}
			if out := r.Send(t, wire.Frame(rig.HereMAC, rig.RouterMAC, back.Around(p))); out.Action == rig.XDPTX != k.valid {
				t.Errorf("stage %d, a list signed with key %d: action %d for %v", i, k.ID, out.Action, out.Reasons)
			}
		}
		p := rig.Inward(rig.HuntPort, wire.SYN)
		p.Src = netip.AddrPortFrom(rig.ClientAddr, uint16(1000+i))
		if id := wire.ParseSID(segmentsOf(r.Send(t, p.Frame()).Frame, false)[0]).KeyID; id != stage.id {
			t.Errorf("stage %d: it signs with key %d, want %d", i, id, stage.id)
		}
	}
}

// testLBDomain: segments come from inside only.
func testLBDomain(t *testing.T, seen rig.Hits) {
	rig.Enter(t)
	inserted := rig.Service(83, topo.Hunt, 2, 8)
	rig.Inserting(&inserted)
	rig.Members(&inserted)
	cfg := rig.LBConfig(rig.Hunting(2, 8, rig.Members), inserted)
	cfg.Domain = []netip.Prefix{netip.MustParsePrefix("2001:db8:1::/48"), netip.PrefixFrom(rig.ServerLocator(2).Addr(), 63)}
	r := rig.LoadLB(t, seen, cfg)
	for i := range 8 {
		inside := i == 2 || i == 3
		for port, how := range map[uint16]func(*rig.Route){rig.HuntPort: func(*rig.Route) {}, 83: rig.Insert} {
			out := r.Send(t, rig.SignalFrom(i, rig.SynAck(port), wire.CreateStickiness, uint16(5+i), how))
			if inside != (out.Action == rig.XDPTX) || !inside && !slices.Equal(out.Reasons, []string{"drop_outside"}) {
				t.Errorf("from server %d: action %d for %v", i, out.Action, out.Reasons)
			}
		}
	}
	cfg.Domain = slices.Repeat(cfg.Domain, 9)
	if _, err := lb.NewWith(cfg, rig.InVirtualTime); err == nil {
		t.Error("18 blocks have room for 16")
	}
}
