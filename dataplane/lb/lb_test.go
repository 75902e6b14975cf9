package lb_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// TestLB runs every test of the LB's program, then asks whether together they
// met every reason that the program can count.
func TestLB(t *testing.T) {
	seen := rig.Hits{}
	for _, c := range []struct {
		name string
		test func(*testing.T, rig.Hits)
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
		{"stateless", testStateless},
		{"single, entries", testKept},
		{"single, the client closes", testKeptCloses},
		{"reused five-tuples", testReuse},
		{"single, the pool changes", testKeptDrain},
		{"single, recovered by history", testKeptRecovered},
		{"single, recovered by agents", testKeptAsks},
		{"seats, recovered by agents", testRecoversSeat},
		{"single, table full", testKeptFull},
		{"agentless", testAgentless},
		{"agentless, unresolved", testAgentlessUnresolved},
		{"agentless, another delivery", testAgentlessChanges},
		{"agentless, packet too big", testAgentlessTooBig},
		{"agentless, too long for XDP", testAgentlessLong},
		{"agentless, checksums", testAgentlessSums},
		{"agentless, fragments", testAgentlessFragments},
		{"steer", testSteer},
		{"sources vary", testSourcesVary},
		{"pass untouched", testPassUntouched},
		{"another host's", testOtherHost},
		{"limits of questions", testLimitQuestions},
		{"limits of answers", testLimitAnswers},
		{"limit of held SYNs", testLimitHeld},
		{"unserved port", testRefusePort},
		{"client's malformed", testClientMalformed},
		{"unknown dispatch", testUnknownDispatch},
		{"no way out", testNoWayOut},
		{"create stickiness", testCreate},
		{"create stickiness, inserted", testCreateInserted},
		{"wrong wire", testWrongWire},
		{"generations", testGenerations},
		{"candidates only", testCandidatesOnly},
		{"candidates of many", testCandidatesOfMany},
		{"no takeover", testNoTakeover},
		{"released", testReleased},
		{"embryonic", testEmbryonic},
		{"remove stickiness", testRemove},
		{"reject", testReject},
		{"contended", testContended},
		{"sweep", testSweepFlows},
		{"table full", testFlowsFull},
		{"table full, order", testGivesWay},
		{"table full, conversations", testConversation},
		{"table full, shares", testShares},
		{"table full, idle shares", testIdleShares},
		{"idle, no agent is asked", testIdleKept},
		{"a table of before", testFromBefore},
		{"flood", testEmbryonicFlood},
		{"unwrap", testUnwrap},
		{"unwrap, congestion", testUnwrapCongestion},
		{"server's malformed", testServerMalformed},
		{"given back", testGivenBack},
		{"given back, no other server", testGivenBackAlone},
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
		{"options", testOptions},
		{"options, refused", testOptionsRefused},
		{"time exceeded", testTimeExceeded},
		{"long", testLong},
		{"long, fragments", testLongFragments},
		{"long, super-packets", testSuperPackets},
		{"MSS", testClamp},
		{"health, of offers", testHealthOfOffers},
		{"health, of clients' entries", testHealthOfKept},
		{"health, of reused five-tuples", testHealthOfReused},
		{"health, unreachable", testUnreachable},
		{"health, leaving a server", testLeavesDown},
		{"health, probes by offers", testProbeOffers},
		{"health, probes of clients' flows", testProbeKept},
		{"health, asked last", testIdleLast},
		{"down, datagrams leave", testDatagramsLeave},
		{"down, datagrams at an agent", testDatagramsLeaveAgent},
		{"down, no datagram asks", testDatagramsAskNoneDown},
		{"down, asked last whatever the turn", testDownLastInEachTurn},
		{"down, ports used again", testReusedAtDown},
		{"down, ports used again, in doubt", testOverInDoubt},
		{"down, without flows", testStandIn},
		{"down, checks", testChecks},
		{"brief datagrams", testBriefEnds},
		{"affinity, of offers", testAffinityOfOffers},
		{"affinity, of many", testAffinityOfMany},
		{"affinity, of datagrams", testAffinityOfDatagrams},
		{"affinity, health", testAffinityOfHealth},
		{"affinity, of seats", testAffinityOfSeats},
		{"affinity, of hashes", testAffinityOfHashes},
		{"allow", testAllow},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, seen) })
	}
	t.Run("every counter", func(t *testing.T) {
		seen.Covers(t, rig.NewLB(t, rig.Hits{}, rig.Hunting(2, 4)).Names, nil)
	})
}

