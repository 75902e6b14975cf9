package dataplane

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"proffer/policy"
	"proffer/topo"
)

// TestLB runs every test of the LB's program, then asks whether together they
// met every reason that the program can count.
func TestLB(t *testing.T) {
	seen := hits{}
	for _, c := range []struct {
		name string
		test func(*testing.T, hits)
	}{
		{"offer", testOffer},
		{"offer, inserted", testOfferInserted},
		{"offer, via transit", testVia},
		{"offer, retransmitted", testRetry},
		{"recover, turning", testQuestionTurns},
		{"offer, owner first", testOwnerFirst},
		{"offer, header fields", testOuterHeader},
		{"offer, data offsets", testDataOffsets},
		{"unknown flow", testRecover},
		{"single", testSingle},
		{"steer", testSteer},
		{"pass untouched", testPassUntouched},
		{"client's malformed", testClientMalformed},
		{"no way out", testNoWayOut},
		{"create stickiness", testCreate},
		{"create stickiness, inserted", testCreateInserted},
		{"generations", testGenerations},
		{"embryo", testEmbryo},
		{"remove stickiness", testRemove},
		{"reject", testReject},
		{"sweep", testSweepFlows},
		{"table full", testFlowsFull},
		{"flood", testEmbryoFlood},
		{"unwrap", testUnwrap},
		{"unwrap, congestion", testUnwrapCongestion},
		{"server's malformed", testServerMalformed},
		{"given back", testGivenBack},
		{"given back, nobody else", testGivenBackAlone},
		{"list continued", testContinued},
		{"tags", testLBTags},
		{"tags, on the way out", testSigned},
		{"keys, rotated", testRotation},
		{"domain", testLBDomain},
		{"IPv4", testLBIPv4},
		{"UDP", testLBUDP},
		{"echo", testLBEcho},
		{"too big, made", testTooBigMade},
		{"too big, translated", testTooBigTranslated},
		{"too big, about a flow", testTooBigSteered},
		{"fragments", testLBFragments},
		{"MSS", testClamp},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, seen) })
	}
	t.Run("every counter", func(t *testing.T) {
		seen.covers(t, newLBRig(t, hits{}, hunting(2, 4)).names, nil)
	})
}

// testOffer: a SYN leaves with C candidates, 40 + 8 + 16 (C − 1) bytes longer,
// 40 for one; a pool smaller than C gives a shorter list.
func testOffer(t *testing.T, seen hits) {
	r := newLBRig(t, seen)
	for _, c := range []struct{ choices, servers, extra int }{
		{1, 8, 40}, {2, 8, 64}, {3, 8, 80}, {4, 8, 96},
		{4, 4, 96}, {4, 3, 80}, {4, 2, 64}, {2, 1, 40}, {4, 1, 40},
	} {
		for _, how := range []topo.Select{topo.Hash, topo.Random} {
			r.apply(t, hunting(c.choices, c.servers, func(s *topo.Service) { s.Select = how }))
			for i := range 20 {
				p := inward(huntPort, syn)
				p.src = netip.AddrPortFrom(clientAddr, uint16(clientPort+i))
				p.seq = uint32(100*c.choices+10*c.servers) + uint32(how)
				list := r.list(t, 0, p.flow())
				what := fmt.Sprintf("%d of %d, %v", c.choices, c.servers, how)
				out := r.send(t, p.frame())
				out.is(t, what, xdpTX, offered(p, list), "offer")
				if added := len(out.frame) - len(p.frame()); added != c.extra || len(list) != min(c.choices, c.servers) {
					t.Fatalf("%s: %d candidates cost %d bytes, want %d", what, len(list), added, c.extra)
				}
			}
		}
	}
}

