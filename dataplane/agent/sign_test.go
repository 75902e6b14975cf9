package agent_test

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"proffer/dataplane"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// signalKeys are two generations of the farm's keys, as this server has them.
func signalKeys() (old, new topo.SignalKey) {
	old = topo.SignalKey{ID: 7, Farm: topo.Key{1, 2, 3}, Server: topo.Key{4, 5, 6}}
	new = topo.SignalKey{ID: 255, Farm: topo.Key{7, 8, 9}, Server: topo.Key{10, 11, 12}}
	return old, new
}

// insertedPort is that of a service of `wire: insert`.
const insertedPort = 83

// requests are one packet for every function that must be signed, by both wires
// and several lengths of the list.
func requests(p rig.Packet) map[string]rig.SR {
	generation := wire.Generation(p.Seq)
	later, end := p, p
	later.Flags, later.Seq = wire.ACK, p.Seq+1
	end.Flags, end.Seq = wire.RST, p.Seq+1
	syn, rst := p, end // to the service of the other wire
	syn.Dst = netip.AddrPortFrom(p.Dst.Addr(), insertedPort)
	rst.Dst = syn.Dst
	return map[string]rig.SR{
		"ca":           rig.To(p, generation, wire.ConnectAvail, wire.ConnectForce),
		"ca, four":     rig.To(p, generation, wire.ConnectAvail, wire.ConnectAvail, wire.ConnectAvail, wire.ConnectForce),
		"cf":           rig.To(p, generation, wire.ConnectForce),
		"rs":           rig.To(later, 0, wire.RecoverStickiness, wire.RecoverStickiness),
		"rs, last":     rig.To(later, 0, wire.RecoverStickiness),
		"rj":           rig.To(end, generation, wire.Reject),
		"ca, inserted": rig.To(syn, generation, wire.ConnectAvail, wire.ConnectForce).Inserted(),
		"cf, inserted": rig.To(syn, generation, wire.ConnectForce).Inserted(),
		"rj, inserted": rig.To(rst, generation, wire.Reject).Inserted(),
		"ca, IPv4":     rig.To(rig.OverIPv4(p), generation, wire.ConnectAvail, wire.ConnectForce),
	}
}