// testOffer: a SYN leaves with C candidates, 40 + 8 + 16 (C − 1) bytes longer,
// 40 for one; a pool smaller than C gives a shorter list.
func testOffer(t *testing.T, seen rig.Hits) {
	r := rig.NewLB(t, seen)
	for _, c := range []struct{ choices, servers, extra int }{
		{1, 8, 40}, {2, 8, 64}, {3, 8, 80}, {4, 8, 96},
		{4, 4, 96}, {4, 3, 80}, {4, 2, 64}, {2, 1, 40}, {4, 1, 40},
	} {
		for _, how := range []topo.Select{topo.Hash, topo.Random} {
			r.Reconfigure(t, rig.Hunting(c.choices, c.servers, func(s *topo.Service) { s.Select = how }))
			for i := range 20 {
				p := rig.Inward(rig.HuntPort, wire.SYN)
				p.Src = netip.AddrPortFrom(rig.ClientAddr, uint16(rig.ClientPort+i))
				p.Seq = uint32(100*c.choices+10*c.servers) + uint32(how)
				list := r.List(t, 0, p.Flow())
				label := fmt.Sprintf("%d of %d, %v", c.choices, c.servers, how)
				out := r.Send(t, p.Frame())
				out.Is(t, label, rig.XDPTX, rig.Offered(p, list), "offer")
				if added := len(out.Frame) - len(p.Frame()); added != c.extra || len(list) != min(c.choices, c.servers) {
					t.Fatalf("%s: %d candidates cost %d bytes, want %d", label, len(list), added, c.extra)
				}
			}
		}
	}
}

// testOfferInserted: the papers' header, byte by byte: 72 bytes for a list of two
// servers, 56 for one.
func testOfferInserted(t *testing.T, seen rig.Hits) {
	r := rig.NewLB(t, seen)
	for choices, extra := range map[int]int{1: 56, 2: 72, 3: 88, 4: 104} {
		r.Reconfigure(t, rig.Hunting(choices, 8, rig.Inserting))
		p := rig.Inward(rig.HuntPort, wire.SYN)
		p.Seq += uint32(choices)
		p.Class = 0x2e
		list := r.List(t, 0, p.Flow())
		out := r.Send(t, p.Frame())
		out.Is(t, fmt.Sprint(choices), rig.XDPTX, rig.Sent(p, rig.HopMAC(list[0]), rig.Offer(p, 0, list...), rig.Insert), "offer")
		if added := len(out.Frame) - len(p.Frame()); added != extra {
			t.Fatalf("%d candidates cost %d bytes, want %d", choices, added, extra)
		}
	}
	r.Reconfigure(t, rig.Hunting(2, 8, rig.Inserting))
	p := rig.Inward(rig.HuntPort, wire.SYN)
	list := r.List(t, 0, p.Flow())
	got := r.Send(t, p.Frame()).Frame[rig.AtUpper:]
	generation := wire.Generation(p.Seq)
	want := slices.Concat([]byte{6, 8, 4, 2, 3, 0, 0, 0}, // TCP next, 64 bytes, 2 left, entry 3 the last
		rig.VipAddr.AsSlice(),
		rig.SID(rig.ServerLocator(list[1]), wire.ConnectForce, generation).AsSlice(),
		rig.SID(rig.ServerLocator(list[0]), wire.ConnectAvail, generation).AsSlice(),
		wire.Untagged(rig.LbLocator, p.Flow()).AsSlice(),
		p.Ip()[wire.IPv6Bytes:])
	if !bytes.Equal(got, want) {
		t.Errorf("written out:\n got %x\nwant %x", got, want)
	}
}

// testVia: transit SIDs come before the servers, and towards the first one goes
// the frame, whatever the packet and the wire.
func testVia(t *testing.T, seen rig.Hits) {
	r := rig.NewLB(t, seen)
	for n := 1; n <= topo.MaxVia; n++ {
		for _, by := range []topo.Wire{topo.Encap, topo.Insert} {
			r.Reconfigure(t, rig.Hunting(2, 8, rig.ViaTransit(n), func(s *topo.Service) { s.Wire = by }))
			var way []netip.Addr
			for i := range n {
				way = append(way, rig.Transit(i))
			}
			change := func(w *rig.Route) { w.Insert = by == topo.Insert }
			p := rig.Inward(rig.HuntPort, wire.SYN)
			p.Seq += uint32(10*n) + uint32(by)
			label := fmt.Sprintf("%d, %v", n, by)
			list := r.List(t, 0, p.Flow())
			want := rig.Sent(p, rig.TransitMAC, slices.Concat(way, rig.Offer(p, 0, list...)), change)
			r.Send(t, p.Frame()).Is(t, label, rig.XDPTX, want, "offer")
			p.Flags = wire.ACK
			want = rig.Sent(p, rig.TransitMAC, slices.Concat(way, rig.Ask(wire.RecoverStickiness, 0, list...)), change)
			r.Send(t, p.Frame()).Is(t, label+", unknown", rig.XDPTX, want, "recover")
			r.Accepted(t, list[1], p)
			p.Ack = rig.ServerISN + 1
			want = rig.Sent(p, rig.TransitMAC, slices.Concat(way, rig.Ask(wire.AckStickiness, wire.Generation(p.Seq), list[1])), change)
			r.Send(t, p.Frame()).Is(t, label+", steered", rig.XDPTX, want, "steer", "flow_established")
			r.Table.Put(t, p.Flow(), rig.Entry{})
		}
	}
	hops := topo.NextHops{}
	for i := range 8 {
		hops[rig.ServerLocator(i)] = rig.HopMAC(i)
	}
	if err := r.SetNextHops(hops); err != nil {
		t.Fatal(err)
	}
	r.Send(t, rig.Inward(rig.HuntPort, wire.SYN).Frame()).Is(t, "no neighbour towards the first", rig.XDPDrop, nil, "drop_no_next_hop")
}

