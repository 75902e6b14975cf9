package dataplane

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"proffer/policy"
	"proffer/topo"
)

// signalKeys are two generations of the farm's keys, as this server has them.
func signalKeys() (old, new topo.SignalKey) {
	old = topo.SignalKey{ID: 7, Farm: topo.Key{1, 2, 3}, Server: topo.Key{4, 5, 6}}
	new = topo.SignalKey{ID: 255, Farm: topo.Key{7, 8, 9}, Server: topo.Key{10, 11, 12}}
	return old, new
}

// requests are one packet for every function that must be signed, by both wires
// and several lengths of the list.
func requests(p packet) map[string]sr {
	generation := policy.Generation(p.seq)
	later, end := p, p
	later.flags, later.seq = ack, p.seq+1
	end.flags, end.seq = rst, p.seq+1
	return map[string]sr{
		"ca":           to(p, generation, 0xca, 0xcf),
		"ca, four":     to(p, generation, 0xca, 0xca, 0xca, 0xcf),
		"cf":           to(p, generation, 0xcf),
		"rs":           to(later, 0, 0xe5, 0xe5),
		"rs, last":     to(later, 0, 0xe5),
		"rj":           to(end, generation, reject),
		"ca, inserted": to(p, generation, 0xca, 0xcf).inserted(),
		"cf, inserted": to(p, generation, 0xcf).inserted(),
		"rj, inserted": to(end, generation, reject).inserted(),
		"ca, IPv4":     to(overIPv4(p), generation, 0xca, 0xcf),
	}
}

// testTags: with keys, whatever changes state must be signed by an LB.
func testTags(t *testing.T, seen hits) {
	r := newAgentRig(t, seen, offering(huntPort, byTable),
		offering(huntPort, byTable, func(o *topo.Offering) { o.VIP.Addr = vip4 }))
	old, new := signalKeys()
	good := func(keys ...topo.SignalKey) {
		t.Helper()
		for what, s := range requests(inward(huntPort, syn)) {
			for _, k := range keys {
				if out := r.send(t, s.signed(k).frame()); out.action == xdpDrop && out.reasons[0] == "drop_bad_tag" {
					t.Errorf("%s by key %d: %v", what, k.ID, out.reasons)
				}
			}
		}
	}
	bad := func(what string, key topo.SignalKey) {
		t.Helper()
		for request, s := range requests(inward(huntPort, syn)) {
			r.send(t, s.signed(key).frame()).is(t, request+" "+what, xdpDrop, nil, "drop_bad_tag")
		}
	}
	rotate := func(keys ...topo.SignalKey) {
		t.Helper()
		if err := r.SetKeys(keys); err != nil {
			t.Fatal(err)
		}
	}
	good(old) // nobody asked
	rotate(old)
	good(old)
	bad("by no key of ours", new)
	bad("by a server's key", topo.SignalKey{ID: old.ID, Farm: old.Server})
	bad("by no key at all", topo.SignalKey{Farm: old.Farm})
	rotate(new, old)
	good(new, old)
	rotate(new)
	good(new)
	bad("by the key of yesterday", old)
	testTagCovers(t, r, new)
	testUnsigned(t, r)
	testSignatures(t, r, new)
	rotate()
	good(old)
}

// testTagCovers: a tag is worth nothing for another flow, list, sender, or SID.
func testTagCovers(t *testing.T, r *agentRig, key topo.SignalKey) {
	for what, s := range requests(inward(huntPort, syn)) {
		frame := s.signed(key).frame()
		last := len(frame) - 20 // of TCP's header
		for spoiled, at := range map[string]int{"client's port": last + 1, "client": s.clientAt(), "tag": s.tagAt()} {
			r.send(t, altered(frame, at, frame[at]^1)).is(t, what+", another "+spoiled, xdpDrop, nil, "drop_bad_tag")
		}
		signed := s.signed(key)
		signed.segments[len(signed.segments)-1] = withFlags(signed.segments[len(signed.segments)-1], sidRetry)
		altered := signed.frame()
		copy(altered[s.tagAt()-7:s.tagAt()+1], frame[s.tagAt()-7:])
		r.send(t, altered).is(t, what+", another list", xdpDrop, nil, "drop_bad_tag")
		signed = s.signed(key)
		signed.lb = otherLB
		stolen := signed.frame()
		copy(stolen[s.tagAt()-7:s.tagAt()+1], frame[s.tagAt()-7:])
		r.send(t, stolen).is(t, what+", another sender", xdpDrop, nil, "drop_bad_tag")
	}
}

// tagAt is where the last byte of the tag is in the frame.
func (s sr) tagAt() int {
	if s.wire == topo.Insert {
		return atUpper + 8 + 16*(len(s.segments)+2) - 1
	}
	return 14 + 8 + 15
}

// clientAt is where the last byte of the client's address is.
func (s sr) clientAt() int {
	switch {
	case s.wire == topo.Insert:
		return 14 + 8 + 15
	case s.in.ip[0]>>4 == 4:
		return len(s.frame()) - len(s.in.ip) + 15
	}
	return len(s.frame()) - len(s.in.ip) + 8 + 15
}

