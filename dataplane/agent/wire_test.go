package agent_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proffer/dataplane/objects"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

const udpPort = 53

// udpOffering is a service of datagrams.
func udpOffering(change ...func(*topo.Offering)) topo.Offering {
	return rig.Offering(udpPort, append(change, func(o *topo.Offering) { o.VIP.Protocol = topo.UDP })...)
}

// listenUDP binds a socket to an address of either family.
func listenUDP(t testing.TB, at netip.AddrPort) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, rig.Sockaddr(at)); err != nil {
		t.Fatal(err)
	}
}

// testUDP: a flow of datagrams from its first offer to its answers. There is no
// handshake: an answer and the packets after it are one.
func testUDP(t *testing.T, seen rig.Hits) {
	for _, four := range []bool{false, true} {
		t.Run(fmt.Sprint("IPv4 ", four), func(t *testing.T) { testUDPOf(t, seen, four) })
	}
}

func testUDPOf(t *testing.T, seen rig.Hits, four bool) {
	p := rig.Inward(udpPort, 0)
	p.Payload = []byte("question")
	if four {
		p = rig.OverIPv4(p)
	}
	r := rig.NewAgent(t, seen, udpOffering(func(o *topo.Offering) { o.VIP.Addr = p.Dst.Addr() }))
	in := rig.InnerUDP(p)
	offer := rig.ToWith(in, 0, wire.ConnectAvail, wire.ConnectForce)
	r.Send(t, offer.Frame()).Is(t, "no listener", rig.XDPTX, offer.Onward(rig.HopMAC(2)), "pass_on_no_listener")
	last := rig.ToWith(in, 0, wire.ConnectForce)
	r.Send(t, last.Frame()).Is(t, "no listener, last", rig.XDPTX, last.Returned(), "give_back_no_listener")
	r.Send(t, last.Flagged(wire.Final).Frame()).Is(t, "no listener anywhere", rig.XDPPass, in.Delivered(), "refuse_no_listener")
	listenUDP(t, p.Dst)

	lap := rig.ToWith(in, 0, wire.RecoverStickiness, wire.ConnectAvail)
	r.Send(t, lap.Frame()).Is(t, "first lap: question", rig.XDPTX, lap.Onward(rig.HopMAC(2)), "pass_on_not_mine")
	r.Send(t, offer.Frame()).Is(t, "second lap: offer", rig.XDPPass, in.Delivered(), "accept_avail")
	c, _ := r.Conn(t, in.Flow)
	if c.State != objects.ConnWait || c.Flags != objects.ConnPending || c.Generation == 0 {
		t.Fatalf("accepted as %+v", c)
	}
	generation := c.Generation
	again := rig.ToWith(in, 0, wire.ConnectAvail, wire.ConnectForce)
	again.LB = rig.OtherLB
	r.Send(t, again.Frame()).Is(t, "before an answer, by another LB", rig.XDPPass, in.Delivered(), "accept_repeated")
	if c, _ := r.Conn(t, in.Flow); c.LbBe != objects.LocatorBits(rig.OtherLB) || c.Generation != generation {
		t.Errorf("repeated, it is %+v", c)
	}
	again.Segments[0] = rig.SID(rig.ServerLocator(rig.Here), wire.RecoverStickiness, 0)
	r.Send(t, again.Frame()).Is(t, "question", rig.XDPPass, in.Delivered(), "recovered")
	if _, known := r.Settled(t, in.Flow); known {
		t.Error("it is established without an answer")
	}

	outUDP(r, t, p).Is(t, "answer", tcUnspec, wrappedUDP(p, generation), "signal_create")
	r.Send(t, rig.ToWith(in, generation, wire.AckStickiness).Frame()).Is(t, "more", rig.XDPPass, in.Delivered(), "established", "acknowledged", "steered")
	if got := r.Asking(t); got != 1 {
		t.Errorf("%d requests in progress, want 1", got)
	}
	outUDP(r, t, p).Is(t, "its answer", tcUnspec, answerUDP(p).Frame(rig.RouterMAC, rig.HereMAC), "out_direct")
	if got := r.Asking(t); got != 0 {
		t.Errorf("%d requests in progress after the answer", got)
	}
	again.Segments[0] = rig.SID(rig.ServerLocator(rig.Here), wire.ConnectAvail, 0)
	r.Send(t, again.Frame()).Is(t, "another LB does not know", rig.XDPPass, in.Delivered(), "accept_repeated")
	if c, known := r.Settled(t, in.Flow); !known || c.State != objects.ConnWait || c.LbBe != objects.LocatorBits(rig.OtherLB) {
		t.Errorf("then it is %v, %+v", known, c)
	}
	r.Send(t, rig.ToWith(in, generation+1, wire.AckStickiness).Frame()).Is(t, "another generation", rig.XDPPass, in.Delivered(), "steered_other_generation")

	stranger := p
	stranger.Src = netip.AddrPortFrom(p.Src.Addr(), 1)
	s := rig.ToWith(rig.InnerUDP(stranger), generation, wire.AckStickiness)
	r.Send(t, s.Frame()).Is(t, "not mine", rig.XDPTX, s.Returned(), "give_back_not_mine")
	r.Send(t, rig.ToWith(rig.InnerUDP(stranger), 0, wire.RecoverStickiness).Frame()).Is(t, "of no server", rig.XDPDrop, nil, "drop_unowned")
	r.At(t, rig.Start+time.Second)
	r.Send(t, rig.ToWith(rig.InnerUDP(stranger), 0, wire.ConnectForce).Frame()).Is(t, "taken later", rig.XDPPass, rig.InnerUDP(stranger).Delivered(), "accept_force")
	if c, _ := r.Conn(t, rig.InnerUDP(stranger).Flow); c.Generation == generation {
		t.Error("a later flow has the same generation")
	}
}

