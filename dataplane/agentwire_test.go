package dataplane

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proffer/policy"
	"proffer/topo"
)

const udpPort = 53

// udpOffering is a service of datagrams.
func udpOffering(change ...func(*topo.Offering)) topo.Offering {
	return offering(udpPort, append(change, func(o *topo.Offering) { o.VIP.Protocol = topo.UDP })...)
}

// listenUDP binds a socket to an address of either family.
func listenUDP(t testing.TB, at netip.AddrPort) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, sockaddr(at)); err != nil {
		t.Fatal(err)
	}
}

// testUDP: a flow of datagrams from its first offer to its answers. There is no
// handshake: an answer and what follows it are one.
func testUDP(t *testing.T, seen hits) {
	for _, four := range []bool{false, true} {
		t.Run(fmt.Sprint("IPv4 ", four), func(t *testing.T) { testUDPOf(t, seen, four) })
	}
}

func testUDPOf(t *testing.T, seen hits, four bool) {
	p := inward(udpPort, 0)
	p.payload = []byte("question")
	if four {
		p = overIPv4(p)
	}
	r := newAgentRig(t, seen, udpOffering(func(o *topo.Offering) { o.VIP.Addr = p.dst.Addr() }))
	in := innerUDP(p)
	offer := toWith(in, 0, 0xca, 0xcf)
	r.send(t, offer.frame()).is(t, "nobody there", xdpTX, offer.onward(hopMAC(2)), "pass_on_no_listener")
	last := toWith(in, 0, 0xcf)
	r.send(t, last.frame()).is(t, "nobody there, last", xdpTX, last.returned(), "give_back_no_listener")
	r.send(t, last.flagged(sidFinal).frame()).is(t, "nobody anywhere", xdpPass, in.delivered(), "refuse_no_listener")
	listenUDP(t, p.dst)

	lap := toWith(in, 0, 0xe5, 0xca)
	r.send(t, lap.frame()).is(t, "first lap: who has it?", xdpTX, lap.onward(hopMAC(2)), "pass_on_not_mine")
	r.send(t, offer.frame()).is(t, "second lap: who wants it?", xdpPass, in.delivered(), "accept_avail")
	c, _ := r.conn(t, in.flow)
	if c.State != connWait || c.Flags != connPending || c.Generation == 0 {
		t.Fatalf("accepted as %+v", c)
	}
	generation := c.Generation
	again := toWith(in, 0, 0xca, 0xcf)
	again.lb = otherLB
	r.send(t, again.frame()).is(t, "before an answer, by another LB", xdpPass, in.delivered(), "accept_repeated")
	if c, _ := r.conn(t, in.flow); c.LbBe != locatorBits(otherLB) || c.Generation != generation {
		t.Errorf("repeated, it is %+v", c)
	}
	again.segments[0] = sid(serverLocator(here), 0xe5, 0)
	r.send(t, again.frame()).is(t, "whose is it?", xdpPass, in.delivered(), "recovered")
	if _, known := r.settled(t, in.flow); known {
		t.Error("it is established without an answer")
	}

	r.answerUDP(t, p).is(t, "answer", tcUnspec, wrappedUDP(p, generation), "signal_create")
	r.send(t, toWith(in, generation, 0xa5).frame()).is(t, "more", xdpPass, in.delivered(), "established", "acknowledged", "steered")
	if got := r.asking(t); got != 1 {
		t.Errorf("%d requests in progress, want 1", got)
	}
	r.answerUDP(t, p).is(t, "its answer", tcUnspec, answerUDP(p).frame(routerMAC, hereMAC), "out_direct")
	if got := r.asking(t); got != 0 {
		t.Errorf("%d requests in progress after the answer", got)
	}
	again.segments[0] = sid(serverLocator(here), 0xca, 0)
	r.send(t, again.frame()).is(t, "another LB does not know", xdpPass, in.delivered(), "accept_repeated")
	if c, known := r.settled(t, in.flow); !known || c.State != connWait || c.LbBe != locatorBits(otherLB) {
		t.Errorf("then it is %v, %+v", known, c)
	}
	r.send(t, toWith(in, generation+1, 0xa5).frame()).is(t, "another generation", xdpPass, in.delivered(), "steered_other_generation")

	stranger := p
	stranger.src = netip.AddrPortFrom(p.src.Addr(), 1)
	s := toWith(innerUDP(stranger), generation, 0xa5)
	r.send(t, s.frame()).is(t, "not mine", xdpTX, s.returned(), "give_back_not_mine")
	r.send(t, toWith(innerUDP(stranger), 0, 0xe5).frame()).is(t, "nobody's", xdpDrop, nil, "drop_unowned")
	r.at(t, start+time.Second)
	r.send(t, toWith(innerUDP(stranger), 0, 0xcf).frame()).is(t, "taken later", xdpPass, innerUDP(stranger).delivered(), "accept_force")
	if c, _ := r.conn(t, innerUDP(stranger).flow); c.Generation == generation {
		t.Error("a later flow has the same generation")
	}
}