// TestTwinTag: Go's tag is the program's, of any flow, key and list.
func TestTwinTag(t *testing.T) {
	r := newAgentRig(t, hits{}, offering(huntPort, byTable))
	rng := random(t)
	for i := range 500 {
		key := topo.SignalKey{ID: uint8(1 + rng.UintN(255))}
		for _, k := range []*topo.Key{&key.Farm, &key.Server} {
			binary.LittleEndian.PutUint64(k[:], rng.Uint64())
			binary.LittleEndian.PutUint64(k[8:], rng.Uint64())
		}
		if err := r.SetKeys([]topo.SignalKey{key}); err != nil {
			t.Fatal(err)
		}
		p := inward(huntPort, ack)
		p.src = randomFlow(rng).Client
		s := to(p, uint16(rng.Uint32()), slices.Repeat([]byte{0xe5}, 1+i%12)...)
		for j, a := range s.segments {
			s.segments[j] = withFlags(a, byte(rng.Uint32()))
		}
		if i%2 == 0 {
			s = s.inserted()
		}
		s.segments = append(s.segments[:len(s.segments)-1], sid(lbLocator, 0xe5, 9)) // whose way we know
		if out := r.send(t, s.signed(key).frame()); out.reasons[0] == "drop_bad_tag" {
			t.Fatalf("round %d: %v", i, out.reasons)
		}
		lost := to(p, 9, 0xa5)
		r.send(t, lost.frame()).is(t, "nm", xdpTX, lost.returned(key), "give_back_not_mine")
	}
}

// testUnsigned: as and dt are never signed: all they can do is end signalling.
func testUnsigned(t *testing.T, r *agentRig) {
	p := inward(huntPort, ack)
	p.src = netip.AddrPortFrom(clientAddr, 1)
	s := to(p, 1, 0xa5)
	if out := r.send(t, s.frame()); out.action != xdpTX || out.reasons[0] != "give_back_not_mine" {
		t.Errorf("as without a tag: %d, %v", out.action, out.reasons)
	}
	r.send(t, to(p, 0, 0xd7).frame()).is(t, "dt without a tag", xdpPass, delivered(p), "deliver")
}

// testSignatures: what the agent sends is signed by the server's own key.
func testSignatures(t *testing.T, r *agentRig, key topo.SignalKey) {
	for _, by := range []topo.Wire{topo.Encap, topo.Insert} {
		p := inward(huntPort, syn)
		p.src = netip.AddrPortFrom(clientAddr, 5000+uint16(by))
		generation := policy.Generation(p.seq)
		offer, lost := to(p, generation, 0xcf), to(p, generation+1, 0xa5)
		if by == topo.Insert {
			offer, lost = offer.inserted(), lost.inserted()
		}
		r.send(t, lost.frame()).is(t, "nm", xdpTX, lost.returned(key), "give_back_not_mine")
		r.send(t, offer.signed(key).frame()).is(t, "offer", xdpPass, delivered(p), "accept_force")
		answer := outward(huntPort, syn|ack)
		answer.dst = p.src
		to := withKey(sid(lbLocator, create, generation), key.ID)
		covered := []netip.Addr{to}
		if by == topo.Insert {
			covered = []netip.Addr{clientAddr, to}
		}
		from := tagged(serverLocator(here), policy.Tag(key.Server, p.flow(), serverLocator(here), covered))
		answer.from = hereMAC
		want := signalInserted(answer, to, from)
		if by == topo.Encap {
			in := innerTCP(answer)
			in.flow = p.flow()
			want = ethernet(hopMAC(0xb), hereMAC, encapsulated(from, in, 0, 64, []netip.Addr{to}))
		}
		r.answer(t, answer, 0).is(t, "cs", tcUnspec, want, "signal_create")
	}
}

// testDomain: segments are taken from the SR domain only; an inserted packet's
// sender is in its list, its source is the client.
func testDomain(t *testing.T, seen hits) {
	newAgentRig(t, seen, offering(huntPort)) // for its namespace
	cfg := agentConfig(64, offering(huntPort, byTable))
	cfg.Domain = []netip.Prefix{netip.MustParsePrefix("fd12::/16"), netip.MustParsePrefix("fd00:0:0:b::/64")}
	r := loadAgentRig(t, seen, cfg, inVirtualTime)
	p := inward(huntPort, syn)
	for locator, inside := range map[string]bool{
		"fd00:0:0:b::/64": true, "fd12:7:8:9::/64": true,
		"fd00:0:0:c::/64": false, "fd13::/64": false, "2001:db8:c::/64": false, // the client's
	} {
		for _, s := range []sr{to(p, 0, 0xd7), to(p, 0, 0xd7).inserted()} {
			s.lb = netip.MustParsePrefix(locator)
			if inside {
				r.send(t, s.frame()).is(t, locator, xdpPass, delivered(p), "deliver")
			} else {
				r.send(t, s.frame()).is(t, locator, xdpDrop, nil, "drop_outside")
			}
		}
	}
}