// testTags: with keys, whatever changes state must be signed by an LB.
func testTags(t *testing.T, seen rig.Hits) {
	r := rig.NewAgent(t, seen, rig.Offering(rig.HuntPort, rig.ByTable), rig.Offering(insertedPort, rig.ByTable, rig.Inserts),
		rig.Offering(rig.HuntPort, rig.ByTable, func(o *topo.Offering) { o.VIP.Addr = rig.Vip4 }))
	old, new := signalKeys()
	good := func(keys ...topo.SignalKey) {
		t.Helper()
		for label, s := range requests(rig.Inward(rig.HuntPort, wire.SYN)) {
			for _, k := range keys {
				if out := r.Send(t, s.Signed(k).Frame()); out.Action == rig.XDPDrop && out.Reasons[0] == "drop_bad_tag" {
					t.Errorf("%s by key %d: %v", label, k.ID, out.Reasons)
				}
			}
		}
	}
	bad := func(label string, key topo.SignalKey) {
		t.Helper()
		for request, s := range requests(rig.Inward(rig.HuntPort, wire.SYN)) {
			r.Send(t, s.Signed(key).Frame()).Is(t, request+" "+label, rig.XDPDrop, nil, "drop_bad_tag")
		}
	}
	rotate := func(keys ...topo.SignalKey) {
		t.Helper()
		if err := r.SetKeys(keys); err != nil {
			t.Fatal(err)
		}
	}
	good(old) // unasked
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
func testTagCovers(t *testing.T, r *rig.Agent, key topo.SignalKey) {
	for label, s := range requests(rig.Inward(rig.HuntPort, wire.SYN)) {
		frame := s.Signed(key).Frame()
		last := len(frame) - 20 // of TCP's header
		for spoiled, at := range map[string]int{"client's port": last + 1, "client": clientAt(s), "tag": tagAt(s)} {
			r.Send(t, rig.Altered(frame, at, frame[at]^1)).Is(t, label+", another "+spoiled, rig.XDPDrop, nil, "drop_bad_tag")
		}
		signed := s.Signed(key)
		signed.Segments[len(signed.Segments)-1] = rig.WithFlags(signed.Segments[len(signed.Segments)-1], wire.Retry)
		altered := signed.Frame()
		copy(altered[tagAt(s)-7:tagAt(s)+1], frame[tagAt(s)-7:])
		r.Send(t, altered).Is(t, label+", another list", rig.XDPDrop, nil, "drop_bad_tag")
		signed = s.Signed(key)
		signed.LB = rig.OtherLB
		stolen := signed.Frame()
		copy(stolen[tagAt(s)-7:tagAt(s)+1], frame[tagAt(s)-7:])
		r.Send(t, stolen).Is(t, label+", another sender", rig.XDPDrop, nil, "drop_bad_tag")
	}
}

// tagAt is where the last byte of the tag is in the frame.
func tagAt(s rig.SR) int {
	if s.Wire == topo.Insert {
		return rig.AtUpper + 8 + 16*(len(s.Segments)+2) - 1
	}
	return 14 + 8 + 15
}

// clientAt is where the last byte of the client's address is.
func clientAt(s rig.SR) int {
	switch {
	case s.Wire == topo.Insert:
		return 14 + 8 + 15
	case s.In.Ip[0]>>4 == 4:
		return len(s.Frame()) - len(s.In.Ip) + 15
	}
	return len(s.Frame()) - len(s.In.Ip) + 8 + 15
}

// TestTwinTag: Go's tag is the program's, of any flow, key and list.
func TestTwinTag(t *testing.T) {
	r := rig.NewAgent(t, rig.Hits{}, rig.Offering(rig.HuntPort, rig.ByTable), rig.Offering(insertedPort, rig.ByTable, rig.Inserts))
	rng := rig.Random(t)
	for i := range 500 {
		key := topo.SignalKey{ID: uint8(1 + rng.UintN(255))}
		for _, k := range []*topo.Key{&key.Farm, &key.Server} {
			binary.LittleEndian.PutUint64(k[:], rng.Uint64())
			binary.LittleEndian.PutUint64(k[8:], rng.Uint64())
		}
		if err := r.SetKeys([]topo.SignalKey{key}); err != nil {
			t.Fatal(err)
		}
		p := rig.Inward(rig.HuntPort, wire.ACK)
		p.Src = rig.RandomFlow(rng).Client
		if i%2 == 0 {
			p.Dst = netip.AddrPortFrom(rig.VipAddr, insertedPort)
		}
		s := rig.To(p, uint16(rng.Uint32()), slices.Repeat([]wire.Function{wire.RecoverStickiness}, 1+i%12)...)
		for j, a := range s.Segments {
			s.Segments[j] = rig.WithFlags(a, wire.Flags(rng.Uint32()))
		}
		if i%2 == 0 {
			s = s.Inserted()
		}
		s.Segments = append(s.Segments[:len(s.Segments)-1], rig.SID(rig.LbLocator, wire.RecoverStickiness, 9)) // a known next hop
		if out := r.Send(t, s.Signed(key).Frame()); out.Reasons[0] == "drop_bad_tag" {
			t.Fatalf("round %d: %v", i, out.Reasons)
		}
		p.Dst = netip.AddrPortFrom(rig.VipAddr, rig.HuntPort)
		lost := rig.To(p, 9, wire.AckStickiness)
		r.Send(t, lost.Frame()).Is(t, "nm", rig.XDPTX, lost.Returned(key), "give_back_not_mine")
	}
}

// testUnsigned: as and dt are never signed: all they can do is end signalling.
func testUnsigned(t *testing.T, r *rig.Agent) {
	p := rig.Inward(rig.HuntPort, wire.ACK)
	p.Src = netip.AddrPortFrom(rig.ClientAddr, 1)
	s := rig.To(p, 1, wire.AckStickiness)
	if out := r.Send(t, s.Frame()); out.Action != rig.XDPTX || out.Reasons[0] != "give_back_not_mine" {
		t.Errorf("as without a tag: %d, %v", out.Action, out.Reasons)
	}
	r.Send(t, rig.To(p, 0, wire.Deliver).Frame()).Is(t, "dt without a tag", rig.XDPPass, rig.Delivered(p), "deliver")
}

// testSignatures: the agent's signals are signed by the server's own key.
func testSignatures(t *testing.T, r *rig.Agent, key topo.SignalKey) {
	for _, by := range []topo.Wire{topo.Encap, topo.Insert} {
		p := rig.Inward(rig.HuntPort, wire.SYN)
		p.Src = netip.AddrPortFrom(rig.ClientAddr, 5000+uint16(by))
		generation := wire.Generation(p.Seq)
		if by == topo.Insert {
			p.Dst = netip.AddrPortFrom(rig.VipAddr, insertedPort)
		}
		offer, lost := rig.To(p, generation, wire.ConnectForce), rig.To(p, generation+1, wire.AckStickiness)
		if by == topo.Insert {
			offer, lost = offer.Inserted(), lost.Inserted()
		}
		r.Send(t, lost.Frame()).Is(t, "nm", rig.XDPTX, lost.Returned(key), "give_back_not_mine")
		r.Send(t, offer.Signed(key).Frame()).Is(t, "offer", rig.XDPPass, rig.Delivered(p), "accept_force")
		answer := rig.Outward(p.Dst.Port(), wire.SYN|wire.ACK)
		answer.Dst = p.Src
		to := rig.WithKey(rig.SID(rig.LbLocator, wire.CreateStickiness, generation), key.ID)
		covered := []netip.Addr{to}
		if by == topo.Insert {
			covered = []netip.Addr{rig.ClientAddr, to}
		}
		from := wire.Tagged(rig.ServerLocator(rig.Here), wire.Tag(key.Server, p.Flow(), rig.ServerLocator(rig.Here), covered))
		answer.From = rig.HereMAC
		want := signalInserted(answer, to, from)
		if by == topo.Encap {
			in := rig.InnerTCP(answer)
			in.Flow = p.Flow()
			want = wire.Frame(rig.HopMAC(0xb), rig.HereMAC, in.Route(from, 0, wire.DefaultHopLimit, to).Encap(in.Ip))
		}
		answerOut(r, t, answer, 0).Is(t, "cs", tcUnspec, want, "signal_create")
	}
}

// testDomain: segments are taken from the SR domain only; an inserted packet's
// sender is in its list, its source is the client.
func testDomain(t *testing.T, seen rig.Hits) {
	rig.NewAgent(t, seen, rig.Offering(rig.HuntPort)) // for its namespace
	cfg := rig.AgentConfig(64, rig.Offering(rig.HuntPort, rig.ByTable), rig.Offering(insertedPort, rig.ByTable, rig.Inserts))
	cfg.Domain = []netip.Prefix{netip.MustParsePrefix("fd12::/16"), netip.MustParsePrefix("fd00:0:0:b::/64")}
	r := rig.LoadAgent(t, seen, cfg, rig.InVirtualTime)
	p := rig.Inward(rig.HuntPort, wire.SYN)
	for locator, inside := range map[string]bool{
		"fd00:0:0:b::/64": true, "fd12:7:8:9::/64": true,
		"fd00:0:0:c::/64": false, "fd13::/64": false, "2001:db8:c::/64": false, // the client's
	} {
		for _, port := range []uint16{rig.HuntPort, insertedPort} {
			p.Dst = netip.AddrPortFrom(rig.VipAddr, port)
			s := rig.To(p, 0, wire.Deliver)
			if port == insertedPort {
				s = s.Inserted()
			}
			s.LB = netip.MustParsePrefix(locator)
			if inside {
				r.Send(t, s.Frame()).Is(t, locator, rig.XDPPass, rig.Delivered(p), "deliver")
			} else {
				r.Send(t, s.Frame()).Is(t, locator, rig.XDPDrop, nil, "drop_outside")
			}
		}
	}
}

// TestSuspects: the agent counts requests without a valid tag by the LB that they name.
func TestSuspects(t *testing.T) {
	r := rig.NewAgent(t, rig.Hits{}, rig.Offering(rig.HuntPort, rig.ByTable))
	old, other := signalKeys()
	if err := r.SetKeys([]topo.SignalKey{old}); err != nil {
		t.Fatal(err)
	}
	p := rig.Inward(rig.HuntPort, wire.SYN)
	for range 3 {
		r.Send(t, rig.To(p, wire.Generation(p.Seq), wire.ConnectForce).Signed(other).Frame()).Is(t, "another key", rig.XDPDrop, nil, "drop_bad_tag")
	}
	r.Send(t, rig.To(p, wire.Generation(p.Seq), wire.ConnectForce).Signed(old).Frame())
	found, err := r.Suspects()
	if want := (dataplane.Suspect{Sender: rig.LbLocator, Packets: 3}); err != nil || len(found) != 1 || found[0] != want {
		t.Errorf("suspects %v, %v, want %v", found, err, want)
	}
}