// answerUDP is the answer to p's datagram.
func answerUDP(p rig.Packet) rig.Inner {
	back := p
	back.Src, back.Dst, back.Payload = p.Dst, p.Src, []byte("answer")
	return rig.InnerUDP(back)
}

func outUDP(r *rig.Agent, t testing.TB, p rig.Packet) rig.Outcome {
	t.Helper()
	r.Out.Ctx = nil
	return r.Out.Send(t, answerUDP(p).Frame(rig.RouterMAC, rig.HereMAC))
}

func wrappedUDP(p rig.Packet, generation uint16) []byte {
	return wrappedIn(answerUDP(p), p.Flow(), rig.HopMAC(0xc), rig.HereMAC, rig.SID(rig.OtherLB, wire.CreateStickiness, generation))
}

// testIPv4: the same in the other family, from the offer to the refusal.
func testIPv4(t *testing.T, seen rig.Hits) {
	at4 := func(o *topo.Offering) { o.VIP.Addr = rig.Vip4 }
	r := rig.NewAgent(t, seen, rig.Offering(rig.HuntPort), rig.Offering(rig.HuntPort, at4))
	opening := rig.OverIPv4(rig.Inward(rig.HuntPort, wire.SYN))
	generation := wire.Generation(opening.Seq)
	offer := rig.To(opening, generation, wire.ConnectAvail, wire.ConnectForce)
	r.Send(t, offer.Frame()).Is(t, "no listener", rig.XDPTX, offer.Onward(rig.HopMAC(2)), "pass_on_no_listener")
	l := listenAt(t, opening.Dst, 1)
	r.Accept(t, opening)
	p := opening
	p.Flags, p.Seq = wire.ACK, opening.Seq+1
	r.Send(t, rig.To(p, generation, wire.AckStickiness).Frame()).Is(t, "not the kernel's", rig.XDPPass, rig.Delivered(p), "steered_embryonic")
	rig.Reset(t, l)
	rig.Established(t, opening, opening.Seq)
	r.Acknowledge(t, opening)
	if c := r.MustConn(t, p); c.Offering != 1 {
		t.Errorf("it counts in load %d", c.Offering)
	}
	forget(r, t, p)
	r.Send(t, rig.To(p, 0, wire.RecoverStickiness, wire.RecoverStickiness).Frame()).Is(t, "forgotten", rig.XDPPass, rig.Delivered(p), "recovered")
	if c := r.MustConn(t, p); c.Generation != generation || c.State != objects.ConnWait {
		t.Errorf("recovered as %+v", c)
	}

	for _, c := range rig.Congestion { // which is in the header that has a checksum
		q := rig.OverIPv4(rig.Inward(rig.HuntPort, wire.ACK))
		q.Class = 0xb8 | c.Inner
		s := rig.To(q, 0, wire.Deliver)
		s.Class = c.Outer
		if c.Want == rig.Dropped {
			r.Send(t, s.Frame()).Is(t, "congestion", rig.XDPDrop, nil, "drop_congested")
			continue
		}
		q.Class = 0xb8 | c.Want
		r.Send(t, s.Frame()).Is(t, "congestion", rig.XDPPass, rig.Delivered(q), "deliver")
	}
	stranger := p
	stranger.Src = netip.AddrPortFrom(rig.Client4, 1)
	s := rig.To(stranger, 7, wire.AckStickiness)
	r.Send(t, s.Frame()).Is(t, "not mine", rig.XDPTX, s.Returned(), "give_back_not_mine")
	r.Send(t, rig.Altered(s.Frame(), rig.AtUpper, 0x44)).Is(t, "half a header", rig.XDPDrop, nil, "drop_truncated")
	testRefused4(t, r, stranger)
}

