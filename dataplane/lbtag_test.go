package dataplane

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"proffer/policy"
	"proffer/topo"
	"proffer/wire"
)

// Two generations of keys, as LBs have them.
var (
	oldKeys = topo.SignalKey{ID: 7, Farm: topo.Key{7, 1}, Server: topo.Key{7, 2}}
	newKeys = topo.SignalKey{ID: 8, Farm: topo.Key{8, 1}, Server: topo.Key{8, 2}}
)

// newSigningRig loads an LB that has keys.
func newSigningRig(t *testing.T, seen hits, keys []topo.SignalKey, services ...topo.Service) *lbRig {
	t.Helper()
	enter(t)
	cfg := lbConfig(services...)
	cfg.Keys = keys
	return lbRigOf(t, seen, cfg)
}

// signedSignal is what server i sends with its own key.
func signedSignal(i int, k topo.SignalKey, p packet, function byte, generation uint16, change ...func(*route)) []byte {
	to := withKey(sid(lbLocator, function, generation), k.ID)
	return signalTo(i, p, to, append(change, signedBy(wire.ServerKey(k.Server, serverLocator(i))))...)
}

// state is all that signals may change.
func (r *lbRig) state(t *testing.T, f policy.Flow) string {
	t.Helper()
	flow, known := r.flow(t, f)
	all, embryos := r.table.count(t)
	embryo, waiting := r.embryo(t, f)
	return fmt.Sprintln(flow, known, embryo, waiting, embryos, all)
}

// testLBTags: with keys, a signal without its sender's own tag is dropped and
// changes nothing: neither without state nor of an embryo nor of a flow.
func testLBTags(t *testing.T, seen hits) {
	for _, by := range []topo.Wire{topo.Encap, topo.Insert} {
		r := newSigningRig(t, seen, []topo.SignalKey{oldKeys}, hunting(2, 8, func(s *topo.Service) { s.Wire = by }))
		carried := func(w *route) { w.insert = by == topo.Insert }
		p := inward(huntPort, syn)
		generation := policy.Generation(p.seq)
		for _, stage := range []struct {
			what string
			next []byte
		}{
			{"nothing", signedSignal(1, oldKeys, synAck(huntPort), create, generation, carried)},
			{"embryo", confirmation(p).frame()},
			{"flow", nil},
		} {
			before := r.state(t, p.flow())
			for _, c := range forgeries(generation, carried) {
				r.send(t, c.frame).is(t, stage.what+": "+c.what, xdpDrop, nil, "drop_bad_tag")
				if after := r.state(t, p.flow()); after != before {
					t.Fatalf("%s: %s changed\n%sto\n%s", stage.what, c.what, before, after)
				}
			}
			if stage.next != nil {
				if out := r.send(t, stage.next); out.action != xdpTX {
					t.Fatalf("%s: action %d for %v", stage.what, out.action, out.reasons)
				}
			}
		}
		closing := outward(huntPort, fin|ack)
		r.send(t, signedSignal(1, oldKeys, closing, remove, generation, carried)).
			is(t, "FIN", xdpTX, unwrapped(closing), "stickiness_removed")
		p.flags = ack
		out := r.send(t, signedSignal(1, oldKeys, p, notMine, generation, carried))
		if !slices.Equal(out.reasons, []string{"recover_returned", "stale_removed"}) {
			t.Errorf("a signed nm: %v", out.reasons)
		}
		// The LB's own: whatever comes back to it.
		for _, c := range []struct {
			key topo.Key
			id  uint8
			why string
		}{
			{oldKeys.Farm, 7, "list_continued"}, {oldKeys.Farm, 8, "drop_bad_tag"}, {oldKeys.Farm, 0, "drop_bad_tag"},
			{wire.ServerKey(oldKeys.Server, lbLocator), 7, "drop_bad_tag"},
		} {
			to := withKey(sid(lbLocator, goOn, 0), c.id)
			back := route{from: lbLocator, segments: []netip.Addr{to}, hop: 63, insert: by == topo.Insert, key: &c.key}
			if out := r.send(t, ethernet(hereMAC, routerMAC, back.around(p))); !slices.Equal(out.reasons, []string{c.why}) {
				t.Errorf("list that comes back, key %d: %v, want %s", c.id, out.reasons, c.why)
			}
		}
	}
}

// confirmation is the client's ACK to the SYN-ACK for p.
func confirmation(p packet) packet {
	p.flags, p.seq, p.ack = ack, p.seq+1, serverISN+1
	return p
}

type forgery struct {
	what  string
	frame []byte
}

