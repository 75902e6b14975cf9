package agent_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proffer/dataplane/objects"
	"proffer/policy"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// TestAgent runs every test of the agent's programs, then asks whether together
// they met every reason that the programs can count.
func TestAgent(t *testing.T) {
	seen := rig.Hits{}
	for _, c := range []struct {
		name string
		test func(*testing.T, rig.Hits)
	}{
		{"offer", testOffered},
		{"offer, on the wire", testPassOn},
		{"offer, load", testLoad},
		{"offer, unknown load or policy", testUnknown},
		{"offer, not arrived", testExpected},
		{"offer, full queue", testFullQueue},
		{"offer, reuseport", testReuseport},
		{"offer, no listener", testNoListener},
		{"offer, repeated", testRepeated},
		{"held", testHeld},
		{"limit of refusals", testLimitRefusals},
		{"offer, retried", testPassedOnBefore},
		{"offer, TIME_WAIT", testTimeWait},
		{"offer, no place", testNoPlace},
		{"flood", testFlood},
		{"table full", testConnsFull},
		{"table full, order", testConnsGiveWay},
		{"dynamic", testDynamic},
		{"sockets", testSockets},
		{"steered", testSteered},
		{"steered, adopted", testAdopted},
		{"steered, another generation", testOtherGeneration},
		{"steered, not mine", testNotMine},
		{"steered, stale", testStale},
		{"recover", testRecovered},
		{"request socket", testRequestSocket},
		{"cookie", testCookie},
		{"reject", testRejected},
		{"too big", testTooBig},
		{"owner table", testOwnerTable},
		{"owner netns", testOwnerNetns},
		{"udp", testUDP},
		{"IPv4", testIPv4},
		{"insert", testInsert},
		{"wrong wire", testWrongWire},
		{"domain", testDomain},
		{"tags", testTags},
		{"deliver", testDeliver},
		{"congestion", testCongestion},
		{"pass untouched", testAgentUntouched},
		{"malformed", testAgentMalformed},
		{"out", testOut},
		{"out, both families and wires", testOutWires},
		{"out, deferred", testDeferred},
		{"out, repeated", testOutRepeated},
		{"asking", testAsking},
		{"asking, RST", testAskingReset},
		{"sweep", testSweepConns},
		{"recount", testRecount},
		{"recount, both flags", testRecountOfBoth},
		{"restored meanwhile", testRestoredMeanwhile},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, seen) })
	}
	t.Run("every counter", func(t *testing.T) {
		seen.Covers(t, rig.NewAgent(t, rig.Hits{}, rig.Offering(rig.HuntPort)).Names, map[string]string{
			"drop_no_headroom": "the headers that the agent adds are no longer than those it removed",
		})
	})
}