// testRefused4: a full queue is answered in IPv4 too.
func testRefused4(t *testing.T, r *rig.Agent, p rig.Packet) {
	l := listenAt(t, p.Dst, 1)
	for i := range 2 {
		fd := rig.Socket(t, netip.AddrPortFrom(rig.Client4, uint16(50000+i)))
		if err := unix.Connect(fd, rig.Sockaddr(p.Dst)); err != nil {
			t.Fatal(err)
		}
	}
	rig.Queued(t, 2, l)
	p.Flags, p.Payload = wire.SYN, []byte("early")
	answer := rig.Packet{Hop: 64, Src: p.Dst, Dst: p.Src, Ack: p.Seq + 1 + 5, Flags: wire.RST | wire.ACK}
	in := rig.InnerTCP(answer)
	rig.NoWindow(in.Ip)
	rig.Unidentified(in.Ip)
	r.Send(t, rig.To(p, wire.Generation(p.Seq), wire.ConnectForce).Frame()).
		Is(t, "full queue", rig.XDPTX, in.Frame(rig.RouterMAC, rig.HereMAC), "refuse_full_reset")
}

// testInsert: the papers' wire. The packet's own header is the outer one, and its
// destination the last segment.
func testInsert(t *testing.T, seen rig.Hits) {
	datagrams := udpOffering()
	datagrams.Wire = topo.Insert
	r := rig.NewAgent(t, seen, rig.Offering(rig.HuntPort, rig.Inserts), datagrams)
	rig.Listen(t, rig.HuntPort, 128)
	p := rig.Inward(rig.HuntPort, wire.SYN)
	p.Class = 0xb9
	p.Payload = []byte("early data")
	generation := wire.Generation(p.Seq)
	offer := rig.To(p, generation, wire.ConnectAvail, wire.ConnectForce).Inserted()
	r.Send(t, offer.Frame()).Is(t, "offer", rig.XDPPass, rig.Delivered(p), "accept_avail")
	if c := r.MustConn(t, p); c.Flags != objects.ConnPending || c.LbBe != objects.LocatorBits(rig.LbLocator) {
		t.Errorf("accepted as %+v", c)
	}
	r.SetLoad(t, func(l *objects.AgentLoad) { l.Asking[0] = 100 })
	p.Seq++
	offer = rig.To(p, wire.Generation(p.Seq), wire.ConnectAvail, wire.ConnectForce).Inserted()
	r.Send(t, offer.Frame()).Is(t, "passed on", rig.XDPTX, offer.Onward(rig.HopMAC(2)), "pass_on_busy")
	p.Seq++
	last := rig.To(p, wire.Generation(p.Seq), wire.ConnectAvail).Inserted()
	r.Send(t, last.Frame()).Is(t, "the VIP is no candidate", rig.XDPPass, rig.Delivered(p), "accept_force")
	r.Send(t, rig.To(p, 0, wire.Deliver).Inserted().Frame()).Is(t, "dt", rig.XDPPass, rig.Delivered(p), "deliver")
	tooFar := rig.To(p, 0, wire.Deliver, wire.Deliver).Inserted()
	r.Send(t, tooFar.Frame()).Is(t, "dt with a segment left", rig.XDPDrop, nil, "drop_segments_left")
	spent := rig.To(p, generation, wire.Deliver).Inserted().Frame()
	stray := slices.Clone(spent)
	stray[rig.AtUpper+3] = 0 // no segment left: then our SID is the destination, and the VIP is not
	r.Send(t, stray).Is(t, "nothing left", rig.XDPPass, rig.Delivered(p), "deliver")

	steered := p
	steered.Flags = wire.ACK
	r.Send(t, rig.To(steered, wire.Generation(p.Seq), wire.AckStickiness).Inserted().Frame()).Is(t, "steered", rig.XDPPass, rig.Delivered(steered), "steered_embryonic")
	datagram := rig.InnerUDP(rig.Inward(udpPort, 0))
	listenUDP(t, rig.Inward(udpPort, 0).Dst)
	r.Send(t, rig.ToWith(datagram, 0, wire.ConnectForce).Inserted().Frame()).Is(t, "datagram", rig.XDPPass, datagram.Delivered(), "accept_force")
}