// testOfferInserted: the papers' header, byte by byte: 72 bytes for a list of two
// servers, 56 for one.
func testOfferInserted(t *testing.T, seen hits) {
	r := newLBRig(t, seen)
	for choices, extra := range map[int]int{1: 56, 2: 72, 3: 88, 4: 104} {
		r.apply(t, hunting(choices, 8, inserting))
		p := inward(huntPort, syn)
		p.seq += uint32(choices)
		p.class = 0x2e
		list := r.list(t, 0, p.flow())
		out := r.send(t, p.frame())
		out.is(t, fmt.Sprint(choices), xdpTX, sent(p, hopMAC(list[0]), offer(p, 0, list...), insert), "offer")
		if added := len(out.frame) - len(p.frame()); added != extra {
			t.Fatalf("%d candidates cost %d bytes, want %d", choices, added, extra)
		}
	}
	r.apply(t, hunting(2, 8, inserting))
	p := inward(huntPort, syn)
	list := r.list(t, 0, p.flow())
	got := r.send(t, p.frame()).frame[atUpper:]
	generation := policy.Generation(p.seq)
	want := slices.Concat([]byte{6, 8, 4, 2, 3, 0, 0, 0}, // TCP next, 64 bytes, 2 left, entry 3 the last
		vipAddr.AsSlice(),
		sid(serverLocator(list[1]), 0xcf, generation).AsSlice(),
		sid(serverLocator(list[0]), 0xca, generation).AsSlice(),
		own(lbLocator).AsSlice(),
		p.tcp())
	if !bytes.Equal(got, want) {
		t.Errorf("written out:\n got %x\nwant %x", got, want)
	}
}

// testVia: transit SIDs come before the servers, and towards the first one goes
// the frame, whatever the packet and the wire.
func testVia(t *testing.T, seen hits) {
	r := newLBRig(t, seen)
	for n := 1; n <= topo.MaxVia; n++ {
		for _, by := range []topo.Wire{topo.Encap, topo.Insert} {
			r.apply(t, hunting(2, 8, viaTransit(n), func(s *topo.Service) { s.Wire = by }))
			var way []netip.Addr
			for i := range n {
				way = append(way, transit(i))
			}
			change := func(w *route) { w.insert = by == topo.Insert }
			p := inward(huntPort, syn)
			p.seq += uint32(10*n) + uint32(by)
			what := fmt.Sprintf("%d, %v", n, by)
			list := r.list(t, 0, p.flow())
			want := sent(p, transitMAC, slices.Concat(way, offer(p, 0, list...)), change)
			r.send(t, p.frame()).is(t, what, xdpTX, want, "offer")
			p.flags = ack
			want = sent(p, transitMAC, slices.Concat(way, ask(0xe5, 0, list...)), change)
			r.send(t, p.frame()).is(t, what+", unknown", xdpTX, want, "recover")
			r.accepted(t, list[1], p)
			p.ack = serverISN + 1
			want = sent(p, transitMAC, slices.Concat(way, ask(0xa5, policy.Generation(p.seq), list[1])), change)
			r.send(t, p.frame()).is(t, what+", steered", xdpTX, want, "steer", "flow_established")
			r.table.put(t, p.flow(), lbEntry{})
		}
	}
	hops := topo.NextHops{}
	for i := range 8 {
		hops[serverLocator(i)] = hopMAC(i)
	}
	if err := r.SetNextHops(hops); err != nil {
		t.Fatal(err)
	}
	r.send(t, inward(huntPort, syn).frame()).is(t, "no neighbour towards the first", xdpDrop, nil, "drop_no_next_hop")
}

// testRetry: a SYN that comes again says so; from the third on others come first,
// and every second time the first must take it.
func testRetry(t *testing.T, seen hits) {
	r := newLBRig(t, seen, hunting(3, 8))
	r.remembers = true
	p := inward(huntPort, syn)
	list := r.list(t, 0, p.flow())
	r.send(t, p.frame()).is(t, "first", xdpTX, offered(p, list), "offer")
	for times := 1; times < 9; times++ {
		r.at(t, start+time.Duration(times)*30*time.Second)
		turned := slices.Concat(list[times/2%3:], list[:times/2%3])
		segments := offer(p, 1, turned...)
		if times == 3 || times == 5 || times == 7 {
			segments[0] = withFlags(sid(serverLocator(turned[0]), 0xcf, policy.Generation(p.seq)), 1)
		}
		want := sent(p, hopMAC(turned[0]), segments)
		r.send(t, p.frame()).is(t, fmt.Sprint("retransmission ", times), xdpTX, want, "offer_retry")
	}
	other := p
	other.seq++
	r.send(t, other.frame()).is(t, "another connection of its ports", xdpTX, offered(other, list), "offer")
	r.at(t, start+8*30*time.Second+65*time.Second)
	r.send(t, p.frame()).is(t, "a minute of silence later", xdpTX, offered(p, list), "offer")
}

