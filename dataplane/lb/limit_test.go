package lb_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"proffer/proof/rig"
	"proffer/wire"
)

// Tokens that a CPU gets in a second (bpf/core/limit.h).
const (
	strayTokens = 20_000
	questions   = 100_000 // about segments with payload, and as many about repeated ones
	datagrams   = 200_000
	answers     = 1000
)

// spent sends frames until one is not counted as `why`, and returns how many were.
func spent(r *rig.LB, t *testing.T, why string, frame func(i int) []byte) (n int) {
	t.Helper()
	for counted := total(r, t, why); ; n++ {
		if n > 2*strayTokens && n > 2*datagrams/7 {
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

// testLimitQuestions: packets of no flow cost servers so much and no more. Those without a sign
// of a live flow are refused first, and 1,000 flows that lost their LB are recovered meanwhile.
func testLimitQuestions(t *testing.T, seen rig.Hits) {
	const members = 7
	r := rig.NewLimitedLB(t, seen, rig.Hunting(2, members, rig.Members), rig.Hunting(2, members, rig.Members, rig.OverUDP))
	r.Remembers = true
	from := func(p rig.Packet, i int) rig.Packet {
		p.Src = netip.AddrPortFrom(rig.ClientAddr, uint16(i))
		p.Seq += uint32(i >> 16)
		return p
	}
	stray := rig.Inward(rig.HuntPort, wire.ACK)
	next := 0
	ack := func(int) []byte { next++; return from(stray, next).Frame() }
	if n := spent(r, t, "recover", ack); n != strayTokens/members {
		t.Errorf("%d stray packets at once asked %d servers each, want %d", n, members, strayTokens/members)
	}
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

	r.At(t, r.Now+members*time.Millisecond)
	if n := spent(r, t, "recover", ack); n != strayTokens/1000 {
		t.Errorf("%d stray packets within %d ms, want %d", n, members, strayTokens/1000)
	}
	data, datagram := rig.Inward(rig.HuntPort, wire.ACK|wire.PSH), rig.Datagram(rig.HuntPort, "datagram")
	data.Payload = []byte("payload")
	r.At(t, r.Now+time.Hour)
	if n := spent(r, t, "offer_datagram", func(i int) []byte { return from(datagram, i).Frame() }); n != datagrams/members {
		t.Errorf("%d datagrams at once asked %d servers each, want %d", n, members, datagrams/members)
	}
	unasked := from(datagram, 65_535)
	list := r.List(t, 1, unasked.Flow())
	want := rig.Sent(unasked, rig.HopMAC(list[0]), rig.Ask(wire.ConnectAvail, 0, list...))
	copy(want[rig.AtUpper+8:], rig.SID(rig.ServerLocator(list[1]), wire.ConnectForce, 0).AsSlice())
	r.Send(t, unasked.Frame()).Is(t, "a datagram too many", rig.XDPTX, want, "offer_unasked")
	if n := spent(r, t, "recover", func(i int) []byte { return from(data, i).Frame() }); n != questions/members {
		t.Errorf("behind datagrams %d segments at once, want %d", n, questions/members)
	}
	late := func(i int) []byte { return from(data, 40_000+i).Frame() }
	for i := range 1000 {
		r.Send(t, late(i)).Is(t, "a segment too many", rig.XDPDrop, nil, "drop_limit_question")
		r.Send(t, late(i)).Is(t, "that comes again", rig.XDPTX, nil, "recover")
	}
	if n := spent(r, t, "recover", func(i int) []byte { return late(i % 10) }); n != questions/members-1000 {
		t.Errorf("%d segments came again, want %d", n, questions/members-1000)
	}
	r.Send(t, late(0)).Is(t, "once too often", rig.XDPDrop, nil, "drop_limit_repeated")
}

// testLimitAnswers: so many answers of each kind a second, and no kind at the cost of another.
func testLimitAnswers(t *testing.T, seen rig.Hits) {
	r := rig.NewLimitedLB(t, seen, rig.Hunting(2, 8))
	long := rig.Sized(rig.Inward(rig.HuntPort, wire.ACK), rig.MTU)
	ours := rig.Sent(rig.Sized(rig.Inward(rig.HuntPort, wire.ACK), 1400), rig.RouterMAC, rig.Ask(wire.RecoverStickiness, 0, 1, 2))
	for _, c := range []struct {
		label, why, drop string
		frame            []byte
	}{
		{"echo", "echo_reply", "drop_limit_echo", rig.Echo(rig.Inward(0, 0), 128, nil)},
		{"RST", "refuse_port", "drop_limit_refusal", rig.Inward(8080, wire.SYN).Frame()},
		{"port unreachable", "refuse_port", "drop_limit_refusal", rig.Datagram(8080, "x").Frame()},
		{"too big", "too_big", "drop_limit_too_big", long.Frame()},
		{"too big, translated", "too_big_translated", "drop_limit_too_big", rig.AboutOurs(ours, 1450, 1232)},
	} {
		r.At(t, r.Now+time.Hour) // a bucket holds a second's
		frame := func(int) []byte { return c.frame }
		if c.why == "too_big" {
			frame = func(i int) []byte { // each would be a question otherwise
				p := long
				p.Seq += uint32(i)
				return p.Frame()
			}
		}
		if n := spent(r, t, c.why, frame); n != answers {
			t.Errorf("%s: %d at once, want %d", c.label, n, answers)
		}
		r.Send(t, c.frame).Is(t, c.label+", too many", rig.XDPDrop, nil, c.drop)
		r.At(t, r.Now+10*time.Millisecond)
		if n := spent(r, t, c.why, frame); n != answers/100 {
			t.Errorf("%s, 10 ms later: %d, want %d", c.label, n, answers/100)
		}
	}
	r.At(t, r.Now+time.Hour)
	echo := rig.Echo(rig.Inward(0, 0), 128, nil)
	for range answers {
		r.Run(t, echo)
	}
	r.Send(t, rig.Inward(8080, wire.SYN).Frame()).Is(t, fmt.Sprint("after ", answers, " echoes"), rig.XDPTX, nil, "refuse_port")
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