// testWrongWire: with `wire: encap` the sender of an inserted packet is a name in its list, so
// no function is asked for in the form that the service does not have.
func testWrongWire(t *testing.T, seen rig.Hits) {
	r := rig.NewAgent(t, seen, rig.Offering(rig.HuntPort, rig.ByTable), rig.Offering(insertedPort, rig.ByTable, rig.Inserts))
	for _, port := range []uint16{rig.HuntPort, insertedPort} {
		p := rig.Inward(port, wire.SYN)
		right := rig.To(p, wire.Generation(p.Seq), wire.ConnectForce)
		if port == insertedPort {
			right = right.Inserted()
		}
		r.Send(t, right.Frame()).Is(t, "the service's wire", rig.XDPPass, rig.Delivered(p), "accept_force")
		before := r.MustConn(t, p)
		for _, signal := range wire.Signals() {
			p.Flags = wire.ACK
			switch signal.Function {
			case wire.ConnectAvail, wire.ConnectForce:
				p.Flags = wire.SYN
			case wire.Reject:
				p.Flags = wire.RST
			}
			wrong := rig.To(p, wire.Generation(p.Seq)+1, signal.Function)
			if port != insertedPort {
				wrong = wrong.Inserted()
			}
			r.Send(t, wrong.Frame()).Is(t, fmt.Sprint(port, " ", signal.Function), rig.XDPDrop, nil, "drop_wrong_wire")
		}
		if after := r.MustConn(t, p); after != before {
			t.Errorf("%d: packets of the wrong wire made of %+v %+v", port, before, after)
		}
	}
}

// testTooBig: an ICMP error about a flow's packet is a packet of the flow, and
// changes nothing.
func testTooBig(t *testing.T, seen rig.Hits) {
	for _, four := range []bool{false, true} {
		opening := rig.Inward(rig.HuntPort, wire.SYN)
		if four {
			opening = rig.OverIPv4(opening)
		}
		r := rig.NewAgent(t, seen, rig.Offering(rig.HuntPort, func(o *topo.Offering) { o.VIP.Addr = opening.Dst.Addr() }))
		in := rig.InnerTooBig(rig.InnerTCP(opening), opening)
		generation := wire.Generation(opening.Seq)
		s := rig.ToWith(in, generation, wire.AckStickiness)
		r.Send(t, s.Frame()).Is(t, "as, of no server", rig.XDPTX, s.Returned(), "give_back_not_mine")
		s = rig.ToWith(in, 0, wire.RecoverStickiness, wire.RecoverStickiness)
		r.Send(t, s.Frame()).Is(t, "rs, not mine", rig.XDPTX, s.Onward(rig.HopMAC(2)), "pass_on_not_mine")
		r.Send(t, rig.ToWith(in, 0, wire.RecoverStickiness).Frame()).Is(t, "rs, of no server", rig.XDPDrop, nil, "drop_unowned")
		r.Send(t, rig.ToWith(in, 0, wire.ConnectForce).Frame()).Is(t, "offer", rig.XDPDrop, nil, "drop_not_a_syn")
		r.Send(t, rig.ToWith(in, 0, wire.Deliver).Frame()).Is(t, "dt", rig.XDPPass, in.Delivered(), "deliver")
		rig.Established(t, opening, opening.Seq)
		r.Send(t, rig.ToWith(in, generation, wire.AckStickiness).Frame()).Is(t, "as, the kernel's", rig.XDPPass, in.Delivered(), "steered")
		r.Send(t, rig.ToWith(in, 0, wire.RecoverStickiness).Frame()).Is(t, "rs, the kernel's", rig.XDPPass, in.Delivered(), "recovered")
		if _, known := r.Conn(t, opening.Flow()); known {
			t.Error("a message about a flow made an entry")
		}
		p := opening
		p.Flags = wire.ACK
		r.Send(t, rig.To(p, generation, wire.AckStickiness).Frame()).Is(t, "its data", rig.XDPPass, rig.Delivered(p), "steered_adopted")
		before := r.MustConn(t, opening)
		r.Send(t, rig.ToWith(in, generation, wire.AckStickiness).Frame()).Is(t, "as, known", rig.XDPPass, in.Delivered(), "steered")
		if after := r.MustConn(t, opening); after != before {
			t.Errorf("a message about a flow made of %+v %+v", before, after)
		}
	}
}