// forgeries are signals about the test's flow that server 1 never sent.
func forgeries(generation uint16, carried func(*route)) (all []forgery) {
	given := inward(huntPort, ack)
	closing := outward(huntPort, rst|ack)
	for _, p := range []struct {
		packet
		function byte
	}{{synAck(huntPort), create}, {outward(huntPort, ack), create}, {closing, remove}, {given, notMine}} {
		what := func(s string) string { return fmt.Sprintf("%#02x, %s", p.function, s) }
		plain := sid(lbLocator, p.function, generation)
		with := func(id uint8, key topo.Key) []byte {
			return signalTo(1, p.packet, withKey(plain, id), carried, signedBy(key))
		}
		own := wire.ServerKey(oldKeys.Server, serverLocator(1))
		good := signedSignal(1, oldKeys, p.packet, p.function, generation, carried)
		at := 22 // the source address
		if good[atNext] == 43 {
			at = atUpper + 8 + 2*16 // the first segment
		}
		all = append(all,
			forgery{what("without a tag"), signalTo(1, p.packet, plain, carried)},
			forgery{what("without a tag, key named"), signalTo(1, p.packet, withKey(plain, 7), carried)},
			forgery{what("a key that nobody has"), with(9, own)},
			forgery{what("key 0"), with(0, own)},
			forgery{what("the farm's key"), with(7, oldKeys.Farm)},
			forgery{what("the master key"), with(7, oldKeys.Server)},
			forgery{what("another server's key"), with(7, wire.ServerKey(oldKeys.Server, serverLocator(2)))},
			forgery{what("one bit of the tag"), altered(good, at+15, good[at+15]^1)},
			forgery{what("one bit of the tag"), altered(good, at+8, good[at+8]^0x80)},
			forgery{what("another server's name"), altered(good, at+7, 2)},
			forgery{what("another generation"), altered(good, atDst+11, good[atDst+11]^1)},
			forgery{what("a flag"), altered(good, atDst+12, 1)},
			forgery{what("a report"), altered(good, atDst+15, 1)},
		)
	}
	// In an inserted header the segment that is signed is the one in the list.
	return slices.DeleteFunc(all, func(f forgery) bool {
		return f.frame[atNext] == 43 && (f.what[6:] == "another generation" || f.what[6:] == "a flag" || f.what[6:] == "a report")
	})
}

// testSigned: what asks a server for something carries the farm's tag; what only
// goes to its owner, or to one that needs no agent, does not.
func testSigned(t *testing.T, seen hits) {
	for _, by := range []topo.Wire{topo.Encap, topo.Insert} {
		r := newSigningRig(t, seen, []topo.SignalKey{oldKeys, newKeys},
			hunting(3, 8, viaTransit(1), func(s *topo.Service) { s.Wire = by }), service(81, topo.Single, 1, 8))
		carried := func(w *route) { w.insert = by == topo.Insert }
		signed := func(segments []netip.Addr) []netip.Addr {
			for i := range segments {
				segments[i] = withKey(segments[i], oldKeys.ID)
			}
			return slices.Concat([]netip.Addr{transit(0)}, segments)
		}
		p := inward(huntPort, syn)
		list := r.list(t, 0, p.flow())
		r.send(t, p.frame()).is(t, "offer", xdpTX,
			sent(p, transitMAC, signed(offer(p, 0, list...)), carried, signedBy(oldKeys.Farm)), "offer")
		p.flags = ack
		r.send(t, p.frame()).is(t, "question", xdpTX,
			sent(p, transitMAC, signed(ask(0xe5, 0, list...)), carried, signedBy(oldKeys.Farm)), "recover")
		generation := policy.Generation(p.seq)
		r.send(t, signedSignal(5, newKeys, synAck(huntPort), create, generation, carried))
		out := r.send(t, confirmation(p).frame())
		out.is(t, "steer", xdpTX, sent(confirmation(p), transitMAC,
			[]netip.Addr{transit(0), sid(serverLocator(5), 0xa5, generation)}, carried), "steer", "flow_established")
		out = r.send(t, signedSignal(6, newKeys, synAck(huntPort), create, generation, carried))
		out.is(t, "reject", xdpTX, nil, "reject", "stickiness_conflict")
		r.checkReject(t, out.frame, p.flow(), generation, by == topo.Insert)
		q := inward(81, ack)
		r.send(t, q.frame()).is(t, "single", xdpTX, toOne(q, r.list(t, 1, q.flow())[0], 0xd7, 0), "deliver")
	}
	for choices := 1; choices <= 4; choices++ { // the first segment signs itself
		r := newSigningRig(t, seen, []topo.SignalKey{oldKeys}, hunting(choices, 8))
		p := inward(huntPort, syn)
		list := r.list(t, 0, p.flow())
		segments := offer(p, 0, list...)
		for i := range segments {
			segments[i] = withKey(segments[i], oldKeys.ID)
		}
		r.send(t, p.frame()).is(t, fmt.Sprintf("to %d", choices), xdpTX,
			sent(p, hopMAC(list[0]), segments, signedBy(oldKeys.Farm)), "offer")
	}
}