// testQuestionTurns: data of an unknown flow that comes again asks in another
// order each time, as somebody on the way may be down; other data does not.
func testQuestionTurns(t *testing.T, seen hits) {
	r := newLBRig(t, seen, hunting(3, 8))
	r.remembers = true
	p := inward(huntPort, ack)
	p.payload = []byte("data")
	list := r.list(t, 0, p.flow())
	for times := range 7 {
		turned := slices.Concat(list[times%3:], list[:times%3])
		r.send(t, p.frame()).is(t, fmt.Sprint("retransmission ", times), xdpTX, recovered(p, turned), "recover")
	}
	p.seq += 4
	r.send(t, p.frame()).is(t, "the next", xdpTX, recovered(p, list), "recover")
}

// testOwnerFirst: a SYN of a known flow meets its owner first, who may hold the
// connection or its TIME_WAIT; also if the flow is not confirmed yet, and if its
// owner is no candidate.
func testOwnerFirst(t *testing.T, seen hits) {
	r := newLBRig(t, seen, hunting(3, 8))
	r.remembers = true
	p := inward(huntPort, syn)
	list := r.list(t, 0, p.flow())
	r.send(t, p.frame())
	r.accepted(t, list[2], p)
	want := sent(p, hopMAC(list[2]), offer(p, 1, list[2], list[0], list[1]))
	r.send(t, p.frame()).is(t, "SYN again, of an embryo", xdpTX, want, "offer_again")
	r.confirm(t, p)
	p.seq += 12345
	want = sent(p, hopMAC(list[2]), offer(p, 0, list[2], list[0], list[1]))
	r.send(t, p.frame()).is(t, "ports used again", xdpTX, want, "offer_again")
	if e, _ := r.flow(t, p.flow()); e.Announced != policy.Generation(p.seq) {
		t.Errorf("announced %d, want %d", e.Announced, policy.Generation(p.seq))
	}
	stranger := 0
	for slices.Contains(list, stranger) {
		stranger++
	}
	r.accepted(t, stranger, p)
	p.seq += 777
	want = sent(p, hopMAC(stranger), offer(p, 0, stranger, list[0], list[1], list[2]))
	r.send(t, p.frame()).is(t, "owner no candidate", xdpTX, want, "offer_again")
}

// testOuterHeader: traffic class copied whatever it is, hop limit of the inner
// packet one less, all of it by exact bytes.
func testOuterHeader(t *testing.T, seen hits) {
	r := newLBRig(t, seen, hunting(2, 4))
	for class := range 256 {
		p := inward(huntPort, ack)
		p.class = byte(class)
		r.send(t, p.frame()).is(t, fmt.Sprintf("class %#02x", class), xdpTX, recovered(p, r.list(t, 0, p.flow())), "recover")
	}
	for _, hop := range []byte{2, 64, 255} {
		p := inward(huntPort, ack)
		p.hop = hop
		r.send(t, p.frame()).is(t, fmt.Sprintf("hop limit %d", hop), xdpTX, recovered(p, r.list(t, 0, p.flow())), "recover")
	}
	p := inward(huntPort, syn)
	padded := append(p.frame(), 0xaa, 0xbb, 0xcc) // bytes of the link, not of the packet
	want := append(offered(p, r.list(t, 0, p.flow())), 0xaa, 0xbb, 0xcc)
	r.send(t, padded).is(t, "padded by the link", xdpTX, want, "offer")
}