// testOffered: which offers are taken, by position in the list and by load. The last
// segment must be taken, whatever its function.
func testOffered(t *testing.T, seen rig.Hits) {
	for _, c := range []struct {
		label     string
		functions []wire.Function
		asking    uint32
		action    uint32
		why       string
	}{
		{"ca, idle", []wire.Function{wire.ConnectAvail, wire.ConnectForce}, 0, rig.XDPPass, "accept_avail"},
		{"ca, one below the threshold", []wire.Function{wire.ConnectAvail, wire.ConnectForce}, 3, rig.XDPPass, "accept_avail"},
		{"ca, at the threshold", []wire.Function{wire.ConnectAvail, wire.ConnectForce}, 4, rig.XDPTX, "pass_on_busy"},
		{"ca, first of four, busy", []wire.Function{wire.ConnectAvail, wire.ConnectAvail, wire.ConnectAvail, wire.ConnectForce}, 4, rig.XDPTX, "pass_on_busy"},
		{"cf, busy", []wire.Function{wire.ConnectForce}, 4, rig.XDPPass, "accept_force"},
		{"cf though another follows", []wire.Function{wire.ConnectForce, wire.ConnectForce}, 4, rig.XDPPass, "accept_force"},
		{"ca at the last candidate", []wire.Function{wire.ConnectAvail}, 4, rig.XDPPass, "accept_force"},
	} {
		t.Run(c.label, func(t *testing.T) {
			r := rig.NewAgent(t, seen, rig.Offering(rig.HuntPort))
			rig.Listen(t, rig.HuntPort, 128)
			r.SetLoad(t, func(l *objects.AgentLoad) { l.Asking[0] = c.asking })
			p := rig.Inward(rig.HuntPort, wire.SYN)
			s := rig.To(p, wire.Generation(p.Seq), c.functions...)
			if c.action == rig.XDPTX {
				r.Send(t, s.Frame()).Is(t, c.label, rig.XDPTX, s.Onward(rig.HopMAC(2)), c.why)
				if _, known := r.Conn(t, p.Flow()); known {
					t.Error("an offer that was passed on left an entry")
				}
				return
			}
			r.Send(t, s.Frame()).Is(t, c.label, rig.XDPPass, rig.Delivered(p), c.why)
			want := rig.ConnOf(p.Flow(), objects.AgentConn{
				Seen: rig.Seen(rig.Start), LbBe: objects.LocatorBits(rig.LbLocator), Epoch: uint16(rig.Start >> objects.EpochShift),
				NextIn: rig.ClientISN + 1, Flags: objects.ConnPending, Generation: wire.Generation(rig.ClientISN), State: objects.ConnWait,
			})
			if got := r.MustConn(t, p); got != want {
				t.Errorf("entry %+v, want %+v", got, want)
			}
			if _, known := r.Settled(t, p.Flow()); known {
				t.Error("a flow without a word of its client is among the established")
			}
		})
	}
}

// testPassOn: from the second of three to the third; only the destination, the
// segments left, the hop limit and the link addresses change.
func testPassOn(t *testing.T, seen rig.Hits) {
	r := rig.NewAgent(t, seen, rig.Offering(rig.HuntPort, func(o *topo.Offering) { o.Threshold = 0 }))
	rig.Listen(t, rig.HuntPort, 128)
	p := rig.Inward(rig.HuntPort, wire.SYN)
	p.Class = 0xba
	s := rig.To(p, wire.Generation(p.Seq), wire.ConnectAvail, wire.ConnectAvail, wire.ConnectForce)
	for i := range s.Segments { // we are the second, not the first
		s.Segments[i] = rig.SID(rig.ServerLocator([]int{2, rig.Here, 3}[i]), []wire.Function{wire.ConnectAvail, wire.ConnectAvail, wire.ConnectForce}[i], wire.Generation(p.Seq))
	}
	s.At = 1
	r.Send(t, s.Frame()).Is(t, "second of three", rig.XDPTX, s.Onward(rig.HopMAC(3)), "pass_on_busy")
	s.Class = 0x03 // congestion met on the way stays in the outer header
	r.Send(t, s.Frame()).Is(t, "congestion on the way", rig.XDPTX, s.Onward(rig.HopMAC(3)), "pass_on_busy")
	tlv := append(wire.SRH(wire.ProtoIPv6, 1, s.Segments[2]), 4, 6, 0, 0, 0, 0, 0, 0) // PadN, RFC 8754 §2.1.1.2
	tlv[1]++
	s.At, s.Segments = 0, []netip.Addr{s.Segments[1]}
	r.Send(t, rig.WithSRH(s.Frame(), tlv)).Is(t, "with a TLV", rig.XDPDrop, nil, "drop_tlv")
	for _, hop := range []byte{0, 1} {
		s := rig.To(p, wire.Generation(p.Seq), wire.ConnectAvail, wire.ConnectForce)
		s.Hop = hop
		r.Send(t, s.Frame()).Is(t, fmt.Sprint("hop limit ", hop), rig.XDPDrop, nil, "drop_hop_limit")
	}
	far := rig.To(p, wire.Generation(p.Seq), wire.ConnectAvail, wire.ConnectForce)
	far.Segments[1] = rig.SID(rig.ServerLocator(77), wire.ConnectForce, wire.Generation(p.Seq))
	r.Send(t, far.Frame()).Is(t, "no neighbour", rig.XDPDrop, nil, "drop_no_next_hop")
	if addr, err := r.Unresolved(); err != nil || addr != far.Segments[1] {
		t.Errorf("unresolved %v, %v", addr, err)
	}
}