// answerUDP is the answer to p's datagram.
func answerUDP(p packet) inner {
	back := p
	back.src, back.dst, back.payload = p.dst, p.src, []byte("answer")
	return innerUDP(back)
}

func (r *agentRig) answerUDP(t testing.TB, p packet) outcome {
	t.Helper()
	r.out.ctx = nil
	return r.out.send(t, answerUDP(p).frame(routerMAC, hereMAC))
}

func wrappedUDP(p packet, generation uint16) []byte {
	return wrappedIn(answerUDP(p), p.flow(), hopMAC(0xc), hereMAC, sid(otherLB, create, generation))
}

// testIPv4: the same in the other family, from the offer to the refusal.
func testIPv4(t *testing.T, seen hits) {
	at4 := func(o *topo.Offering) { o.VIP.Addr = vip4 }
	r := newAgentRig(t, seen, offering(huntPort), offering(huntPort, at4))
	opening := overIPv4(inward(huntPort, syn))
	generation := policy.Generation(opening.seq)
	offer := to(opening, generation, 0xca, 0xcf)
	r.send(t, offer.frame()).is(t, "nobody there", xdpTX, offer.onward(hopMAC(2)), "pass_on_no_listener")
	l := listenAt(t, opening.dst, 1)
	r.accept(t, opening)
	p := opening
	p.flags, p.seq = ack, opening.seq+1
	r.send(t, to(p, generation, 0xa5).frame()).is(t, "not the kernel's", xdpPass, delivered(p), "steered_embryonic")
	reset(t, l)
	established(t, opening, opening.seq)
	r.acknowledge(t, opening)
	if c := r.mustConn(t, p); c.Offering != 1 {
		t.Errorf("it counts in load %d", c.Offering)
	}
	r.forget(t, p)
	r.send(t, to(p, 0, 0xe5, 0xe5).frame()).is(t, "forgotten", xdpPass, delivered(p), "recovered")
	if c := r.mustConn(t, p); c.Generation != generation || c.State != connWait {
		t.Errorf("recovered as %+v", c)
	}

	for _, c := range congestion { // which is in the header that has a checksum
		q := overIPv4(inward(huntPort, ack))
		q.class = 0xb8 | c.inner
		s := to(q, 0, 0xd7)
		s.class = c.outer
		if c.want == dropped {
			r.send(t, s.frame()).is(t, "congestion", xdpDrop, nil, "drop_congested")
			continue
		}
		q.class = 0xb8 | c.want
		r.send(t, s.frame()).is(t, "congestion", xdpPass, delivered(q), "deliver")
	}
	stranger := p
	stranger.src = netip.AddrPortFrom(client4, 1)
	s := to(stranger, 7, 0xa5)
	r.send(t, s.frame()).is(t, "not mine", xdpTX, s.returned(), "give_back_not_mine")
	r.send(t, altered(s.frame(), atUpper, 0x44)).is(t, "half a header", xdpDrop, nil, "drop_truncated")
	testRefused4(t, r, stranger)
}