// testOutWires: an answer's signal travels as its service wants it.
func testOutWires(t *testing.T, seen rig.Hits) {
	r := rig.NewAgent(t, seen, rig.Offering(rig.HuntPort, rig.ByTable, rig.Inserts),
		rig.Offering(rig.HuntPort, rig.ByTable, func(o *topo.Offering) { o.VIP.Addr = rig.Vip4 }))
	opening := rig.Inward(rig.HuntPort, wire.SYN)
	generation := wire.Generation(opening.Seq)
	r.Send(t, rig.To(opening, generation, wire.ConnectForce).Inserted().Frame()).Is(t, "offer", rig.XDPPass, rig.Delivered(opening), "accept_force")
	p := rig.Outward(rig.HuntPort, wire.SYN|wire.ACK)
	p.Class, p.Payload = 0xb9, []byte("data")
	answerOut(r, t, p, 0).Is(t, "inserted", tcUnspec, signalInserted(p, rig.SID(rig.LbLocator, wire.CreateStickiness, generation), wire.Untagged(rig.ServerLocator(rig.Here), p.Reversed())), "signal_create")
	long := p
	long.Payload = make([]byte, rig.MTU-60-56+1)
	answerOut(r, t, long, 0).Is(t, "no room", tcUnspec, long.Frame(), "signal_deferred")
	long.Payload = long.Payload[1:]
	answerOut(r, t, long, 0).Is(t, "just room", tcUnspec, signalInserted(long, rig.SID(rig.LbLocator, wire.CreateStickiness, generation), wire.Untagged(rig.ServerLocator(rig.Here), p.Reversed())), "signal_create")
	q := rig.Inward(rig.HuntPort, wire.ACK)
	q.Seq++
	r.Send(t, rig.To(q, generation, wire.AckStickiness).Inserted().Frame())
	p.Flags = wire.FIN | wire.ACK
	answerOut(r, t, p, 0).Is(t, "removal", tcUnspec, signalInserted(p, rig.WithFlags(rig.SID(rig.LbLocator, wire.RemoveStickiness, generation), wire.ServerClosed), wire.Untagged(rig.ServerLocator(rig.Here), p.Reversed())), "signal_remove")

	opening = rig.OverIPv4(opening)
	r.Accept(t, opening)
	p = rig.OverIPv4(p)
	p.Flags = wire.SYN | wire.ACK
	in := rig.InnerTCP(p)
	r.Out.Ctx = nil
	r.Out.Send(t, in.Frame(rig.RouterMAC, rig.HereMAC)).Is(t, "IPv4", tcUnspec,
		wrappedIn(in, p.Reversed(), rig.HopMAC(0xb), rig.HereMAC, rig.SID(rig.LbLocator, wire.CreateStickiness, generation)), "signal_create")
}

// signalInserted is the frame that must leave for the LB with p inside its own segments.
func signalInserted(p rig.Packet, to, from netip.Addr) []byte {
	return wire.Frame(rig.HopMAC(0xb), p.From, wire.Route{From: from, Segments: []netip.Addr{to}}.Insert(p.Ip()))
}