// testFullQueue: an accept queue that the kernel would refuse at is no place
// for an offer; the last candidate answers in the kernel's stead.
func testFullQueue(t *testing.T, seen rig.Hits) {
	const full = 2 // the kernel lets backlog + 1 wait
	for _, onFull := range []topo.OnFull{topo.Reset, topo.Drop} {
		t.Run(onFull.String(), func(t *testing.T) {
			r := rig.NewAgent(t, seen, rig.Offering(rig.HuntPort, func(o *topo.Offering) { o.OnFull = onFull }))
			l := rig.Listen(t, rig.HuntPort, full-1)
			p := rig.Inward(rig.HuntPort, wire.SYN)
			first := rig.To(p, wire.Generation(p.Seq), wire.ConnectAvail, wire.ConnectForce)
			r.Send(t, first.Frame()).Is(t, "empty", rig.XDPPass, rig.Delivered(p), "accept_avail")
			rig.Queue(t, l, rig.HuntPort, full-1)
			p.Seq++ // another connection
			first = rig.To(p, wire.Generation(p.Seq), wire.ConnectAvail, wire.ConnectForce)
			r.Send(t, first.Frame()).Is(t, "room for one", rig.XDPPass, rig.Delivered(p), "accept_avail")
			rig.Dial(t, 60000, rig.HuntPort)
			rig.Queued(t, full, l)
			p.Seq++
			first = rig.To(p, wire.Generation(p.Seq), wire.ConnectAvail, wire.ConnectForce)
			last := rig.To(p, wire.Generation(p.Seq), wire.ConnectForce)
			forced := rig.To(p, wire.Generation(p.Seq), wire.ConnectForce, wire.ConnectForce)
			r.Send(t, forced.Frame()).Is(t, "cf, but not the last", rig.XDPTX, forced.Onward(rig.HopMAC(2)), "pass_on_full")
			r.Send(t, first.Frame()).Is(t, "may be passed on", rig.XDPTX, first.Onward(rig.HopMAC(2)), "pass_on_full")
			if onFull == topo.Drop {
				r.Send(t, last.Frame()).Is(t, "last", rig.XDPDrop, nil, "refuse_full_drop")
				return
			}
			checkResets(t, r, p, 0)
			p.Src = netip.AddrPortFrom(netip.MustParseAddr("2001:db8:dead::1"), rig.ClientPort)
			last = rig.To(p, wire.Generation(p.Seq), wire.ConnectForce)
			r.Send(t, last.Frame()).Is(t, "no neighbour", rig.XDPDrop, nil, "drop_no_next_hop")
		})
	}
}

// testReuseport: the queues of all listeners of a group count as load.
func testReuseport(t *testing.T, seen rig.Hits) {
	r := rig.NewAgent(t, seen, rig.Offering(rig.HuntPort, func(o *topo.Offering) { o.Cores = 0 }))
	group := []int{
		rig.Listen(t, rig.HuntPort, 128, unix.SO_REUSEPORT),
		rig.Listen(t, rig.HuntPort, 128, unix.SO_REUSEPORT),
		rig.Listen(t, rig.HuntPort, 128, unix.SO_REUSEPORT),
	}
	p := rig.Inward(rig.HuntPort, wire.SYN)
	for i := range 6 {
		rig.Queued(t, i, group...)
		s := rig.To(p, wire.Generation(p.Seq), wire.ConnectAvail, wire.ConnectForce)
		if i < 4 {
			r.Send(t, s.Frame()).Is(t, fmt.Sprint(i, " queued"), rig.XDPPass, rig.Delivered(p), "accept_avail")
		} else {
			r.Send(t, s.Frame()).Is(t, fmt.Sprint(i, " queued"), rig.XDPTX, s.Onward(rig.HopMAC(2)), "pass_on_busy")
		}
		p.Seq += 1000
		rig.Dial(t, uint16(50000+i), rig.HuntPort)
	}
}

