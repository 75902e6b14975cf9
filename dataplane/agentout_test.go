package dataplane

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"proffer/policy"
	"proffer/topo"
)

const tcUnspec = 0xffffffff // TC_ACT_UNSPEC: the last word is another filter's

// answer passes a packet of the stack, of so many GSO segments, through the
// program on the way out.
func (r *agentRig) answer(t testing.TB, p packet, segments uint32) outcome {
	t.Helper()
	r.out.ctx = skBuff{Segments: segments}
	return r.out.send(t, p.frame())
}

// signalled is what must leave for the LB around p.
func signalled(p packet, function byte, generation uint16) []byte {
	return wrappedIn(innerTCP(p), p.reversed(), hopMAC(0xb), p.from, sid(lbLocator, function, generation))
}

// wrappedIn is what must leave around an answer of flow f.
func wrappedIn(in inner, f policy.Flow, hop, from topo.MAC, to netip.Addr) []byte {
	f.Protocol = in.flow.Protocol
	in.flow = f
	return ethernet(hop, from, encapsulated(own(serverLocator(here)), in, in.class, 64, []netip.Addr{to}))
}

// testOut: what each answer of the service says to the LB.
func testOut(t *testing.T, seen hits) {
	r := newAgentRig(t, seen, offering(huntPort, byTable))
	generation := policy.Generation(clientISN)
	p := outward(huntPort, syn|ack)
	p.class = 0xb9
	r.answer(t, p, 0).is(t, "no flow", tcUnspec, p.frame(), "out_no_flow")
	r.accept(t, inward(huntPort, syn))
	for range 2 {
		r.answer(t, p, 0).is(t, "before the LB knows", tcUnspec, signalled(p, create, generation), "signal_create")
	}
	p.flags = ack
	r.answer(t, p, 0).is(t, "a word of an older connection, perhaps", tcUnspec, p.frame(), "out_direct")
	r.send(t, to(inward(huntPort, ack), 0, 0xe5).frame())
	r.answer(t, p, 0).is(t, "before the LB knows again", tcUnspec, signalled(p, create, generation), "signal_create")
	p.flags = fin | ack
	r.answer(t, p, 0).is(t, "FIN before the LB knows", tcUnspec, signalled(p, create, generation), "signal_create")
	r.send(t, to(inward(huntPort, ack), generation, 0xa5).frame())
	p.flags = ack
	r.answer(t, p, 0).is(t, "the removal it still owes", tcUnspec, signalled(p, remove, generation), "signal_remove")
	r.answer(t, p, 0).is(t, "nothing to say", tcUnspec, p.frame(), "out_direct")
	for _, flags := range []byte{fin | ack, fin | ack | psh, rst, rst | ack} {
		p.seq += 100
		p.flags, p.payload = flags, []byte("last words")
		r.answer(t, p, 0).is(t, fmt.Sprintf("flags %#02x", flags), tcUnspec, signalled(p, remove, generation), "signal_remove")
	}
	p.flags = fin | ack
	p.seq += 100
	r.answer(t, p, 0).is(t, "FIN", tcUnspec, signalled(p, remove, generation), "signal_remove")
	r.answer(t, p, 0).is(t, "FIN again", tcUnspec, p.frame(), "out_direct")
	p.seq += 100
	r.answer(t, p, 0).is(t, "another", tcUnspec, signalled(p, remove, generation), "signal_remove")
	testOutNotOurs(t, r)
}

// testSaidAgain: what the server says again goes straight to the client, since
// the LB that it was said through may be dead; what is new signals.
func testSaidAgain(t *testing.T, seen hits) {
	r := newAgentRig(t, seen, offering(huntPort, byTable))
	generation := policy.Generation(clientISN)
	r.accept(t, inward(huntPort, syn))
	r.send(t, to(inward(huntPort, ack), 0, 0xe5).frame())
	p := outward(huntPort, ack|psh)
	p.payload = []byte("an answer")
	r.answer(t, p, 0).is(t, "once", tcUnspec, signalled(p, create, generation), "signal_create")
	r.answer(t, p, 0).is(t, "again", tcUnspec, p.frame(), "out_direct")
	more := p
	more.payload = []byte("an answer and more of it")
	r.answer(t, more, 0).is(t, "again, and more", tcUnspec, signalled(more, create, generation), "signal_create")
	r.answer(t, p, 0).is(t, "the first part again", tcUnspec, p.frame(), "out_direct")
	p.payload, p.flags = nil, ack
	r.answer(t, p, 0).is(t, "no words", tcUnspec, signalled(p, create, generation), "signal_create")
}

