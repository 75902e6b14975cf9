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

// testSteered: the LB's acknowledgement ends the signalling of its own
// generation; every packet is delivered, whatever the agent knows.
func testSteered(t *testing.T, seen hits) {
	r := newAgentRig(t, seen, offering(huntPort))
	listen(t, huntPort, 128)
	opening, p := inward(huntPort, syn), inward(huntPort, ack)
	p.seq++
	generation := policy.Generation(opening.seq)
	r.accept(t, opening)
	r.send(t, to(p, generation+1, 0xa5).frame()).is(t, "another generation", xdpPass, delivered(p), "steered_other_generation")
	if c := r.mustConn(t, opening); c.State != connWait || c.Flags != connPending {
		t.Errorf("another generation changed the entry: %+v", c)
	}
	r.send(t, to(p, generation, 0xa5).frame()).is(t, "the first", xdpPass, delivered(p), "acknowledged", "steered")
	if c := r.mustConn(t, opening); c.State != connDirect || c.Flags != 0 {
		t.Errorf("acknowledged, but %+v", c)
	}
	r.send(t, to(p, generation, 0xa5).frame()).is(t, "the second", xdpPass, delivered(p), "steered")
	p.src = netip.AddrPortFrom(clientAddr, 1)
	r.send(t, to(p, generation, 0xa5).frame()).is(t, "unknown", xdpPass, delivered(p), "steered_unknown")
	if _, known := r.conn(t, p.flow()); known {
		t.Error("an unknown flow has an entry")
	}
}

// testAdopted: what the kernel has and the agent forgot becomes known again.
func testAdopted(t *testing.T, seen hits) {
	r := newAgentRig(t, seen, offering(huntPort))
	p := inward(huntPort, ack)
	established(t, p, clientISN)
	listen(t, huntPort, 128)
	r.send(t, to(p, policy.Generation(clientISN), 0xa5).frame()).is(t, "steered", xdpPass, delivered(p), "steered_adopted")
	if c := r.mustConn(t, p); c.State != connDirect || c.Generation != policy.Generation(clientISN) || c.LbBe != locatorBits(lbLocator) {
		t.Errorf("adopted as %+v", c)
	}
}

// TestAdoptOtherGeneration: a signal for another generation changes nothing
// (FAILURES.md, principle 2): what is adopted is the kernel's connection.
func TestAdoptOtherGeneration(t *testing.T) {
	r := newAgentRig(t, hits{}, offering(huntPort))
	p := inward(huntPort, ack)
	established(t, p, clientISN)
	stale := policy.Generation(clientISN) + 1
	r.send(t, to(p, stale, 0xa5).frame())
	if c, known := r.conn(t, p.flow()); known && c.Generation == stale {
		t.Errorf("adopted the connection of generation %d as one of generation %d", policy.Generation(clientISN), stale)
	}
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
	r.send(t, to(p, generation, 0xa5).frame()).is(t, "as for another's SYN-ACK", xdpPass, delivered(p), "steered_unknown")
	p.ack = theirs
	question.p = p
	r.send(t, question.frame()).is(t, "rs for ours", xdpPass, delivered(p), "recovered")
	if c := r.mustConn(t, p); c.Generation != generation || c.State != connWait {
		t.Errorf("recovered as %+v, want generation %d", c, generation)
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
		{"not arrived", nil, embryonic},
		{"not arrived, answered", []func(*testing.T, *agentRig){out(syn | ack)}, embryonic},
		{"arrived", []func(*testing.T, *agentRig){in(ack, "")}, idle},
		{"asking", []func(*testing.T, *agentRig){in(ack, "GET")}, idle},
		{"client closed", []func(*testing.T, *agentRig){in(fin|ack, "")}, idle},
		{"server closed", []func(*testing.T, *agentRig){in(ack, ""), out(fin | ack)}, idle},
		{"both closed", []func(*testing.T, *agentRig){in(fin|ack, ""), out(fin | ack)}, linger},
		{"reset by the server", []func(*testing.T, *agentRig){in(ack, ""), out(rst)}, linger},
	} {
		t.Run(c.what, func(t *testing.T) {
			r := newAgentRig(t, seen, offering(huntPort))
			listen(t, huntPort, 128)
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
}

// testDeliver: dt asks no question.
func testDeliver(t *testing.T, seen hits) {
	r := newAgentRig(t, seen, offering(huntPort))
	for flags := range byte(64) {
		p := inward(huntPort, flags)
		p.payload = []byte("data")
		r.send(t, to(p, 0, 0xd7).frame()).is(t, fmt.Sprintf("flags %#02x", flags), xdpPass, delivered(p), "deliver")
	}
	if _, known := r.conn(t, inward(huntPort, syn).flow()); known {
		t.Error("a delivered flow has an entry")
	}
}
