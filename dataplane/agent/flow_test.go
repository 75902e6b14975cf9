package agent_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proffer/dataplane"
	"proffer/dataplane/objects"
	"proffer/proof/rig"
	"proffer/wire"
)

// testSteered: the client's first packet, once the kernel owns the flow, moves it
// to the established ones, and ends the signalling of its own generation.
func testSteered(t *testing.T, seen rig.Hits) {
	r := rig.NewAgent(t, seen, rig.Offering(rig.HuntPort))
	l := rig.Listen(t, rig.HuntPort, 128)
	opening, p := rig.Inward(rig.HuntPort, wire.SYN), rig.Inward(rig.HuntPort, wire.ACK)
	p.Seq++
	generation := wire.Generation(opening.Seq)
	r.Accept(t, opening)
	r.Send(t, rig.To(p, generation, wire.AckStickiness).Frame()).Is(t, "not the kernel's", rig.XDPPass, rig.Delivered(p), "steered_embryonic")
	other := rig.To(p, generation+1, wire.AckStickiness)
	r.Send(t, other.Frame()).Is(t, "not the kernel's, another generation", rig.XDPTX, other.Returned(), "give_back_not_mine")
	if c := r.MustConn(t, opening); c.State != objects.ConnWait || c.Flags != objects.ConnPending {
		t.Errorf("a packet of a flow that the kernel does not own changed the entry: %+v", c)
	}
	rig.Reset(t, l)
	rig.Established(t, opening, opening.Seq)
	abort := p
	abort.Flags, abort.Seq = wire.RST, p.Seq+99
	r.Send(t, rig.To(abort, generation, wire.AckStickiness).Frame()).Is(t, "a RST proves nothing", rig.XDPPass, rig.Delivered(abort), "acknowledged", "steered")
	if _, known := r.Settled(t, p.Flow()); known {
		t.Error("a RST established a flow")
	}
	r.Send(t, rig.To(p, generation, wire.AckStickiness).Frame()).Is(t, "the first", rig.XDPPass, rig.Delivered(p), "established", "steered")
	if c, known := r.Settled(t, p.Flow()); !known || c.State != objects.ConnDirect || c.Flags != 0 {
		t.Errorf("acknowledged, but %v, %+v", known, c)
	}
	r.Send(t, rig.To(p, generation, wire.AckStickiness).Frame()).Is(t, "the second", rig.XDPPass, rig.Delivered(p), "steered")
}

// testNotMine: a packet steered here by mistake goes back, on either wire;
// our stack would reset a flow that lives elsewhere.
func testNotMine(t *testing.T, seen rig.Hits) {
	r := rig.NewAgent(t, seen, rig.Offering(rig.HuntPort), rig.Offering(83, rig.Inserts))
	rig.Listen(t, rig.HuntPort, 128)
	for _, flags := range []byte{wire.ACK, wire.FIN | wire.ACK, wire.RST, wire.SYN | wire.ACK} {
		p := rig.Inward(rig.HuntPort, flags)
		p.Class, p.Payload = 0xb9, []byte("data")
		s := rig.To(p, 77, wire.AckStickiness)
		s.Class = 0xbb // congestion on the way here
		back := s
		p.Class = 0xbb
		back.In = rig.InnerTCP(p)
		r.Send(t, s.Frame()).Is(t, fmt.Sprintf("flags %#02x", flags), rig.XDPTX, back.Returned(), "give_back_not_mine")
		p.Dst = netip.AddrPortFrom(rig.VipAddr, 83)
		r.Send(t, rig.To(p, 77, wire.AckStickiness).Inserted().Frame()).Is(t, "inserted", rig.XDPTX, rig.To(p, 77, wire.AckStickiness).Returned(), "give_back_not_mine")
	}
	opening := rig.Inward(rig.HuntPort, wire.SYN)
	r.Accept(t, opening)
	r.At(t, rig.Start+61*time.Second)
	opening.Flags = wire.ACK
	s := rig.To(opening, wire.Generation(opening.Seq), wire.AckStickiness)
	r.Send(t, s.Frame()).Is(t, "of an opening long ago", rig.XDPTX, s.Returned(), "give_back_not_mine")
	if _, known := r.Settled(t, opening.Flow()); known {
		t.Error("an unknown flow has an entry")
	}
}