func testOutNotOurs(t *testing.T, r *agentRig) {
	p := outward(huntPort, ack).frame()
	arp := make([]byte, 42)
	arp[12], arp[13] = 8, 6
	for what, frame := range map[string][]byte{
		"ARP":                     arp,
		"a VLAN tag":              slices.Concat(p[:12], []byte{0x81, 0, 0x45, 0x05}, p[12:]),
		"UDP, which it is not":    altered(p, atNext, 17),
		"another port":            outward(8080, ack).frame(),
		"a connection of our own": inward(huntPort, ack).frame(),
		"TCP cut short":           p[:atUpper+19],
		"ICMPv6 echo":             ethernet(hereMAC, routerMAC, ipOf(outward(huntPort, 0), 58, []byte{128, 0, 0, 0, 0, 1, 0, 1})),
		"ICMPv6 too big":          innerTooBig(inner{}, inward(huntPort, 0)).frame(hereMAC, routerMAC),
	} {
		r.out.ctx = nil
		r.out.send(t, frame).is(t, what, tcUnspec, frame, "out_not_ours")
	}
}

// testDeferred: a packet that has no room for a signal, or is many, goes
// without; the next small one signals.
func testDeferred(t *testing.T, seen hits) {
	r := newAgentRig(t, seen, offering(huntPort, byTable))
	generation := policy.Generation(clientISN)
	r.accept(t, inward(huntPort, syn))
	r.send(t, to(inward(huntPort, ack), 0, 0xe5).frame())
	small := outward(huntPort, ack)
	large := outward(huntPort, ack|psh)
	large.payload = make([]byte, mtu-40-60+1)
	r.answer(t, large, 0).is(t, "no room to create", tcUnspec, large.frame(), "signal_deferred")
	large.seq += 2000
	r.answer(t, small, 2).is(t, "two segments", tcUnspec, small.frame(), "signal_deferred")
	r.answer(t, small, 1).is(t, "one segment", tcUnspec, signalled(small, create, generation), "signal_create")
	large.payload = large.payload[1:]
	r.answer(t, large, 0).is(t, "just room", tcUnspec, signalled(large, create, generation), "signal_create")

	r.send(t, to(inward(huntPort, ack), generation, 0xa5).frame())
	large.payload, large.flags, large.seq = append(large.payload, 0), fin|ack, large.seq+2000
	r.answer(t, large, 0).is(t, "no room to remove", tcUnspec, large.frame(), "signal_deferred")
	r.answer(t, small, 0).is(t, "the next small one", tcUnspec, signalled(small, remove, generation), "signal_remove")
	r.answer(t, small, 0).is(t, "and no other", tcUnspec, small.frame(), "out_direct")

	if err := r.SetNextHops(topo.NextHops{}); err != nil {
		t.Fatal(err)
	}
	small.flags, small.seq = fin|ack, large.seq+2000
	r.answer(t, small, 0).is(t, "no neighbour", tcUnspec, small.frame(), "signal_deferred")
	if addr, err := r.Unresolved(); err != nil || addr != sid(lbLocator, remove, generation) {
		t.Errorf("unresolved %v, %v", addr, err)
	}
}

