package dataplane

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proffer/policy"
)

var otherLB = netip.MustParsePrefix("fd00:0:0:c::/64")

// testSteered: the client's first packet, once the kernel owns the flow, moves it
// to the established ones, and ends the signalling of its own generation.
func testSteered(t *testing.T, seen hits) {
	r := newAgentRig(t, seen, offering(huntPort))
	l := listen(t, huntPort, 128)
	opening, p := inward(huntPort, syn), inward(huntPort, ack)
	p.seq++
	generation := policy.Generation(opening.seq)
	r.accept(t, opening)
	r.send(t, to(p, generation, 0xa5).frame()).is(t, "not the kernel's", xdpPass, delivered(p), "steered_embryonic")
	other := to(p, generation+1, 0xa5)
	r.send(t, other.frame()).is(t, "not the kernel's, another generation", xdpTX, other.returned(), "give_back_not_mine")
	if c := r.mustConn(t, opening); c.State != connWait || c.Flags != connPending {
		t.Errorf("what the kernel does not own changed the entry: %+v", c)
	}
	reset(t, l)
	established(t, opening, opening.seq)
	abort := p
	abort.flags, abort.seq = rst, p.seq+99
	r.send(t, to(abort, generation, 0xa5).frame()).is(t, "a RST proves nothing", xdpPass, delivered(abort), "acknowledged", "steered")
	if _, known := r.settled(t, p.flow()); known {
		t.Error("a RST established a flow")
	}
	r.send(t, to(p, generation, 0xa5).frame()).is(t, "the first", xdpPass, delivered(p), "established", "steered")
	if c, known := r.settled(t, p.flow()); !known || c.State != connDirect || c.Flags != 0 {
		t.Errorf("acknowledged, but %v, %+v", known, c)
	}
	r.send(t, to(p, generation, 0xa5).frame()).is(t, "the second", xdpPass, delivered(p), "steered")
}

// testNotMine: what is steered here by mistake goes back, whatever it came in;
// our stack would reset a flow that lives elsewhere.
func testNotMine(t *testing.T, seen hits) {
	r := newAgentRig(t, seen, offering(huntPort))
	listen(t, huntPort, 128)
	for _, flags := range []byte{ack, fin | ack, rst, syn | ack} {
		p := inward(huntPort, flags)
		p.class, p.payload = 0xb9, []byte("data")
		s := to(p, 77, 0xa5)
		s.class = 0xbb // congestion on the way here
		back := s
		p.class = 0xbb
		back.in = innerTCP(p)
		r.send(t, s.frame()).is(t, fmt.Sprintf("flags %#02x", flags), xdpTX, back.returned(), "give_back_not_mine")
		r.send(t, to(p, 77, 0xa5).inserted().frame()).is(t, "inserted", xdpTX, to(p, 77, 0xa5).returned(), "give_back_not_mine")
	}
	opening := inward(huntPort, syn)
	r.accept(t, opening)
	r.at(t, start+61*time.Second)
	opening.flags = ack
	s := to(opening, policy.Generation(opening.seq), 0xa5)
	r.send(t, s.frame()).is(t, "of an opening long ago", xdpTX, s.returned(), "give_back_not_mine")
	if _, known := r.settled(t, opening.flow()); known {
		t.Error("an unknown flow has an entry")
	}
}

// testStale: an entry is believed for a second, and while nobody closes; then the
// kernel is asked whether there is still such a connection.
func testStale(t *testing.T, seen hits) {
	r := newAgentRig(t, seen, offering(huntPort))
	opening := inward(huntPort, syn)
	fd := r.begin(t, opening)
	r.acknowledge(t, opening)
	generation := policy.Generation(opening.seq)
	p := opening
	p.flags, p.seq = ack, opening.seq+1
	s := to(p, generation, 0xa5)
	r.at(t, start+time.Minute)
	r.send(t, s.frame()).is(t, "there after a minute", xdpPass, delivered(p), "steered")
	reset(t, fd)
	r.at(t, start+time.Minute+time.Second-1)
	r.send(t, s.frame()).is(t, "gone, but lately seen", xdpPass, delivered(p), "steered")
	r.at(t, start+time.Minute+2*time.Second)
	r.send(t, s.frame()).is(t, "gone", xdpTX, s.returned(), "give_back_not_mine")

	opening.src = netip.AddrPortFrom(clientAddr, clientPort+1)
	fd = r.begin(t, opening)
	r.acknowledge(t, opening)
	p.src, p.flags = opening.src, fin|ack
	r.send(t, to(p, generation, 0xa5).frame()).is(t, "FIN", xdpPass, delivered(p), "steered")
	p.flags = ack
	s = to(p, generation, 0xa5)
	r.send(t, s.frame()).is(t, "closing", xdpPass, delivered(p), "steered")
	reset(t, fd)
	r.send(t, s.frame()).is(t, "closed", xdpTX, s.returned(), "give_back_not_mine")
}