// testNoListener: no listener here; only the LB knows whether all others
// have been asked, and then our stack refuses.
func testNoListener(t *testing.T, seen rig.Hits) {
	r := rig.NewAgent(t, seen, rig.Offering(rig.HuntPort))
	p := rig.Inward(rig.HuntPort, wire.SYN)
	for _, functions := range [][]wire.Function{{wire.ConnectAvail, wire.ConnectForce}, {wire.ConnectForce, wire.ConnectForce}} {
		s := rig.To(p, wire.Generation(p.Seq), functions...)
		r.Send(t, s.Frame()).Is(t, "may be passed on", rig.XDPTX, s.Onward(rig.HopMAC(2)), "pass_on_no_listener")
	}
	back := rig.To(p, wire.Generation(p.Seq), wire.ConnectAvail, wire.RecoverStickiness)
	back.Segments[1] = rig.SID(rig.LbLocator, wire.RecoverStickiness, wire.Generation(p.Seq))
	r.Send(t, back.Frame()).Is(t, "the list goes on at the LB", rig.XDPTX, back.Onward(rig.HopMAC(0xb)), "pass_on_no_listener")
	for _, f := range []wire.Function{wire.ConnectAvail, wire.ConnectForce} {
		last := rig.To(p, wire.Generation(p.Seq), f)
		r.Send(t, last.Frame()).Is(t, "last", rig.XDPTX, last.Returned(), "give_back_no_listener")
		r.Send(t, last.Flagged(wire.Final).Frame()).Is(t, "last of all", rig.XDPPass, rig.Delivered(p), "refuse_no_listener")
	}
	lost := rig.To(p, wire.Generation(p.Seq), wire.ConnectForce)
	lost.LB = netip.MustParsePrefix("fd00:0:0:dead::/64")
	r.Send(t, lost.Frame()).Is(t, "no way back", rig.XDPDrop, nil, "drop_no_next_hop")
	if _, known := r.Conn(t, p.Flow()); known {
		t.Error("a connection that no listener takes has an entry")
	}
}

// testRepeated: an offer for a connection that is here already.
func testRepeated(t *testing.T, seen rig.Hits) {
	r := rig.NewAgent(t, seen, rig.Offering(rig.HuntPort))
	p := rig.Inward(rig.HuntPort, wire.SYN)
	alive := rig.Inward(rig.HuntPort, wire.SYN)
	alive.Src = netip.AddrPortFrom(rig.ClientAddr, rig.ClientPort+1)
	r.Begin(t, alive)
	rig.Listen(t, rig.HuntPort, 128)
	r.Accept(t, p)
	r.SetLoad(t, func(l *objects.AgentLoad) { l.Asking[0] = 100 })
	again := rig.To(p, wire.Generation(p.Seq), wire.ConnectAvail, wire.ConnectForce)
	again.LB = rig.OtherLB
	r.At(t, rig.Start+time.Second)
	r.Send(t, again.Frame()).Is(t, "its SYN again", rig.XDPPass, rig.Delivered(p), "accept_repeated")
	if c := r.MustConn(t, p); c.LbBe != objects.LocatorBits(rig.OtherLB) || c.Seen != rig.Seen(rig.Start+time.Second) {
		t.Errorf("its SYN by another LB left %+v", c)
	}

	alive.Seq += 5555
	s := rig.To(alive, wire.Generation(alive.Seq), wire.ConnectAvail, wire.ConnectForce)
	r.Send(t, s.Frame()).Is(t, "SYN into a live connection", rig.XDPPass, rig.Delivered(alive), "accept_challenged")
	if c := r.MustConn(t, alive); c.Generation != wire.Generation(rig.ClientISN) {
		t.Errorf("a stray SYN changed the generation: %+v", c)
	}
	p.Seq += 5555
	s = rig.To(p, wire.Generation(p.Seq), wire.ConnectAvail, wire.ConnectForce)
	r.Send(t, s.Frame()).Is(t, "new connection of a dead one's ports", rig.XDPTX, s.Onward(rig.HopMAC(2)), "pass_on_busy")
}