// testRefused4: a full queue is answered in IPv4 too.
func testRefused4(t *testing.T, r *agentRig, p packet) {
	l := listenAt(t, p.dst, 1)
	for i := range 2 {
		fd := socket(t, netip.AddrPortFrom(client4, uint16(50000+i)))
		if err := unix.Connect(fd, sockaddr(p.dst)); err != nil {
			t.Fatal(err)
		}
	}
	queued(t, 2, l)
	p.flags, p.payload = syn, []byte("early")
	answer := packet{hop: 64, src: p.dst, dst: p.src, ack: p.seq + 1 + 5, flags: rst | ack}
	in := innerTCP(answer)
	clear(in.ip[20+14 : 20+18]) // window 0, and the checksum anew
	binary.BigEndian.PutUint16(in.ip[20+16:], checksum(p.dst.Addr(), p.src.Addr(), 6, in.ip[20:]))
	r.send(t, to(p, policy.Generation(p.seq), 0xcf).frame()).
		is(t, "full queue", xdpTX, in.frame(routerMAC, hereMAC), "refuse_full_reset")
}

// testInsert: the papers' wire. The packet's own header is the outer one, and its
// destination the last segment.
func testInsert(t *testing.T, seen hits) {
	r := newAgentRig(t, seen, offering(huntPort), udpOffering())
	listen(t, huntPort, 128)
	p := inward(huntPort, syn)
	p.class = 0xb9
	p.payload = []byte("early data")
	generation := policy.Generation(p.seq)
	offer := to(p, generation, 0xca, 0xcf).inserted()
	r.send(t, offer.frame()).is(t, "offer", xdpPass, delivered(p), "accept_avail")
	if c := r.mustConn(t, p); c.Flags != connPending|connInsert || c.LbBe != locatorBits(lbLocator) {
		t.Errorf("accepted as %+v", c)
	}
	r.setLoad(t, func(l *agentLoad) { l.Asking = 100 })
	p.seq++
	offer = to(p, policy.Generation(p.seq), 0xca, 0xcf).inserted()
	r.send(t, offer.frame()).is(t, "passed on", xdpTX, offer.onward(hopMAC(2)), "pass_on_busy")
	p.seq++
	last := to(p, policy.Generation(p.seq), 0xca).inserted()
	r.send(t, last.frame()).is(t, "the VIP is no candidate", xdpPass, delivered(p), "accept_force")
	r.send(t, to(p, 0, 0xd7).inserted().frame()).is(t, "dt", xdpPass, delivered(p), "deliver")
	tooFar := to(p, 0, 0xd7, 0xd7).inserted()
	r.send(t, tooFar.frame()).is(t, "dt with a segment left", xdpDrop, nil, "drop_segments_left")
	spent := to(p, generation, 0xd7).inserted().frame()
	stray := slices.Clone(spent)
	stray[atUpper+3] = 0 // no segment left: then our SID is the destination, and the VIP is not
	r.send(t, stray).is(t, "nothing left", xdpPass, delivered(p), "deliver")

	steered := p
	steered.flags = ack
	r.send(t, to(steered, policy.Generation(p.seq), 0xa5).inserted().frame()).is(t, "steered", xdpPass, delivered(steered), "steered_embryonic")
	datagram := innerUDP(inward(udpPort, 0))
	listenUDP(t, inward(udpPort, 0).dst)
	r.send(t, toWith(datagram, 0, 0xcf).inserted().frame()).is(t, "datagram", xdpPass, datagram.delivered(), "accept_force")
}