// checkReject holds the tag of an rj against what it must be.
func (r *lbRig) checkReject(t *testing.T, frame []byte, f policy.Flow, generation uint16, insert bool) {
	t.Helper()
	segments := segmentsOf(frame, insert)
	last := withKey(sid(serverLocator(6), reject, generation), oldKeys.ID)
	covered, at := []netip.Addr{last}, 30
	if insert {
		covered, at = []netip.Addr{vipAddr, last, transit(0)}, atUpper+8+3*16+8
	}
	tag := policy.Tag(oldKeys.Farm, f, lbLocator, covered)
	if !slices.Equal(segments, []netip.Addr{transit(0), last}) || !slices.Equal(frame[at:at+8], tag[:]) {
		t.Errorf("rj by %v with tag %x, want %x", segments, frame[at:at+8], tag)
	}
}

// testRotation: both are accepted, the new one signs, the old one is dropped; at
// no time is a signal refused that an honest server may send.
func testRotation(t *testing.T, seen hits) {
	r := newSigningRig(t, seen, []topo.SignalKey{oldKeys}, hunting(2, 8))
	isn := uint32(1)
	for i, stage := range []struct {
		keys []topo.SignalKey
		old  bool
		new  bool
		id   uint8
	}{
		{[]topo.SignalKey{oldKeys}, true, false, 7},
		{[]topo.SignalKey{oldKeys, newKeys}, true, true, 7},
		{[]topo.SignalKey{newKeys, oldKeys}, true, true, 8},
		{[]topo.SignalKey{newKeys}, false, true, 8},
		{nil, true, true, 0},
	} {
		r.cfg.Keys = stage.keys
		if err := r.Apply(r.cfg); err != nil {
			t.Fatal(err)
		}
		for _, k := range []struct {
			topo.SignalKey
			valid bool
		}{{oldKeys, stage.old}, {newKeys, stage.new}} {
			isn++
			out := r.send(t, signedSignal(3, k.SignalKey, synAck(huntPort), create, policy.Generation(isn)))
			if out.action == xdpTX != k.valid {
				t.Errorf("stage %d, signal with key %d: action %d for %v", i, k.ID, out.action, out.reasons)
			}
			p := inward(huntPort, ack)
			to := withKey(sid(lbLocator, goOn, 0), k.ID)
			back := route{from: lbLocator, segments: []netip.Addr{to}, hop: 63, key: &k.Farm}
			if out := r.send(t, ethernet(hereMAC, routerMAC, back.around(p))); out.action == xdpTX != k.valid {
				t.Errorf("stage %d, a list signed with key %d: action %d for %v", i, k.ID, out.action, out.reasons)
			}
		}
		p := inward(huntPort, syn)
		p.src = netip.AddrPortFrom(clientAddr, uint16(1000+i))
		if id := segmentsOf(r.send(t, p.frame()).frame, false)[0].As16()[13]; id != stage.id {
			t.Errorf("stage %d: it signs with key %d, want %d", i, id, stage.id)
		}
	}
}

// testLBDomain: segments come from inside only.
func testLBDomain(t *testing.T, seen hits) {
	enter(t)
	cfg := lbConfig(hunting(2, 8))
	cfg.Domain = []netip.Prefix{netip.MustParsePrefix("2001:db8:1::/48"), netip.PrefixFrom(serverLocator(2).Addr(), 63)}
	r := lbRigOf(t, seen, cfg)
	p := synAck(huntPort)
	for i := range 8 {
		inside := i == 2 || i == 3
		for _, how := range []func(*route){func(*route) {}, insert} {
			out := r.send(t, signalFrom(i, p, create, uint16(5+i), how))
			if inside != (out.action == xdpTX) || !inside && !slices.Equal(out.reasons, []string{"drop_outside"}) {
				t.Errorf("from server %d: action %d for %v", i, out.action, out.reasons)
			}
		}
	}
	cfg.Domain = slices.Repeat(cfg.Domain, 9)
	if _, err := newLB(cfg, inVirtualTime); err == nil {
		t.Error("18 blocks have room for 16")
	}
}