// testRetry: a SYN that comes again is marked; from the third on others come first,
// and every second time the first must take it.
func testRetry(t *testing.T, seen rig.Hits) {
	r := rig.NewLB(t, seen, rig.Hunting(3, 8))
	r.Remembers = true
	p := rig.Inward(rig.HuntPort, wire.SYN)
	list := r.List(t, 0, p.Flow())
	r.Send(t, p.Frame()).Is(t, "first", rig.XDPTX, rig.Offered(p, list), "offer")
	for times := 1; times < 9; times++ {
		r.At(t, rig.Start+time.Duration(times)*30*time.Second)
		turned := slices.Concat(list[times/2%3:], list[:times/2%3])
		segments := rig.Offer(p, 1, turned...)
		if times == 3 || times == 5 || times == 7 {
			segments[0] = rig.WithFlags(rig.SID(rig.ServerLocator(turned[0]), wire.ConnectForce, wire.Generation(p.Seq)), 1)
		}
		want := rig.Sent(p, rig.HopMAC(turned[0]), segments)
		r.Send(t, p.Frame()).Is(t, fmt.Sprint("retransmission ", times), rig.XDPTX, want, "offer_retry")
	}
	other := p
	other.Seq++
	r.Send(t, other.Frame()).Is(t, "another connection of its ports", rig.XDPTX, rig.Offered(other, list), "offer")
	r.At(t, rig.Start+8*30*time.Second+65*time.Second)
	r.Send(t, p.Frame()).Is(t, "a minute of silence later", rig.XDPTX, rig.Offered(p, list), "offer")
}

// testQuestionTurns: data of an unknown flow that comes again asks in another
// order each time, as a host on the way may be down; other data does not.
func testQuestionTurns(t *testing.T, seen rig.Hits) {
	r := rig.NewLB(t, seen, rig.Hunting(3, 8))
	r.Remembers = true
	p := rig.Inward(rig.HuntPort, wire.ACK)
	p.Payload = []byte("data")
	list := r.List(t, 0, p.Flow())
	for times := range 7 {
		turned := slices.Concat(list[times%3:], list[:times%3])
		r.Send(t, p.Frame()).Is(t, fmt.Sprint("retransmission ", times), rig.XDPTX, rig.Recovered(p, turned), "recover")
	}
	p.Seq += 4
	r.Send(t, p.Frame()).Is(t, "the next", rig.XDPTX, rig.Recovered(p, list), "recover")
}

// testOwnerFirst: a SYN of a known flow meets its owner first, which may hold the
// connection or its TIME_WAIT; also if the flow is not confirmed yet, and if its
// owner is no candidate.
func testOwnerFirst(t *testing.T, seen rig.Hits) {
	r := rig.NewLB(t, seen, rig.Hunting(3, 8, rig.Members))
	r.Remembers = true
	p := rig.Inward(rig.HuntPort, wire.SYN)
	list := r.List(t, 0, p.Flow())
	r.Send(t, p.Frame())
	r.Accepted(t, list[2], p)
	want := rig.Sent(p, rig.HopMAC(list[2]), rig.Offer(p, 1, list[2], list[0], list[1]))
	r.Send(t, p.Frame()).Is(t, "SYN again, of an embryonic flow", rig.XDPTX, want, "offer_again")
	r.Confirm(t, p)
	p.Seq += 12345
	want = rig.Sent(p, rig.HopMAC(list[2]), held(rig.Offer(p, 0, list[2], list[0], list[1])))
	r.Send(t, p.Frame()).Is(t, "ports used again", rig.XDPTX, want, "offer_again")
	if e, _ := r.Flow(t, p.Flow()); e.Announced != wire.Generation(p.Seq) {
		t.Errorf("announced %d, want %d", e.Announced, wire.Generation(p.Seq))
	}
	stranger := 0
	for slices.Contains(list, stranger) {
		stranger++
	}
	r.Table.Put(t, p.Flow(), rig.Entry{})
	r.Accepted(t, stranger, p)
	p.Seq += 777
	want = rig.Sent(p, rig.HopMAC(stranger), rig.Offer(p, 0, stranger, list[0], list[1], list[2]))
	r.Send(t, p.Frame()).Is(t, "owner no candidate", rig.XDPTX, want, "offer_again")
}