// testStale: an entry is believed for a second, and while neither side closes; then the
// kernel is asked whether there is still such a connection.
func testStale(t *testing.T, seen rig.Hits) {
	r := rig.NewAgent(t, seen, rig.Offering(rig.HuntPort))
	opening := rig.Inward(rig.HuntPort, wire.SYN)
	fd := r.Begin(t, opening)
	r.Acknowledge(t, opening)
	generation := wire.Generation(opening.Seq)
	p := opening
	p.Flags, p.Seq = wire.ACK, opening.Seq+1
	s := rig.To(p, generation, wire.AckStickiness)
	r.At(t, rig.Start+time.Minute)
	r.Send(t, s.Frame()).Is(t, "there after a minute", rig.XDPPass, rig.Delivered(p), "steered")
	rig.Reset(t, fd)
	r.At(t, rig.Start+time.Minute+time.Second-rig.ConnUnit)
	r.Send(t, s.Frame()).Is(t, "gone, but lately seen", rig.XDPPass, rig.Delivered(p), "steered")
	r.At(t, rig.Start+time.Minute+2*time.Second)
	r.Send(t, s.Frame()).Is(t, "gone", rig.XDPTX, s.Returned(), "give_back_not_mine")

	opening.Src = netip.AddrPortFrom(rig.ClientAddr, rig.ClientPort+1)
	fd = r.Begin(t, opening)
	r.Acknowledge(t, opening)
	p.Src, p.Flags = opening.Src, wire.FIN|wire.ACK
	r.Send(t, rig.To(p, generation, wire.AckStickiness).Frame()).Is(t, "FIN", rig.XDPPass, rig.Delivered(p), "steered")
	p.Flags = wire.ACK
	s = rig.To(p, generation, wire.AckStickiness)
	r.Send(t, s.Frame()).Is(t, "closing", rig.XDPPass, rig.Delivered(p), "steered")
	rig.Reset(t, fd)
	r.Send(t, s.Frame()).Is(t, "closed", rig.XDPTX, s.Returned(), "give_back_not_mine")
}

// testAdopted: a flow that the kernel has and the agent forgot gets an entry again, as
// the kernel's connection: an LB that names another connection gets a signal.
func testAdopted(t *testing.T, seen rig.Hits) {
	r := rig.NewAgent(t, seen, rig.Offering(rig.HuntPort))
	p := rig.Inward(rig.HuntPort, wire.ACK)
	rig.Established(t, p, rig.ClientISN)
	generation := wire.Generation(rig.ClientISN)
	for label, c := range map[string]struct {
		named uint16
		state uint8
	}{"same": {generation, objects.ConnDirect}, "another": {generation + 1, objects.ConnWait}} {
		r.Send(t, rig.To(p, c.named, wire.AckStickiness).Frame()).Is(t, label, rig.XDPPass, rig.Delivered(p), "steered_adopted")
		if got := r.MustConn(t, p); got.State != c.state || got.Generation != generation || got.LbBe != objects.LocatorBits(rig.LbLocator) {
			t.Errorf("%s: adopted as %+v", label, got)
		}
		forget(r, t, p)
	}
	p.Flags = wire.RST
	p.Seq += 99
	r.Send(t, rig.To(p, generation, wire.AckStickiness).Frame()).Is(t, "by a RST", rig.XDPPass, rig.Delivered(p), "steered")
	if _, known := r.Conn(t, p.Flow()); known {
		t.Error("a RST made an entry")
	}
}

// forget empties the agent's table of a flow.
func forget(r *rig.Agent, t *testing.T, p rig.Packet) {
	t.Helper()
	rig.ConnsOf(t, r.Agent).Put(t, p.Flow(), rig.ConnEntry{})
}