// testAdopted: what the kernel has and the agent forgot becomes known again, as
// the kernel's connection: an LB that speaks of another one is told.
func testAdopted(t *testing.T, seen hits) {
	r := newAgentRig(t, seen, offering(huntPort))
	p := inward(huntPort, ack)
	established(t, p, clientISN)
	generation := policy.Generation(clientISN)
	for what, c := range map[string]struct {
		named uint16
		state uint16
	}{"same": {generation, connDirect}, "another": {generation + 1, connWait}} {
		r.send(t, to(p, c.named, 0xa5).frame()).is(t, what, xdpPass, delivered(p), "steered_adopted")
		if got := r.mustConn(t, p); got.State != c.state || got.Generation != generation || got.LbBe != locatorBits(lbLocator) {
			t.Errorf("%s: adopted as %+v", what, got)
		}
		r.forget(t, p)
	}
	p.flags = rst
	p.seq += 99
	r.send(t, to(p, generation, 0xa5).frame()).is(t, "by a RST", xdpPass, delivered(p), "steered")
	if _, known := r.conn(t, p.flow()); known {
		t.Error("a RST made an entry")
	}
}

// forget empties the agent's table of a flow.
func (r *agentRig) forget(t *testing.T, p packet) {
	t.Helper()
	connsOf(t, r.Agent).put(t, p.flow(), connEntry{})
}

// testOtherGeneration: the kernel says whose it is, and the LB that errs is told
// with the next answer.
func testOtherGeneration(t *testing.T, seen hits) {
	r := newAgentRig(t, seen, offering(huntPort))
	opening := inward(huntPort, syn)
	r.begin(t, opening)
	generation := policy.Generation(opening.seq)
	p := opening
	p.flags, p.seq = ack, opening.seq+1
	s := to(p, generation+1, 0xa5)
	s.lb = otherLB
	for _, why := range [][]string{{"established", "steered_other_generation"}, {"steered_other_generation"}} {
		r.send(t, s.frame()).is(t, "another generation", xdpPass, delivered(p), why...)
		if c, known := r.settled(t, p.flow()); !known || c.State != connWait || c.LbBe != locatorBits(otherLB) || c.Generation != generation {
			t.Errorf("known %v, %+v", known, c)
		}
	}
	r.send(t, to(p, generation, 0xa5).frame()).is(t, "told", xdpPass, delivered(p), "acknowledged", "steered")
}

// testRecovered: the owner signals again, to the LB that asked; others pass the
// question on, and the last one's stack answers.
func testRecovered(t *testing.T, seen hits) {
	r := newAgentRig(t, seen, offering(huntPort))
	p := inward(huntPort, ack)
	fd := established(t, p, clientISN)
	l := listen(t, huntPort, 128)
	question := to(p, 0, 0xe5, 0xe5)
	r.send(t, question.frame()).is(t, "mine, forgotten", xdpPass, delivered(p), "recovered")
	want := agentConn{
		SeenNs: uint64(start), LbBe: locatorBits(lbLocator), NextIn: p.seq,
		Generation: policy.Generation(clientISN), State: connWait,
	}
	if c := r.mustConn(t, p); c != want {
		t.Errorf("entry %+v, want %+v", c, want)
	}
	r.send(t, to(p, want.Generation, 0xa5).frame()).is(t, "acknowledged", xdpPass, delivered(p), "acknowledged", "steered")
	question.lb = otherLB
	for _, state := range []string{"DIRECT", "WAIT for another"} {
		r.send(t, question.frame()).is(t, state, xdpPass, delivered(p), "recovered")
		if c := r.mustConn(t, p); c.State != connWait || c.LbBe != locatorBits(otherLB) || c.Generation != want.Generation {
			t.Errorf("%s: %+v", state, c)
		}
	}
	unix.Close(fd)

	stranger := p
	stranger.src = netip.AddrPortFrom(clientAddr, 1)
	ask := to(stranger, 0, 0xe5, 0xe5)
	r.send(t, ask.frame()).is(t, "not mine", xdpTX, ask.onward(hopMAC(2)), "pass_on_not_mine")
	ask = to(stranger, 0, 0xe5)
	r.send(t, ask.frame()).is(t, "nobody's", xdpPass, delivered(stranger), "unowned")
	if _, known := r.conn(t, stranger.flow()); known {
		t.Error("nobody's flow has an entry")
	}
	testRecoveredLate(t, r, l)
}

