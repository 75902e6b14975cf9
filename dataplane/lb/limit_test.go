package lb_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"proffer/proof/rig"
	"proffer/wire"
)

// Tokens of a second (bpf/core/limit.h).
const (
	strayTokens = 4000   // of a server, for a service
	questions   = 20_000 // about segments with payload, and as many about repeated ones
	datagrams   = 50_000
	answers     = 10_000 // of a service, or of a VIP
	each        = 100    // of a receiver
)

// spent sends frames until one is not counted as `why`, and returns how many were.
func spent(r *rig.LB, t *testing.T, why string, frame func(i int) []byte) (n int) {
	t.Helper()
	for counted := total(r, t, why); ; n++ {
		if n > 2*datagrams {
			t.Fatalf("%s: no limit within %d frames", why, n)
		}
		r.Run(t, frame(n))
		if n%512 == 511 || n < 16 { // one by one would take too long
			if is := total(r, t, why); is != counted+uint64(n)+1 {
				return int(is - counted)
			}
		}
	}
}

func total(r *rig.LB, t *testing.T, why string) uint64 {
	t.Helper()
	for i, n := range r.Counts(t) {
		if r.Names[i] == why {
			return n
		}
	}
	t.Fatalf("no counter %s", why)
	return 0
}

// testLimitQuestions: packets of no flow of a service cost each server so much and no more. Those without
// a sign of a live flow are refused first, and 1,000 flows that lost their LB are recovered meanwhile, as
// are those of another service of the same servers.
func testLimitQuestions(t *testing.T, seen rig.Hits) {
	const members = 7
	r := rig.NewLimitedLB(t, seen, rig.Hunting(2, members, rig.Members), rig.Hunting(2, members, rig.Members, rig.OverUDP), rig.Hunting(2, members, rig.Members, rig.At81))
	r.Remembers = true
	from := func(p rig.Packet, i int) rig.Packet {
		p.Src = netip.AddrPortFrom(rig.ClientAddr, uint16(i))
		p.Seq += uint32(i >> 16)
		return p
	}
	stray := rig.Inward(rig.HuntPort, wire.ACK)
	next := 0
	ack := func(int) []byte { next++; return from(stray, next).Frame() }
	if n := spent(r, t, "recover", ack); n != strayTokens {
		t.Errorf("%d stray packets at once asked %d servers each, want %d", n, members, strayTokens)
	}
	other := rig.Inward(81, wire.ACK)
	r.Send(t, other.Frame()).Is(t, "of another service", rig.XDPTX, nil, "recover")
	r.Send(t, ack(0)).Is(t, "a stray too many", rig.XDPDrop, nil, "drop_limit_stray")
	for i := range 1000 {
		live := from(rig.Inward(rig.HuntPort, wire.ACK|wire.PSH), 30_000+i)
		live.Payload = []byte("payload")
		r.Send(t, ack(0)).Is(t, "a stray among flows", rig.XDPDrop, nil, "drop_limit_stray")
		r.Send(t, live.Frame()).Is(t, "a flow without its LB", rig.XDPTX, rig.Recovered(live, r.Union(t, 0, live.Flow())), "recover")
		r.Send(t, rig.SignalFrom(i%members, live.Reply(wire.ACK), wire.CreateStickiness, 5)).
			Is(t, "its server", rig.XDPTX, nil, "stickiness_recovered")
		live.Payload = nil
		r.Send(t, live.Frame()).Is(t, "recovered", rig.XDPTX, rig.ToOne(live, i%members, wire.AckStickiness, 5), "steer")
	}
	again := from(stray, 60_000)
	r.Send(t, again.Frame()).Is(t, "without payload", rig.XDPDrop, nil, "drop_limit_stray")
	r.Send(t, again.Frame()).Is(t, "that comes again", rig.XDPTX, nil, "recover")

	r.At(t, r.Now+5*time.Millisecond)
	if n := spent(r, t, "recover", ack); n != strayTokens/200 {
		t.Errorf("%d stray packets within 5 ms, want %d", n, strayTokens/200)
	}
	data, datagram := rig.Inward(rig.HuntPort, wire.ACK|wire.PSH), rig.Datagram(rig.HuntPort, "datagram")
	data.Payload = []byte("payload")
	r.At(t, r.Now+time.Hour)
	if n := spent(r, t, "offer_datagram", func(i int) []byte { return from(datagram, i).Frame() }); n != datagrams {
		t.Errorf("%d datagrams at once asked %d servers each, want %d", n, members, datagrams)
	}
	unasked := from(datagram, 65_535)
	list := r.List(t, 1, unasked.Flow())
	want := rig.Sent(unasked, rig.HopMAC(list[0]), rig.Ask(wire.ConnectAvail, 0, list...))
	copy(want[rig.AtUpper+8:], rig.SID(rig.ServerLocator(list[1]), wire.ConnectForce, 0).AsSlice())
	r.Send(t, unasked.Frame()).Is(t, "a datagram too many", rig.XDPTX, want, "offer_unasked")
	if n := spent(r, t, "recover", func(i int) []byte { return from(data, i).Frame() }); n != questions {
		t.Errorf("behind datagrams %d segments at once, want %d", n, questions)
	}
	late := func(i int) []byte { return from(data, 40_000+i).Frame() }
	for i := range 1000 {
		r.Send(t, late(i)).Is(t, "a segment too many", rig.XDPDrop, nil, "drop_limit_question")
		r.Send(t, late(i)).Is(t, "that comes again", rig.XDPTX, nil, "recover")
	}
	if n := spent(r, t, "recover", func(i int) []byte { return late(i % 10) }); n != questions-1000 {
		t.Errorf("%d segments came again, want %d", n, questions-1000)
	}
	r.Send(t, late(0)).Is(t, "once too often", rig.XDPDrop, nil, "drop_limit_repeated")
}