// testAsking: a request is in progress from its first byte inward to the first
// byte outward, however often anything is sent again.
func testAsking(t *testing.T, seen hits) {
	r := newAgentRig(t, seen, offering(huntPort, byTable))
	opening := inward(huntPort, syn)
	opening.seq = 0xfffffff0 // the numbers wrap
	generation := policy.Generation(opening.seq)
	r.accept(t, opening)
	seq := opening.seq + 1
	in := func(at uint32, length int) func() {
		return func() {
			p := inward(huntPort, ack|psh)
			p.seq, p.payload = seq+at, make([]byte, length)
			r.send(t, to(p, generation, 0xa5).frame())
		}
	}
	out := func(flags byte, length int) func() {
		return func() {
			p := outward(huntPort, flags)
			p.payload = make([]byte, length)
			r.answer(t, p, 0)
		}
	}
	for _, c := range []struct {
		what string
		do   func()
		want uint32
	}{
		{"the handshake's end", in(0, 0), 0},
		{"a request", in(0, 100), 1},
		{"again", in(0, 100), 1},
		{"its acknowledgement", out(ack, 0), 1},
		{"more of it", in(100, 50), 1},
		{"a response", out(ack|psh, 1000), 0},
		{"more of that", out(ack|psh, 1000), 0},
		{"the request again, answered long ago", in(100, 50), 0},
		{"an empty packet", in(150, 0), 0},
		{"a keep-alive of one old byte", in(149, 1), 0},
		{"the next request, with old bytes before it", in(140, 20), 1},
		{"the server closes", out(fin|ack, 0), 0},
		{"one more request", in(160, 1), 1},
		{"the server resets", out(rst, 0), 0},
		{"nothing below zero", out(rst, 0), 0},
	} {
		c.do()
		if got := r.asking(t); got != c.want {
			t.Errorf("%s: %d requests in progress, want %d", c.what, got, c.want)
		}
	}
	in(161, 1)()
	again := opening
	again.seq++
	r.send(t, to(again, 1, 0xcf).frame()).is(t, "the ports' next connection", xdpPass, nil, "accept_force")
	if got := r.asking(t); got != 0 {
		t.Errorf("a new connection took over %d requests of the old", got)
	}
}

// testAskingReset: only a RST that the stack believes ends a request.
func testAskingReset(t *testing.T, seen hits) {
	r := newAgentRig(t, seen, offering(huntPort))
	p := inward(huntPort, syn)
	r.begin(t, p) // and the socket expects p.seq + 1
	send := func(flags byte, seq uint32, payload int) {
		q := inward(huntPort, flags)
		q.seq, q.payload = seq, make([]byte, payload)
		r.send(t, to(q, policy.Generation(p.seq), 0xa5).frame())
	}
	send(ack|psh, p.seq+1, 10)
	for _, c := range []struct {
		what string
		seq  uint32
		want uint32
	}{{"one before", p.seq, 1}, {"one after", p.seq + 2, 1}, {"far away", p.seq + 1<<31, 1}, {"exact", p.seq + 1, 0}} {
		send(rst, c.seq, 0)
		if got := r.asking(t); got != c.want {
			t.Errorf("RST %s: %d requests in progress, want %d", c.what, got, c.want)
		}
	}
}

// testCongestion: all combinations of RFC 6040, figure 4, on delivery.
func testCongestion(t *testing.T, seen hits) {
	r := newAgentRig(t, seen, offering(huntPort))
	for _, c := range congestion {
		p := inward(huntPort, ack)
		p.class = 0xb8 | c.inner
		s := to(p, 0, 0xd7)
		s.class = 0x28 | c.outer // of another DSCP, which stays outside (RFC 2983)
		what := fmt.Sprintf("inner %02b, outer %02b", c.inner, c.outer)
		if c.want == dropped {
			r.send(t, s.frame()).is(t, what, xdpDrop, nil, "drop_congested")
			continue
		}
		p.class = 0xb8 | c.want
		r.send(t, s.frame()).is(t, what, xdpPass, delivered(p), "deliver")
	}
}