// testRecoveredLate: the generation is that of the client's first number still
// after megabytes, because the socket counts what it received.
func testRecoveredLate(t *testing.T, r *agentRig, l int) {
	const sent = 3000
	p := inward(huntPort, ack)
	p.src = netip.AddrPortFrom(clientAddr, 2)
	client := dial(t, p.src.Port(), huntPort)
	server, _, err := unix.Accept(l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(server) })
	if _, err := unix.Write(client, make([]byte, sent)); err != nil {
		t.Fatal(err)
	}
	for got := 0; got < sent; {
		n, err := unix.Read(server, make([]byte, sent))
		if err != nil || n == 0 {
			t.Fatalf("read: %d, %v", n, err)
		}
		got += n
	}
	isn := sentUntil(t, client) - 1 - sent
	r.send(t, to(p, 0, 0xe5).frame()).is(t, "after some data", xdpPass, delivered(p), "recovered")
	if c := r.mustConn(t, p); c.Generation != policy.Generation(isn) {
		t.Errorf("generation %d, want %d", c.Generation, policy.Generation(isn))
	}
}

// sentUntil returns the next sequence number that a socket will send.
func sentUntil(t *testing.T, fd int) uint32 {
	t.Helper()
	for _, o := range []struct{ name, value int }{{unix.TCP_REPAIR, 1}, {unix.TCP_REPAIR_QUEUE, 2}} {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, o.name, o.value); err != nil {
			t.Fatal(err)
		}
	}
	seq, err := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_QUEUE_SEQ)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(seq)
}

// testRequestSocket: half a connection is mine only if the packet acknowledges
// the number that this server's own SYN-ACK had.
func testRequestSocket(t *testing.T, seen hits) {
	r := newAgentRig(t, seen, offering(huntPort))
	listen(t, huntPort, 128)
	p := inward(huntPort, syn)
	p.src = netip.MustParseAddrPort("[2001:db8:c::9]:40000")
	theirs := request(t, p) + 1
	p.flags, p.seq = ack, p.seq+1
	generation := policy.Generation(p.seq - 1)

	p.ack = theirs + 1
	question := to(p, 0, 0xe5, 0xe5)
	r.send(t, question.frame()).is(t, "rs for another's SYN-ACK", xdpTX, question.onward(hopMAC(2)), "pass_on_not_mine")
	steered := to(p, generation, 0xa5)
	r.send(t, steered.frame()).is(t, "as for another's SYN-ACK", xdpTX, steered.returned(), "give_back_not_mine")
	opening := p
	opening.flags, opening.seq = syn, p.seq-1
	r.accept(t, opening)
	r.send(t, steered.frame()).is(t, "the same, of an offer we took", xdpPass, delivered(p), "steered_embryonic")
	p.ack = theirs
	question = to(p, 0, 0xe5, 0xe5)
	r.send(t, question.frame()).is(t, "rs for ours", xdpPass, delivered(p), "established", "recovered")
	if c, known := r.settled(t, p.flow()); !known || c.Generation != generation || c.State != connWait {
		t.Errorf("recovered as %v, %+v, want generation %d", known, c, generation)
	}
}