// testLimitAnswers: so many answers of each kind a second to a receiver, and so many about a service, or
// a VIP; no kind at the cost of another, and no service at the cost of another.
func testLimitAnswers(t *testing.T, seen rig.Hits) {
	r := rig.NewLimitedLB(t, seen, rig.Hunting(2, 8), rig.Hunting(2, 8, rig.At81))
	anyClient(t, r)
	long := rig.Sized(rig.Inward(rig.HuntPort, wire.ACK), rig.MTU)
	short := rig.Sized(rig.Inward(rig.HuntPort, wire.ACK), 1400)
	for _, c := range []struct {
		label, why, drop string
		packet           rig.Packet
		frame            func(rig.Packet) []byte
	}{
		{"echo", "echo_reply", "drop_limit_echo", rig.Inward(0, 0), func(p rig.Packet) []byte { return rig.Echo(p, 128, nil) }},
		{"RST", "refuse_port", "drop_limit_refusal", rig.Inward(8080, wire.SYN), rig.Packet.Frame},
		{"port unreachable", "refuse_port", "drop_limit_refusal", rig.Datagram(8080, "x"), rig.Packet.Frame},
		{"too big", "too_big", "drop_limit_too_big", long, rig.Packet.Frame},
		{"time exceeded", "time_exceeded", "drop_limit_time_exceeded", rig.Inward(rig.HuntPort, wire.ACK), func(p rig.Packet) []byte {
			return rig.Altered(p.Frame(), rig.AtHop, 1)
		}},
		{"too big, translated", "too_big_translated", "drop_limit_too_big", short, func(p rig.Packet) []byte {
			return rig.AboutOurs(rig.Sent(p, rig.RouterMAC, rig.Ask(wire.RecoverStickiness, 0, 1, 2)), 1450, 1232)
		}},
	} {
		r.At(t, r.Now+time.Hour) // a bucket holds a second's
		next, client := uint32(0), 0
		frame := func(client int) []byte {
			next++ // each would be a question that comes again otherwise
			p := c.packet
			p.Seq, p.Src = p.Seq+next, netip.AddrPortFrom(rig.ClientNumber(client), p.Src.Port())
			return c.frame(p)
		}
		if n := spent(r, t, c.why, func(int) []byte { return frame(0) }); n != each {
			t.Errorf("%s: %d at once to one client, want %d", c.label, n, each)
		}
		r.Send(t, frame(0)).Is(t, c.label+", too many", rig.XDPDrop, nil, c.drop)
		others := func(int) []byte { client++; return frame(client) }
		if n := spent(r, t, c.why, others); n != answers-each {
			t.Errorf("%s: %d at once to others, want %d", c.label, n, answers-each)
		}
		if c.why == "too_big" {
			other := rig.Sized(rig.Inward(81, wire.ACK), rig.MTU)
			r.Send(t, other.Frame()).Is(t, "of another service", rig.XDPTX, nil, "too_big")
		}
		r.At(t, r.Now+10*time.Millisecond)
		if n := spent(r, t, c.why, others); n != answers/100 {
			t.Errorf("%s, 10 ms later: %d, want %d", c.label, n, answers/100)
		}
	}
	r.At(t, r.Now+time.Hour)
	echo := rig.Echo(rig.Inward(0, 0), 128, nil)
	for range each {
		r.Run(t, echo)
	}
	r.Send(t, echo).Is(t, fmt.Sprint("after ", each), rig.XDPDrop, nil, "drop_limit_echo")
	r.Send(t, rig.Inward(8080, wire.SYN).Frame()).Is(t, fmt.Sprint("after ", each, " echoes"), rig.XDPTX, nil, "refuse_port")
	r.At(t, r.Now-time.Minute)
	r.Send(t, echo).Is(t, "a clock that goes back", rig.XDPDrop, nil, "drop_limit_echo")
	r.At(t, r.Now+time.Second)
	r.Send(t, echo).Is(t, "a second later", rig.XDPTX, nil, "echo_reply")
}

// testLimitHeld: a SYN for the ports of a live flow goes to its server, back, and there again. Above
// the limit it goes there once, announces nothing, and so opens the flow to no other server.
func testLimitHeld(t *testing.T, seen rig.Hits) {
	r := rig.NewLimitedLB(t, seen, rig.Hunting(2, 8))
	p := rig.Inward(rig.HuntPort, wire.SYN)
	list := r.List(t, 0, p.Flow())
	r.Learn(t, list[0], p.Seq)
	forged := func(i int) rig.Packet {
		q := p
		q.Seq += uint32(i+1) << 8
		return q
	}
	if n := spent(r, t, "offer_again", func(i int) []byte { return forged(i).Frame() }); n < strayTokens || n > strayTokens+3 { // some have the flow's own generation
		t.Errorf("%d SYNs at once were marked, want %d", n, strayTokens)
	}
	before, _ := r.Flow(t, p.Flow())
	q := forged(strayTokens + 7)
	offered := rig.Sent(q, rig.HopMAC(list[0]), rig.Offer(q, 0, list...))
	r.Send(t, q.Frame()).Is(t, "one too many", rig.XDPTX, offered, "offer_unmarked")
	if e, _ := r.Flow(t, p.Flow()); e != before {
		t.Errorf("it made %+v of the flow %+v", e, before)
	}
}