// testAgentUntouched: whatever is for none of our SIDs is the kernel's.
func testAgentUntouched(t *testing.T, seen hits) {
	r := newAgentRig(t, seen, offering(huntPort))
	plain := inward(huntPort, syn).frame()
	toSelf := inward(huntPort, syn)
	toSelf.dst = netip.AddrPortFrom(own(serverLocator(here)), huntPort)
	elsewhere := to(inward(huntPort, syn), 1, 0xca, 0xcf)
	elsewhere.segments[0] = sid(serverLocator(9), 0xca, 1)
	for _, c := range []struct {
		what  string
		frame []byte
		why   string
	}{
		{"no more than a link header", plain[:14], "pass_not_ipv6"},
		{"VLAN tag", slices.Concat(plain[:12], []byte{0x81, 0, 0, 5}, plain[12:]), "pass_not_ipv6"},
		{"IPv4", altered(altered(plain, atEtherType, 8), atEtherType+1, 0), "pass_not_ipv6"},
		{"IPv6 header cut short", plain[:53], "pass_not_ipv6"},
		{"version 4", altered(plain, atVersion, 0x45), "pass_not_ipv6"},
		{"to the VIP itself", plain, "pass_not_sid"},
		{"another node's SID", elsewhere.frame(), "pass_not_sid"},
		{"own address", toSelf.frame(), "pass_own_address"},
	} {
		r.send(t, c.frame).is(t, c.what, xdpPass, c.frame, c.why)
	}
}

// testAgentMalformed: what is for our SIDs and cannot be understood.
func testAgentMalformed(t *testing.T, seen hits) {
	r := newAgentRig(t, seen, offering(huntPort))
	p := inward(huntPort, syn)
	good := to(p, 1, 0xca, 0xcf).frame()
	plain := to(p, 1, 0xca).frame()
	for cut := atUpper; cut < len(good); cut++ {
		r.send(t, good[:cut]).is(t, fmt.Sprintf("cut to %d bytes", cut), xdpDrop, nil, "drop_truncated")
		short := slices.Clone(good[:cut]) // cut, and the outer header knows it
		binary.BigEndian.PutUint16(short[atLength:], uint16(cut-atUpper))
		why := "drop_truncated"
		if cut < atUpper+8+16 {
			why = "drop_malformed_srh"
		}
		r.send(t, short).is(t, fmt.Sprintf("shortened to %d bytes", cut), xdpDrop, nil, why)
	}
	other, ackOnly := inward(8080, syn), inward(huntPort, ack)
	datagram := inward(huntPort, 0)
	datagram.payload = []byte("datagram")
	for _, c := range []struct {
		what  string
		frame []byte
		why   string
	}{
		{"no function of any node", to(p, 1, 0x77).frame(), "drop_unknown_function"},
		{"an LB's function", to(p, 1, create).frame(), "drop_unknown_function"},
		{"another service inside", to(other, 1, 0xca).frame(), "drop_not_our_service"},
		{"UDP inside", toWith(innerUDP(datagram), 1, 0xca).frame(), "drop_not_our_service"},
		{"no transport header we know", altered(plain, atUpper+6, 132), "drop_not_our_service"},
		{"fragment of an offer", altered(plain, atUpper+6, 44), "drop_not_our_service"},
		{"TCP for a SID", altered(plain, atNext, 6), "drop_nothing_inside"},
		{"IPv4 said, IPv6 there", altered(plain, atNext, 4), "drop_nothing_inside"},
		{"fragment for a SID", altered(plain, atNext, 44), "drop_nothing_inside"},
		{"data offset 4", altered(plain, atUpper+40+12, 4<<4), "drop_malformed_transport"},
		{"data offset 6 of 20 bytes", altered(plain, atUpper+40+12, 6<<4), "drop_malformed_transport"},
		{"offer without SYN", to(ackOnly, 1, 0xca).frame(), "drop_not_a_syn"},
		{"offer of a SYN-ACK", to(inward(huntPort, syn|ack), 1, 0xcf).frame(), "drop_not_a_syn"},
		{"version 4 inside", altered(plain, atUpper, 0x45), "drop_nothing_inside"},
		{"version 5 inside", altered(plain, atUpper, 0x55), "drop_truncated"},
		{"rj with a segment left", to(inward(huntPort, rst), 1, 0x4e, 0x4e).frame(), "drop_segments_left"},
		{"dt with a segment left", to(ackOnly, 0, 0xd7, 0xd7).frame(), "drop_segments_left"}, // RFC 8986 §4.6, S02
	} {
		r.send(t, c.frame).is(t, c.what, xdpDrop, nil, c.why)
	}
	for _, c := range badSRHs(sid(serverLocator(here), 0xca, 1)) {
		r.send(t, withSRH(plain, c.header)).is(t, c.what, xdpDrop, nil, "drop_malformed_srh")
	}
}