// testSweepConns: an entry goes when its time has run out, not before, and
// takes its load with it.
func testSweepConns(t *testing.T, seen hits) {
	const idle, linger = 5 * time.Minute, 10 * time.Second
	generation := policy.Generation(clientISN)
	in := func(flags byte, payload string) func(*testing.T, *agentRig) {
		return func(t *testing.T, r *agentRig) {
			p := inward(huntPort, flags)
			p.seq, p.payload = clientISN+1, []byte(payload)
			r.send(t, to(p, generation, 0xa5).frame())
		}
	}
	out := func(flags byte) func(*testing.T, *agentRig) {
		return func(t *testing.T, r *agentRig) { r.answer(t, outward(huntPort, flags), 0) }
	}
	for _, c := range []struct {
		what  string
		steps []func(*testing.T, *agentRig)
		age   time.Duration
	}{
		{"arrived", []func(*testing.T, *agentRig){in(ack, "")}, idle},
		{"asking", []func(*testing.T, *agentRig){in(ack, "GET")}, idle},
		{"client closed", []func(*testing.T, *agentRig){in(fin|ack, "")}, idle},
		{"server closed", []func(*testing.T, *agentRig){in(ack, ""), out(fin | ack)}, idle},
		{"both closed", []func(*testing.T, *agentRig){in(fin|ack, ""), out(fin | ack)}, linger},
		{"reset by the server", []func(*testing.T, *agentRig){in(ack, ""), out(rst)}, linger},
	} {
		t.Run(c.what, func(t *testing.T) {
			r := newAgentRig(t, seen, offering(huntPort, byTable))
			r.accept(t, inward(huntPort, syn))
			for _, step := range c.steps {
				step(t, r)
			}
			for _, s := range []struct {
				after time.Duration
				want  Swept
			}{{-time.Second, Swept{Kept: 1}}, {c.age, Swept{Kept: 1}}, {c.age + 1, Swept{Removed: 1}}, {c.age + 2, Swept{}}} {
				got, err := r.sweepAt(start + s.after)
				if err != nil || got != s.want {
					t.Errorf("after %v: %+v, %v, want %+v", s.after, got, err, s.want)
				}
			}
			if n := r.asking(t); n != 0 {
				t.Errorf("%d requests in progress of no connection", n)
			}
		})
	}
	t.Run("not arrived", func(t *testing.T) { // removed uncounted after a minute, or else too old to be looked at
		r := newAgentRig(t, seen, offering(huntPort, byTable))
		opening := inward(huntPort, syn)
		r.accept(t, opening)
		if got, err := r.sweepAt(start + time.Minute); err != nil || got != (Swept{}) {
			t.Errorf("%+v, %v", got, err)
		}
		r.at(t, start+time.Minute)
		r.answer(t, outward(huntPort, syn|ack), 0).is(t, "a minute later", tcUnspec, nil, "signal_create")
		r.at(t, start+2*time.Minute+1)
		r.answer(t, outward(huntPort, syn|ack), 0).is(t, "another minute later", tcUnspec, nil, "out_no_flow")
		if _, known := r.conn(t, opening.flow()); !known {
			t.Error("something else than the sweep removed it")
		}
		if got, err := r.sweepAt(start + 2*time.Minute + 1); err != nil || got != (Swept{}) {
			t.Errorf("%+v, %v", got, err)
		}
		if _, known := r.conn(t, opening.flow()); known {
			t.Error("the sweep left it")
		}
	})
}

// testDeliver: dt asks no question, not even for the hops that are left, as this
// is where the packet was sent (RFC 8200 §3); a fragment comes by its addresses.
func testDeliver(t *testing.T, seen hits) {
	r := newAgentRig(t, seen, offering(huntPort))
	for flags := range byte(64) {
		p := inward(huntPort, flags)
		p.payload = []byte("data")
		r.send(t, to(p, 0, 0xd7).frame()).is(t, fmt.Sprintf("flags %#02x", flags), xdpPass, delivered(p), "deliver")
	}
	p := inward(huntPort, ack)
	p.hop = 0
	r.send(t, to(p, 0, 0xd7).frame()).is(t, "no hop left", xdpPass, delivered(p), "deliver")
	other := inward(8080, ack)
	r.send(t, to(other, 0, 0xd7).frame()).is(t, "another port of the VIP", xdpDrop, nil, "drop_not_our_service")
	rest := innerTCP(p)
	rest.ip = ipOf(p, 44, []byte{6, 0, 1, 0x80, 0, 0, 0, 7, 1, 2, 3, 4, 5, 6, 7, 8}) // RFC 8200 §4.5
	want := to(p, 0, 0xd7)
	want.in = rest
	r.send(t, want.frame()).is(t, "fragment", xdpPass, rest.delivered(), "deliver")
	stray := p
	stray.dst = netip.AddrPortFrom(clientAddr, huntPort)
	want.in.ip = ipOf(stray, 44, rest.ip[40:])
	r.send(t, want.frame()).is(t, "fragment for another address", xdpDrop, nil, "drop_not_our_service")
	if _, known := r.conn(t, inward(huntPort, syn).flow()); known {
		t.Error("a delivered flow has an entry")
	}
}