// testDataOffsets: every length of TCP options, with and without payload.
func testDataOffsets(t *testing.T, seen hits) {
	r := newLBRig(t, seen, hunting(2, 4), hunting(2, 4, over4))
	for words := range 11 {
		for _, payload := range []int{0, 1, 999} {
			for svc := range 2 {
				p := inward(huntPort, syn)
				if svc == 1 {
					p = overIPv4(p)
				}
				p.seq += uint32(words<<16 + payload)
				p.options = bytes.Repeat([]byte{1}, 4*words) // no operation
				p.payload = bytes.Repeat([]byte{0x5a}, payload)
				list := r.list(t, svc, p.flow())
				what := fmt.Sprintf("offset %d, payload %d", 5+words, payload)
				r.send(t, p.frame()).is(t, what, xdpTX, offered(p, list), "offer")
				p.flags = ack
				r.send(t, p.frame()).is(t, what, xdpTX, recovered(p, list), "recover")
			}
		}
	}
}

// testRecover: any packet that opens nothing, of a flow that is not known, is a
// question to the flow's candidates, those of earlier pools after today's.
func testRecover(t *testing.T, seen hits) {
	r := newLBRig(t, seen, hunting(4, 9))
	for flags := range byte(64) {
		p := inward(huntPort, flags)
		p.seq += uint32(flags)
		p.payload = []byte("data")
		want, why := recovered(p, r.list(t, 0, p.flow())), "recover"
		if flags&(syn|ack|rst|fin) == syn {
			want, why = offered(p, r.list(t, 0, p.flow())), "offer"
		}
		r.send(t, p.frame()).is(t, fmt.Sprintf("flags %#02x", flags), xdpTX, want, why)
	}
	r.apply(t, hunting(2, 20, func(s *topo.Service) {
		s.History = []topo.Version{{Version: 2, Servers: farm(25)[10:]}, {Version: 1, Servers: farm(15)}}
	}))
	for i := range 50 {
		p := inward(huntPort, ack)
		p.src = netip.AddrPortFrom(clientAddr, uint16(clientPort+i))
		union := r.union(t, 0, p.flow())
		r.send(t, p.frame()).is(t, "with a history", xdpTX, recovered(p, union), "recover")
		p.flags = syn
		r.send(t, p.frame()).is(t, "a new flow, with a history", xdpTX, offered(p, union[:2]), "offer")
	}
}

// testSingle: every packet to the one server of its flow, no state.
func testSingle(t *testing.T, seen hits) {
	r := newLBRig(t, seen, hunting(2, 3), service(81, topo.Single, 1, 5))
	for _, flags := range []byte{syn, ack, fin | ack, rst} {
		for i := range 20 {
			p := inward(81, flags)
			p.src = netip.AddrPortFrom(clientAddr, uint16(clientPort+i))
			r.send(t, p.frame()).is(t, "single", xdpTX, toOne(p, r.list(t, 1, p.flow())[0], 0xd7, 0), "deliver")
			if _, known := r.flow(t, p.flow()); known {
				t.Fatal("a single service has an entry")
			}
		}
	}
}

// testSteer: a known flow's packets go to its server, 40 bytes longer; 56 if
// they travel inserted.
func testSteer(t *testing.T, seen hits) {
	for extra, change := range map[int]func(*topo.Service){40: func(*topo.Service) {}, 56: inserting} {
		r := newLBRig(t, seen, hunting(2, 8, change))
		r.learn(t, 5, clientISN)
		generation := policy.Generation(clientISN)
		p := inward(huntPort, ack)
		p.payload = bytes.Repeat([]byte{7}, 1300)
		for _, flags := range []byte{ack, ack | psh, fin | ack, rst, syn | ack, 0} {
			p.flags = flags
			want := sent(p, hopMAC(5), ask(0xa5, generation, 5), func(w *route) { w.insert = extra == 56 })
			out := r.send(t, p.frame())
			out.is(t, "steered", xdpTX, want, "steer")
			if added := len(out.frame) - len(p.frame()); added != extra {
				t.Errorf("a steered packet is %d bytes longer, want %d", added, extra)
			}
		}
	}
}