// testHeld: an offer of which the LB has an established flow with this server is taken, or goes
// back: released for the others, or reported alive. Without that mark it is passed on as ever.
func testHeld(t *testing.T, seen rig.Hits) {
	r := rig.NewAgent(t, seen, rig.Offering(rig.HuntPort))
	p := rig.Inward(rig.HuntPort, wire.SYN)
	asked := func(p rig.Packet, functions ...wire.Function) rig.SR {
		s := rig.To(p, wire.Generation(p.Seq), functions...)
		s.Segments[0] = rig.WithFlags(s.Segments[0], wire.Held)
		return s
	}
	two := []wire.Function{wire.ConnectAvail, wire.ConnectForce}
	s := asked(p, two...)
	r.Send(t, s.Frame()).Is(t, "no listener", rig.XDPTX, s.Returned(), "give_back_released")
	alive := rig.Inward(rig.HuntPort, wire.SYN)
	alive.Src = netip.AddrPortFrom(rig.ClientAddr, rig.ClientPort+1)
	r.Begin(t, alive)
	rig.Listen(t, rig.HuntPort, 128)
	r.SetLoad(t, func(l *objects.AgentLoad) { l.Asking[0] = 100 })
	r.Send(t, s.Frame()).Is(t, "busy", rig.XDPTX, s.Returned(), "give_back_released")
	last := asked(p, wire.ConnectForce)
	r.Send(t, last.Frame()).Is(t, "must be taken", rig.XDPPass, rig.Delivered(p), "accept_force")
	r.Send(t, s.Frame()).Is(t, "its SYN again", rig.XDPPass, rig.Delivered(p), "accept_repeated")
	alive.Seq += 5555
	for _, functions := range [][]wire.Function{two, {wire.ConnectForce}} {
		s = asked(alive, functions...)
		back := rig.WithFlags(rig.SID(s.LB, wire.NotMine, wire.Generation(alive.Seq)), wire.Held)
		route := s.In.Route(wire.Untagged(rig.ServerLocator(rig.Here), s.In.Flow), s.In.Class, wire.DefaultHopLimit, back)
		want := wire.Frame(rig.HopMAC(0xb), rig.HereMAC, route.Encap(s.In.Ip))
		r.Send(t, s.Frame()).Is(t, "a live connection", rig.XDPTX, want, "give_back_live")
	}
	if c := r.MustConn(t, alive); c.Generation != wire.Generation(rig.ClientISN) {
		t.Errorf("a SYN that went back changed the generation: %+v", c)
	}
	other := rig.Inward(rig.HuntPort, wire.SYN)
	other.Src = netip.AddrPortFrom(rig.ClientAddr, rig.ClientPort+2)
	s = asked(other, two...)
	r.Send(t, s.Frame()).Is(t, "released", rig.XDPTX, s.Returned(), "give_back_released")
	r.SetLoad(t, func(l *objects.AgentLoad) { l.Asking[0] = 0 })
	retry := rig.To(other, wire.Generation(other.Seq), two...).Flagged(wire.Retry)
	r.Send(t, retry.Frame()).Is(t, "released before", rig.XDPTX, retry.Onward(rig.HopMAC(2)), "pass_on_again")
}