// testOtherGeneration: the kernel knows the owner, and the LB that errs gets a signal
// with the next answer.
func testOtherGeneration(t *testing.T, seen rig.Hits) {
	r := rig.NewAgent(t, seen, rig.Offering(rig.HuntPort))
	opening := rig.Inward(rig.HuntPort, wire.SYN)
	r.Begin(t, opening)
	generation := wire.Generation(opening.Seq)
	p := opening
	p.Flags, p.Seq = wire.ACK, opening.Seq+1
	s := rig.To(p, generation+1, wire.AckStickiness)
	s.LB = rig.OtherLB
	for _, why := range [][]string{{"established", "steered_other_generation"}, {"steered_other_generation"}} {
		r.Send(t, s.Frame()).Is(t, "another generation", rig.XDPPass, rig.Delivered(p), why...)
		if c, known := r.Settled(t, p.Flow()); !known || c.State != objects.ConnWait || c.LbBe != objects.LocatorBits(rig.OtherLB) || c.Generation != generation {
			t.Errorf("known %v, %+v", known, c)
		}
	}
	r.Send(t, rig.To(p, generation, wire.AckStickiness).Frame()).Is(t, "signalled", rig.XDPPass, rig.Delivered(p), "acknowledged", "steered")
	r.Send(t, s.Frame()).Is(t, "another generation, of a flow answered directly", rig.XDPPass, rig.Delivered(p), "steered_other_generation")
}

// testRecovered: the owner signals again, to the LB that asked; others pass the
// question on, and the last one's stack answers.
func testRecovered(t *testing.T, seen rig.Hits) {
	r := rig.NewAgent(t, seen, rig.Offering(rig.HuntPort))
	p := rig.Inward(rig.HuntPort, wire.ACK)
	fd := rig.Established(t, p, rig.ClientISN)
	l := rig.Listen(t, rig.HuntPort, 128)
	question := rig.To(p, 0, wire.RecoverStickiness, wire.RecoverStickiness)
	r.Send(t, question.Frame()).Is(t, "mine, forgotten", rig.XDPPass, rig.Delivered(p), "recovered")
	want := rig.ConnOf(p.Flow(), objects.AgentConn{
		Seen: rig.Seen(rig.Start), LbBe: objects.LocatorBits(rig.LbLocator), NextIn: p.Seq,
		Generation: wire.Generation(rig.ClientISN), State: objects.ConnWait,
	})
	if c := r.MustConn(t, p); c != want {
		t.Errorf("entry %+v, want %+v", c, want)
	}
	r.Send(t, rig.To(p, want.Generation, wire.AckStickiness).Frame()).Is(t, "acknowledged", rig.XDPPass, rig.Delivered(p), "acknowledged", "steered")
	question.LB = rig.OtherLB
	for _, state := range []string{"DIRECT", "WAIT for another"} {
		r.Send(t, question.Frame()).Is(t, state, rig.XDPPass, rig.Delivered(p), "recovered")
		if c := r.MustConn(t, p); c.State != objects.ConnWait || c.LbBe != objects.LocatorBits(rig.OtherLB) || c.Generation != want.Generation {
			t.Errorf("%s: %+v", state, c)
		}
	}
	unix.Close(fd)

	stranger := p
	stranger.Src = netip.AddrPortFrom(rig.ClientAddr, 1)
	ask := rig.To(stranger, 0, wire.RecoverStickiness, wire.RecoverStickiness)
	r.Send(t, ask.Frame()).Is(t, "not mine", rig.XDPTX, ask.Onward(rig.HopMAC(2)), "pass_on_not_mine")
	ask = rig.To(stranger, 0, wire.RecoverStickiness)
	r.Send(t, ask.Frame()).Is(t, "of no server", rig.XDPPass, rig.Delivered(stranger), "unowned")
	if _, known := r.Conn(t, stranger.Flow()); known {
		t.Error("a flow without an owner has an entry")
	}
	testRecoveredLate(t, r, l)
}