// testRecover: any packet that opens nothing, of a flow that is not known, is a
// question to the flow's candidates, those of earlier pools after today's.
func testRecover(t *testing.T, seen rig.Hits) {
	r := rig.NewLB(t, seen, rig.Hunting(4, 9))
	for flags := range byte(64) {
		p := rig.Inward(rig.HuntPort, flags)
		p.Seq += uint32(flags)
		p.Payload = []byte("data")
		want, why := rig.Recovered(p, r.List(t, 0, p.Flow())), "recover"
		if flags&(wire.SYN|wire.ACK|wire.RST|wire.FIN) == wire.SYN {
			want, why = rig.Offered(p, r.List(t, 0, p.Flow())), "offer"
		}
		r.Send(t, p.Frame()).Is(t, fmt.Sprintf("flags %#02x", flags), rig.XDPTX, want, why)
	}
	r.Reconfigure(t, rig.Hunting(2, 20, func(s *topo.Service) {
		s.History = []topo.Version{{Version: 2, Servers: rig.Farm(25)[10:]}, {Version: 1, Servers: rig.Farm(15)}}
	}))
	for i := range 50 {
		p := rig.Inward(rig.HuntPort, wire.ACK)
		p.Src = netip.AddrPortFrom(rig.ClientAddr, uint16(rig.ClientPort+i))
		union := r.Union(t, 0, p.Flow())
		r.Send(t, p.Frame()).Is(t, "with a history", rig.XDPTX, rig.Recovered(p, union), "recover")
		p.Flags = wire.SYN
		r.Send(t, p.Frame()).Is(t, "a new flow, with a history", rig.XDPTX, rig.Offered(p, union[:2]), "offer")
	}
}

// testStateless: every packet to the one server of its flow, no state.
func testStateless(t *testing.T, seen rig.Hits) {
	r := rig.NewLB(t, seen, rig.Hunting(2, 3), rig.Service(81, topo.Stateless, 1, 5))
	for _, flags := range []byte{wire.SYN, wire.ACK, wire.FIN | wire.ACK, wire.RST} {
		for i := range 20 {
			p := rig.Inward(81, flags)
			p.Src = netip.AddrPortFrom(rig.ClientAddr, uint16(rig.ClientPort+i))
			r.Send(t, p.Frame()).Is(t, "stateless", rig.XDPTX, rig.ToOne(p, r.List(t, 1, p.Flow())[0], wire.Deliver, 0), "deliver")
			if _, known := r.Flow(t, p.Flow()); known {
				t.Fatal("a stateless service has an entry")
			}
		}
	}
}

// testSteer: a known flow's packets go to its server, 40 bytes longer; 56 if
// they travel inserted.
func testSteer(t *testing.T, seen rig.Hits) {
	for extra, change := range map[int]func(*topo.Service){40: func(*topo.Service) {}, 56: rig.Inserting} {
		r := rig.NewLB(t, seen, rig.Hunting(2, 8, change, rig.Members))
		r.Learn(t, 5, rig.ClientISN)
		generation := wire.Generation(rig.ClientISN)
		p := rig.Inward(rig.HuntPort, wire.ACK)
		p.Payload = bytes.Repeat([]byte{7}, 1300)
		for _, flags := range []byte{wire.ACK, wire.ACK | wire.PSH, wire.FIN | wire.ACK, wire.RST, wire.SYN | wire.ACK, 0} {
			p.Flags = flags
			want := rig.Sent(p, rig.HopMAC(5), rig.Ask(wire.AckStickiness, generation, 5), func(w *rig.Route) { w.Insert = extra == 56 })
			out := r.Send(t, p.Frame())
			out.Is(t, "steered", rig.XDPTX, want, "steer")
			if added := len(out.Frame) - len(p.Frame()); added != extra {
				t.Errorf("a steered packet is %d bytes longer, want %d", added, extra)
			}
		}
	}
}