// testTooBig: an ICMP error about a flow's packet is a packet of the flow, and
// changes nothing.
func testTooBig(t *testing.T, seen hits) {
	for _, four := range []bool{false, true} {
		opening := inward(huntPort, syn)
		if four {
			opening = overIPv4(opening)
		}
		r := newAgentRig(t, seen, offering(huntPort, func(o *topo.Offering) { o.VIP.Addr = opening.dst.Addr() }))
		in := innerTooBig(innerTCP(opening), opening)
		generation := policy.Generation(opening.seq)
		s := toWith(in, generation, 0xa5)
		r.send(t, s.frame()).is(t, "as, nobody's", xdpTX, s.returned(), "give_back_not_mine")
		s = toWith(in, 0, 0xe5, 0xe5)
		r.send(t, s.frame()).is(t, "rs, not mine", xdpTX, s.onward(hopMAC(2)), "pass_on_not_mine")
		r.send(t, toWith(in, 0, 0xe5).frame()).is(t, "rs, nobody's", xdpDrop, nil, "drop_unowned")
		r.send(t, toWith(in, 0, 0xcf).frame()).is(t, "offer", xdpDrop, nil, "drop_not_a_syn")
		r.send(t, toWith(in, 0, 0xd7).frame()).is(t, "dt", xdpPass, in.delivered(), "deliver")
		established(t, opening, opening.seq)
		r.send(t, toWith(in, generation, 0xa5).frame()).is(t, "as, the kernel's", xdpPass, in.delivered(), "steered")
		r.send(t, toWith(in, 0, 0xe5).frame()).is(t, "rs, the kernel's", xdpPass, in.delivered(), "recovered")
		if _, known := r.conn(t, opening.flow()); known {
			t.Error("a message about a flow made an entry")
		}
		p := opening
		p.flags = ack
		r.send(t, to(p, generation, 0xa5).frame()).is(t, "its data", xdpPass, delivered(p), "steered_adopted")
		before := r.mustConn(t, opening)
		r.send(t, toWith(in, generation, 0xa5).frame()).is(t, "as, known", xdpPass, in.delivered(), "steered")
		if after := r.mustConn(t, opening); after != before {
			t.Errorf("a message about a flow made of %+v %+v", before, after)
		}
	}
}

// testOutWires: an answer's signal travels as the flow's packets came.
func testOutWires(t *testing.T, seen hits) {
	r := newAgentRig(t, seen, offering(huntPort, byTable),
		offering(huntPort, byTable, func(o *topo.Offering) { o.VIP.Addr = vip4 }))
	opening := inward(huntPort, syn)
	generation := policy.Generation(opening.seq)
	r.send(t, to(opening, generation, 0xcf).inserted().frame()).is(t, "offer", xdpPass, delivered(opening), "accept_force")
	p := outward(huntPort, syn|ack)
	p.class, p.payload = 0xb9, []byte("data")
	r.answer(t, p, 0).is(t, "inserted", tcUnspec, signalInserted(p, sid(lbLocator, create, generation), own(serverLocator(here))), "signal_create")
	long := p
	long.payload = make([]byte, mtu-60-56+1)
	r.answer(t, long, 0).is(t, "no room", tcUnspec, long.frame(), "signal_deferred")
	long.payload = long.payload[1:]
	r.answer(t, long, 0).is(t, "just room", tcUnspec, signalInserted(long, sid(lbLocator, create, generation), own(serverLocator(here))), "signal_create")
	q := inward(huntPort, ack)
	q.seq++
	r.send(t, to(q, generation, 0xa5).inserted().frame())
	p.flags = fin | ack
	r.answer(t, p, 0).is(t, "removal", tcUnspec, signalInserted(p, sid(lbLocator, remove, generation), own(serverLocator(here))), "signal_remove")
	r.send(t, to(q, 0, 0xe5).frame()).is(t, "an LB of the other wire", xdpPass, delivered(q), "recovered")
	p.seq += 100
	r.answer(t, p, 0).is(t, "encapsulated", tcUnspec, signalled(p, create, generation), "signal_create")

	opening = overIPv4(opening)
	r.accept(t, opening)
	p = overIPv4(p)
	p.flags = syn | ack
	in := innerTCP(p)
	r.out.ctx = nil
	r.out.send(t, in.frame(routerMAC, hereMAC)).is(t, "IPv4", tcUnspec,
		wrappedIn(in, p.reversed(), hopMAC(0xb), hereMAC, sid(lbLocator, create, generation)), "signal_create")
}

// signalInserted is what must leave for the LB with p inside its own segments.
func signalInserted(p packet, to, from netip.Addr) []byte {
	return ethernet(hopMAC(0xb), p.from, insertedInto(from, innerTCP(p), []netip.Addr{to}))
}