// testRecoveredLate: the generation is that of the client's first number still
// after megabytes, because the socket counts the bytes received.
func testRecoveredLate(t *testing.T, r *rig.Agent, l int) {
	const sent = 3000
	p := rig.Inward(rig.HuntPort, wire.ACK)
	p.Src = netip.AddrPortFrom(rig.ClientAddr, 2)
	client := rig.Dial(t, p.Src.Port(), rig.HuntPort)
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
	r.Send(t, rig.To(p, 0, wire.RecoverStickiness).Frame()).Is(t, "after some data", rig.XDPPass, rig.Delivered(p), "recovered")
	if c := r.MustConn(t, p); c.Generation != wire.Generation(isn) {
		t.Errorf("generation %d, want %d", c.Generation, wire.Generation(isn))
	}
	table := rig.ConnsOf(t, r.Agent)
	e := table.Get(t, p.Flow())
	e.Conn.Generation++ // of a connection before
	table.Put(t, p.Flow(), e)
	r.Send(t, rig.To(p, 0, wire.RecoverStickiness).Frame()).Is(t, "of a connection before", rig.XDPPass, rig.Delivered(p), "recovered")
	if c := r.MustConn(t, p); c.Generation != wire.Generation(isn) {
		t.Errorf("the entry keeps generation %d, want %d of the kernel's socket", c.Generation, wire.Generation(isn))
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
func testRequestSocket(t *testing.T, seen rig.Hits) {
	r := rig.NewAgent(t, seen, rig.Offering(rig.HuntPort))
	rig.Listen(t, rig.HuntPort, 128)
	p := rig.Inward(rig.HuntPort, wire.SYN)
	p.Src = netip.MustParseAddrPort("[2001:db8:c::9]:40000")
	theirs := rig.Request(t, p) + 1
	p.Flags, p.Seq = wire.ACK, p.Seq+1
	generation := wire.Generation(p.Seq - 1)

	p.Ack = theirs + 1
	question := rig.To(p, 0, wire.RecoverStickiness, wire.RecoverStickiness)
	r.Send(t, question.Frame()).Is(t, "rs for another's SYN-ACK", rig.XDPTX, question.Onward(rig.HopMAC(2)), "pass_on_not_mine")
	steered := rig.To(p, generation, wire.AckStickiness)
	r.Send(t, steered.Frame()).Is(t, "as for another's SYN-ACK", rig.XDPTX, steered.Returned(), "give_back_not_mine")
	opening := p
	opening.Flags, opening.Seq = wire.SYN, p.Seq-1
	r.Accept(t, opening)
	r.Send(t, steered.Frame()).Is(t, "the same, of an offer we took", rig.XDPPass, rig.Delivered(p), "steered_embryonic")
	p.Ack = theirs
	question = rig.To(p, 0, wire.RecoverStickiness, wire.RecoverStickiness)
	r.Send(t, question.Frame()).Is(t, "rs for ours", rig.XDPPass, rig.Delivered(p), "established", "recovered")
	if c, known := r.Settled(t, p.Flow()); !known || c.Generation != generation || c.State != objects.ConnWait {
		t.Errorf("recovered as %v, %+v, want generation %d", known, c, generation)
	}
}

// testSweepConns: an entry goes when its time has run out, not before, and
// takes its load with it.
func testSweepConns(t *testing.T, seen rig.Hits) {
	const open, idle, linger = 2*time.Hour + 4*time.Minute, 5 * time.Minute, 10 * time.Second
	generation := wire.Generation(rig.ClientISN)
	in := func(flags byte, payload string) func(*testing.T, *rig.Agent) {
		return func(t *testing.T, r *rig.Agent) {
			p := rig.Inward(rig.HuntPort, flags)
			p.Seq, p.Payload = rig.ClientISN+1, []byte(payload)
			r.Send(t, rig.To(p, generation, wire.AckStickiness).Frame())
		}
	}
	out := func(flags byte) func(*testing.T, *rig.Agent) {
		return func(t *testing.T, r *rig.Agent) { answerOut(r, t, rig.Outward(rig.HuntPort, flags), 0) }
	}
	for _, c := range []struct {
		label string
		steps []func(*testing.T, *rig.Agent)
		age   time.Duration
	}{
		{"arrived", []func(*testing.T, *rig.Agent){in(wire.ACK, "")}, open},
		{"asking", []func(*testing.T, *rig.Agent){in(wire.ACK, "GET")}, open},
		{"client closed", []func(*testing.T, *rig.Agent){in(wire.FIN|wire.ACK, "")}, idle},
		{"server closed", []func(*testing.T, *rig.Agent){in(wire.ACK, ""), out(wire.FIN | wire.ACK)}, idle},
		{"both closed", []func(*testing.T, *rig.Agent){in(wire.FIN|wire.ACK, ""), out(wire.FIN | wire.ACK)}, linger},
		{"reset by the server", []func(*testing.T, *rig.Agent){in(wire.ACK, ""), out(wire.RST)}, linger},
	} {
		t.Run(c.label, func(t *testing.T) {
			r := rig.NewAgent(t, seen, rig.Offering(rig.HuntPort, rig.ByTable))
			r.Accept(t, rig.Inward(rig.HuntPort, wire.SYN))
			for _, step := range c.steps {
				step(t, r)
			}
			for _, s := range []struct {
				after time.Duration
				want  dataplane.Swept
			}{{-time.Second, dataplane.Swept{Kept: 1}}, {c.age - rig.ConnUnit, dataplane.Swept{Kept: 1}}, {c.age + 2*rig.ConnUnit, dataplane.Swept{Removed: 1}}, {c.age + 3*rig.ConnUnit, dataplane.Swept{}}} {
				got, err := r.SweepAt(rig.Start + s.after)
				if err != nil || got != s.want {
					t.Errorf("after %v: %+v, %v, want %+v", s.after, got, err, s.want)
				}
			}
			if n := r.Asking(t); n != 0 {
				t.Errorf("%d requests in progress of no connection", n)
			}
		})
	}
	t.Run("not arrived", func(t *testing.T) { // removed uncounted after a minute, or else too old to be looked at
		r := rig.NewAgent(t, seen, rig.Offering(rig.HuntPort, rig.ByTable))
		opening := rig.Inward(rig.HuntPort, wire.SYN)
		r.Accept(t, opening)
		if got, err := r.SweepAt(rig.Start + time.Minute); err != nil || got != (dataplane.Swept{}) {
			t.Errorf("%+v, %v", got, err)
		}
		r.At(t, rig.Start+time.Minute)
		answerOut(r, t, rig.Outward(rig.HuntPort, wire.SYN|wire.ACK), 0).Is(t, "a minute later", tcUnspec, nil, "signal_create")
		r.At(t, rig.Start+2*time.Minute+1)
		answerOut(r, t, rig.Outward(rig.HuntPort, wire.SYN|wire.ACK), 0).Is(t, "another minute later", tcUnspec, nil, "out_no_flow")
		if _, known := r.Conn(t, opening.Flow()); !known {
			t.Error("something else than the sweep removed it")
		}
		if got, err := r.SweepAt(rig.Start + 2*time.Minute + time.Second); err != nil || got != (dataplane.Swept{}) {
			t.Errorf("%+v, %v", got, err)
		}
		if _, known := r.Conn(t, opening.Flow()); known {
			t.Error("the sweep left it")
		}
	})
}

// testDeliver: dt asks no question, not even for the hops that are left, as this
// is where the packet was sent (RFC 8200 §3); a fragment comes by its addresses.
func testDeliver(t *testing.T, seen rig.Hits) {
	r := rig.NewAgent(t, seen, rig.Offering(rig.HuntPort))
	for flags := range byte(64) {
		p := rig.Inward(rig.HuntPort, flags)
		p.Payload = []byte("data")
		r.Send(t, rig.To(p, 0, wire.Deliver).Frame()).Is(t, fmt.Sprintf("flags %#02x", flags), rig.XDPPass, rig.Delivered(p), "deliver")
	}
	p := rig.Inward(rig.HuntPort, wire.ACK)
	p.Hop = 0
	r.Send(t, rig.To(p, 0, wire.Deliver).Frame()).Is(t, "no hop left", rig.XDPPass, rig.Delivered(p), "deliver")
	other := rig.Inward(8080, wire.ACK)
	r.Send(t, rig.To(other, 0, wire.Deliver).Frame()).Is(t, "another port of the VIP", rig.XDPDrop, nil, "drop_not_our_service")
	rest := rig.InnerTCP(p)
	rest.Ip = p.Around(44, []byte{6, 0, 1, 0x80, 0, 0, 0, 7, 1, 2, 3, 4, 5, 6, 7, 8}) // RFC 8200 §4.5
	want := rig.To(p, 0, wire.Deliver)
	want.In = rest
	r.Send(t, want.Frame()).Is(t, "fragment", rig.XDPPass, rest.Delivered(), "deliver")
	stray := p
	stray.Dst = netip.AddrPortFrom(rig.ClientAddr, rig.HuntPort)
	want.In.Ip = stray.Around(44, rest.Ip[40:])
	r.Send(t, want.Frame()).Is(t, "fragment for another address", rig.XDPDrop, nil, "drop_not_our_service")
	if _, known := r.Conn(t, rig.Inward(rig.HuntPort, wire.SYN).Flow()); known {
		t.Error("a delivered flow has an entry")
	}
}