// testPassedOnBefore: a retransmitted SYN goes past an agent that passed it on, for a
// minute: someone further on may have taken it.
func testPassedOnBefore(t *testing.T, seen rig.Hits) {
	r := rig.NewAgent(t, seen, rig.Offering(rig.HuntPort, func(o *topo.Offering) { o.Cores = 0 }))
	rig.Listen(t, rig.HuntPort, 128)
	p := rig.Inward(rig.HuntPort, wire.SYN)
	first := rig.To(p, wire.Generation(p.Seq), wire.ConnectAvail, wire.ConnectForce)
	r.SetLoad(t, func(l *objects.AgentLoad) { l.Asking[0] = 4 })
	r.Send(t, first.Frame()).Is(t, "passed on", rig.XDPTX, first.Onward(rig.HopMAC(2)), "pass_on_busy")
	r.SetLoad(t, func(l *objects.AgentLoad) { l.Asking[0] = 0 })
	retry := first.Flagged(wire.Retry)
	r.At(t, rig.Start+59*time.Second)
	r.Send(t, retry.Frame()).Is(t, "again", rig.XDPTX, retry.Onward(rig.HopMAC(2)), "pass_on_again")
	forced := rig.To(p, wire.Generation(p.Seq), wire.ConnectForce, wire.ConnectForce).Flagged(wire.Retry)
	r.Send(t, forced.Frame()).Is(t, "again, by force", rig.XDPTX, forced.Onward(rig.HopMAC(2)), "pass_on_again")
	other := p
	other.Seq++
	s := rig.To(other, wire.Generation(other.Seq), wire.ConnectAvail, wire.ConnectForce).Flagged(wire.Retry)
	r.Send(t, s.Frame()).Is(t, "the retry of another", rig.XDPPass, rig.Delivered(other), "accept_avail")
	other.Src = netip.AddrPortFrom(rig.ClientAddr, rig.ClientPort+1)
	s = rig.To(other, wire.Generation(other.Seq), wire.ConnectAvail, wire.ConnectForce).Flagged(wire.Retry)
	r.Send(t, s.Frame()).Is(t, "of another client", rig.XDPPass, rig.Delivered(other), "accept_avail")
	neighbour, digest := p, rig.ConnsOf(t, r.Agent).Key.Digest(p.Flow()) // in the table
	slot := func(p rig.Packet) uint64 { return policy.Mix(digest^uint64(p.Seq)) % 65536 }
	for neighbour.Seq++; slot(neighbour) != slot(p); neighbour.Seq++ {
		continue
	}
	s = rig.To(neighbour, wire.Generation(neighbour.Seq), wire.ConnectAvail, wire.ConnectForce).Flagged(wire.Retry)
	r.Send(t, s.Frame()).Is(t, "of one with the same place", rig.XDPPass, rig.Delivered(neighbour), "accept_avail")
	r.At(t, rig.Start+60*time.Second)
	r.Send(t, retry.Frame()).Is(t, "a minute later", rig.XDPPass, rig.Delivered(p), "accept_avail")

	p.Src = netip.AddrPortFrom(rig.ClientAddr, rig.ClientPort+2)
	first = rig.To(p, wire.Generation(p.Seq), wire.ConnectAvail, wire.ConnectForce)
	r.SetLoad(t, func(l *objects.AgentLoad) { l.Asking[0] = 4 })
	r.Send(t, first.Frame()).Is(t, "passed on", rig.XDPTX, first.Onward(rig.HopMAC(2)), "pass_on_busy")
	last := rig.To(p, wire.Generation(p.Seq), wire.ConnectForce).Flagged(wire.Retry)
	r.Send(t, last.Frame()).Is(t, "again, and the last", rig.XDPPass, rig.Delivered(p), "accept_force")
}

// testTimeWait: a flow's own TIME_WAIT hides neither the listener nor its load.
func testTimeWait(t *testing.T, seen rig.Hits) {
	r := rig.NewAgent(t, seen, rig.Offering(rig.HuntPort))
	l := rig.Listen(t, rig.HuntPort, 1)
	p := rig.Inward(rig.HuntPort, wire.SYN)
	rig.TimeWait(t, l, p)
	r.Send(t, rig.To(p, wire.Generation(p.Seq), wire.ConnectAvail, wire.ConnectForce).Frame()).Is(t, "over TIME_WAIT", rig.XDPPass, rig.Delivered(p), "accept_avail")
	rig.Queue(t, l, rig.HuntPort, 2)
	p.Seq++
	s := rig.To(p, wire.Generation(p.Seq), wire.ConnectAvail, wire.ConnectForce)
	r.Send(t, s.Frame()).Is(t, "over TIME_WAIT, full", rig.XDPTX, s.Onward(rig.HopMAC(2)), "pass_on_full")
	p.Flags = wire.ACK // of something else: the five-tuple may live elsewhere
	s = rig.To(p, 0, wire.RecoverStickiness, wire.RecoverStickiness)
	r.Send(t, s.Frame()).Is(t, "is TIME_WAIT mine?", rig.XDPTX, s.Onward(rig.HopMAC(2)), "pass_on_not_mine")
	p.Flags = wire.RST
	r.Send(t, rig.To(p, 0, wire.RecoverStickiness, wire.RecoverStickiness).Frame()).Is(t, "a RST in TIME_WAIT", rig.XDPPass, rig.Delivered(p), "recovered")
}
