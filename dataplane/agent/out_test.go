package agent_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"proffer/policy"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

const tcUnspec = 0xffffffff // TC_ACT_UNSPEC: the last word is another filter's

// answerOut passes a packet of the stack, of so many GSO segments, through the
// program on the way out.
func answerOut(r *rig.Agent, t testing.TB, p rig.Packet, segments uint32) rig.Outcome {
	t.Helper()
	r.Out.Ctx = rig.SkBuff{Segments: segments}
	return r.Out.Send(t, p.Frame())
}

// signalled is the frame that must leave for the LB around p.
func signalled(p rig.Packet, function wire.Function, generation uint16, closed ...wire.Flags) []byte {
	to := rig.SID(rig.LbLocator, function, generation)
	for _, side := range closed {
		to = rig.WithFlags(to, side)
	}
	return wrappedIn(rig.InnerTCP(p), p.Reversed(), rig.HopMAC(0xb), p.From, to)
}

// wrappedIn is the frame that must leave around an answer of flow f.
func wrappedIn(in rig.Inner, f policy.Flow, hop, from topo.MAC, to netip.Addr) []byte {
	f.Protocol = in.Flow.Protocol
	in.Flow = f
	return wire.Frame(hop, from, in.Route(wire.Untagged(rig.ServerLocator(rig.Here), f), in.Class, wire.DefaultHopLimit, to).Encap(in.Ip))
}

// testOut: the signal of each answer of the service.
func testOut(t *testing.T, seen rig.Hits) {
	r := rig.NewAgent(t, seen, rig.Offering(rig.HuntPort, rig.ByTable))
	generation := wire.Generation(rig.ClientISN)
	p := rig.Outward(rig.HuntPort, wire.SYN|wire.ACK)
	p.Class = 0xb9
	answerOut(r, t, p, 0).Is(t, "no flow", tcUnspec, p.Frame(), "out_no_flow")
	r.Accept(t, rig.Inward(rig.HuntPort, wire.SYN))
	for range 2 {
		answerOut(r, t, p, 0).Is(t, "before the LB knows", tcUnspec, signalled(p, wire.CreateStickiness, generation), "signal_create")
	}
	p.Flags = wire.ACK
	answerOut(r, t, p, 0).Is(t, "a word of an older connection, perhaps", tcUnspec, p.Frame(), "out_direct")
	r.Send(t, rig.To(rig.Inward(rig.HuntPort, wire.ACK), 0, wire.RecoverStickiness).Frame())
	answerOut(r, t, p, 0).Is(t, "before the LB knows again", tcUnspec, signalled(p, wire.CreateStickiness, generation), "signal_create")
	p.Flags = wire.FIN | wire.ACK
	answerOut(r, t, p, 0).Is(t, "FIN before the LB knows", tcUnspec, signalled(p, wire.CreateStickiness, generation, wire.ServerClosed), "signal_create")
	r.Send(t, rig.To(rig.Inward(rig.HuntPort, wire.ACK), generation, wire.AckStickiness).Frame())
	p.Flags = wire.ACK
	answerOut(r, t, p, 0).Is(t, "the removal still due", tcUnspec, signalled(p, wire.RemoveStickiness, generation, wire.ServerClosed), "signal_remove")
	answerOut(r, t, p, 0).Is(t, "nothing to say", tcUnspec, p.Frame(), "out_direct")
	for _, flags := range []byte{wire.FIN | wire.ACK, wire.FIN | wire.ACK | wire.PSH, wire.RST, wire.RST | wire.ACK} {
		p.Seq += 100
		p.Flags, p.Payload = flags, []byte("last words")
		closed := []wire.Flags{wire.ServerClosed}
		if flags&wire.RST != 0 {
			closed = append(closed, wire.ClientClosed)
		}
		answerOut(r, t, p, 0).Is(t, fmt.Sprintf("flags %#02x", flags), tcUnspec, signalled(p, wire.RemoveStickiness, generation, closed...), "signal_remove")
	}
	p.Flags = wire.FIN | wire.ACK
	p.Seq += 100
	answerOut(r, t, p, 0).Is(t, "FIN", tcUnspec, signalled(p, wire.RemoveStickiness, generation, wire.ClientClosed, wire.ServerClosed), "signal_remove")
	answerOut(r, t, p, 0).Is(t, "FIN again", tcUnspec, p.Frame(), "out_direct")
	p.Seq += 100
	answerOut(r, t, p, 0).Is(t, "another", tcUnspec, signalled(p, wire.RemoveStickiness, generation, wire.ClientClosed, wire.ServerClosed), "signal_remove")
	testOutNotOurs(t, r)
}

// testOutRepeated: the server's repetitions go straight to the client, since
// the LB of the first signal may be dead; new data signals.
func testOutRepeated(t *testing.T, seen rig.Hits) {
	r := rig.NewAgent(t, seen, rig.Offering(rig.HuntPort, rig.ByTable))
	generation := wire.Generation(rig.ClientISN)
	r.Accept(t, rig.Inward(rig.HuntPort, wire.SYN))
	r.Send(t, rig.To(rig.Inward(rig.HuntPort, wire.ACK), 0, wire.RecoverStickiness).Frame())
	p := rig.Outward(rig.HuntPort, wire.ACK|wire.PSH)
	p.Payload = []byte("an answer")
	answerOut(r, t, p, 0).Is(t, "once", tcUnspec, signalled(p, wire.CreateStickiness, generation), "signal_create")
	answerOut(r, t, p, 0).Is(t, "again", tcUnspec, p.Frame(), "out_direct")
	more := p
	more.Payload = []byte("an answer and more of it")
	answerOut(r, t, more, 0).Is(t, "again, and more", tcUnspec, signalled(more, wire.CreateStickiness, generation), "signal_create")
	answerOut(r, t, p, 0).Is(t, "the first part again", tcUnspec, p.Frame(), "out_direct")
	p.Payload, p.Flags = nil, wire.ACK
	answerOut(r, t, p, 0).Is(t, "no words", tcUnspec, signalled(p, wire.CreateStickiness, generation), "signal_create")
}

func testOutNotOurs(t *testing.T, r *rig.Agent) {
	p := rig.Outward(rig.HuntPort, wire.ACK).Frame()
	arp := make([]byte, 42)
	arp[12], arp[13] = 8, 6
	for label, frame := range map[string][]byte{
		"ARP":                     arp,
		"a VLAN tag":              slices.Concat(p[:12], []byte{0x81, 0, 0x45, 0x05}, p[12:]),
		"UDP, which it is not":    rig.Altered(p, rig.AtNext, 17),
		"another port":            rig.Outward(8080, wire.ACK).Frame(),
		"a connection of our own": rig.Inward(rig.HuntPort, wire.ACK).Frame(),
		"TCP cut short":           p[:rig.AtUpper+19],
		"ICMPv6 echo":             wire.Frame(rig.HereMAC, rig.RouterMAC, rig.Outward(rig.HuntPort, 0).Around(wire.ProtoICMPv6, []byte{128, 0, 0, 0, 0, 1, 0, 1})),
		"ICMPv6 too big":          rig.InnerTooBig(rig.Inner{}, rig.Inward(rig.HuntPort, 0)).Frame(rig.HereMAC, rig.RouterMAC),
	} {
		r.Out.Ctx = nil
		r.Out.Send(t, frame).Is(t, label, tcUnspec, frame, "out_not_ours")
	}
}

// testDeferred: a packet that has no room for a signal, or is many, goes
// without; the next small one signals.
func testDeferred(t *testing.T, seen rig.Hits) {
	r := rig.NewAgent(t, seen, rig.Offering(rig.HuntPort, rig.ByTable))
	generation := wire.Generation(rig.ClientISN)
	r.Accept(t, rig.Inward(rig.HuntPort, wire.SYN))
	r.Send(t, rig.To(rig.Inward(rig.HuntPort, wire.ACK), 0, wire.RecoverStickiness).Frame())
	small := rig.Outward(rig.HuntPort, wire.ACK)
	large := rig.Outward(rig.HuntPort, wire.ACK|wire.PSH)
	large.Payload = make([]byte, rig.MTU-40-60+1)
	answerOut(r, t, large, 0).Is(t, "no room to create", tcUnspec, large.Frame(), "signal_deferred")
	large.Seq += 2000
	answerOut(r, t, small, 2).Is(t, "two segments", tcUnspec, small.Frame(), "signal_deferred")
	answerOut(r, t, small, 1).Is(t, "one segment", tcUnspec, signalled(small, wire.CreateStickiness, generation), "signal_create")
	large.Payload = large.Payload[1:]
	answerOut(r, t, large, 0).Is(t, "just room", tcUnspec, signalled(large, wire.CreateStickiness, generation), "signal_create")

	r.Send(t, rig.To(rig.Inward(rig.HuntPort, wire.ACK), generation, wire.AckStickiness).Frame())
	large.Payload, large.Flags, large.Seq = append(large.Payload, 0), wire.FIN|wire.ACK, large.Seq+2000
	answerOut(r, t, large, 0).Is(t, "no room to remove", tcUnspec, large.Frame(), "signal_deferred")
	answerOut(r, t, small, 0).Is(t, "the next small one", tcUnspec, signalled(small, wire.RemoveStickiness, generation, wire.ServerClosed), "signal_remove")
	answerOut(r, t, small, 0).Is(t, "and no other", tcUnspec, small.Frame(), "out_direct")

	if err := r.SetNextHops(topo.NextHops{}); err != nil {
		t.Fatal(err)
	}
	small.Flags, small.Seq = wire.FIN|wire.ACK, large.Seq+2000
	answerOut(r, t, small, 0).Is(t, "no neighbour", tcUnspec, small.Frame(), "signal_deferred")
	if addr, err := r.Unresolved(); err != nil || addr != rig.WithFlags(rig.SID(rig.LbLocator, wire.RemoveStickiness, generation), wire.ServerClosed) {
		t.Errorf("unresolved %v, %v", addr, err)
	}
}

// testAsking: a request is in progress from its first byte inward to the first
// byte outward, however often anything is sent again. Only payload outward answers it.
func testAsking(t *testing.T, seen rig.Hits) {
	r := rig.NewAgent(t, seen, rig.Offering(rig.HuntPort, rig.ByTable))
	opening := rig.Inward(rig.HuntPort, wire.SYN)
	opening.Seq = 0xfffffff0 // the numbers wrap
	generation := wire.Generation(opening.Seq)
	r.Accept(t, opening)
	seq, acked := opening.Seq+1, uint32(0)
	in := func(at uint32, length int) func() {
		return func() {
			acked = max(acked, at+uint32(length))
			p := rig.Inward(rig.HuntPort, wire.ACK|wire.PSH)
			p.Seq, p.Payload = seq+at, make([]byte, length)
			r.Send(t, rig.To(p, generation, wire.AckStickiness).Frame())
		}
	}
	out := func(flags byte, length int) func() {
		return func() {
			p := rig.Outward(rig.HuntPort, flags)
			p.Ack, p.Payload = seq+acked, make([]byte, length)
			answerOut(r, t, p, 0)
		}
	}
	for _, c := range []struct {
		label string
		do    func()
		want  uint32
		after uint64 // answered requests
	}{
		{"the handshake's end", in(0, 0), 0, 0},
		{"a request", in(0, 100), 1, 0},
		{"again", in(0, 100), 1, 0},
		{"its acknowledgement", out(wire.ACK, 0), 1, 0},
		{"more of it", in(100, 50), 1, 0},
		{"a response", out(wire.ACK|wire.PSH, 1000), 0, 1},
		{"more of that", out(wire.ACK|wire.PSH, 1000), 0, 1},
		{"the request again, answered long ago", in(100, 50), 0, 1},
		{"an empty packet", in(150, 0), 0, 1},
		{"a keep-alive of one old byte", in(149, 1), 0, 1},
		{"the next request, with old bytes before it", in(140, 20), 1, 1},
		{"the server closes", out(wire.FIN|wire.ACK, 0), 0, 1},
		{"one more request", in(160, 1), 1, 1},
		{"the server resets", out(wire.RST, 0), 0, 1},
		{"nothing below zero", out(wire.RST, 0), 0, 1},
	} {
		c.do()
		if l, err := r.Load(0); err != nil || l.Asking != c.want || l.Answered != c.after {
			t.Errorf("%s: %d requests in progress and %d answered, want %d and %d (%v)", c.label, l.Asking, l.Answered, c.want, c.after, err)
		}
	}
	in(161, 1)()
	again := opening
	again.Seq++
	r.Send(t, rig.To(again, 1, wire.ConnectForce).Frame()).Is(t, "the ports' next connection", rig.XDPPass, nil, "accept_force")
	if got := r.Asking(t); got != 0 {
		t.Errorf("a new connection took over %d requests of the old", got)
	}
}

// testAskingReset: only a RST that the stack believes ends a request.
func testAskingReset(t *testing.T, seen rig.Hits) {
	r := rig.NewAgent(t, seen, rig.Offering(rig.HuntPort))
	p := rig.Inward(rig.HuntPort, wire.SYN)
	r.Begin(t, p) // and the socket expects p.seq + 1
	send := func(flags byte, seq uint32, payload int) {
		q := rig.Inward(rig.HuntPort, flags)
		q.Seq, q.Payload = seq, make([]byte, payload)
		r.Send(t, rig.To(q, wire.Generation(p.Seq), wire.AckStickiness).Frame())
	}
	send(wire.ACK|wire.PSH, p.Seq+1, 10)
	for _, c := range []struct {
		label string
		seq   uint32
		want  uint32
	}{{"one before", p.Seq, 1}, {"one after", p.Seq + 2, 1}, {"far away", p.Seq + 1<<31, 1}, {"exact", p.Seq + 1, 0}} {
		send(wire.RST, c.seq, 0)
		if got := r.Asking(t); got != c.want {
			t.Errorf("RST %s: %d requests in progress, want %d", c.label, got, c.want)
		}
	}
}

// testCongestion: all combinations of RFC 6040, figure 4, on delivery.
func testCongestion(t *testing.T, seen rig.Hits) {
	r := rig.NewAgent(t, seen, rig.Offering(rig.HuntPort))
	for _, c := range rig.Congestion {
		p := rig.Inward(rig.HuntPort, wire.ACK)
		p.Class = 0xb8 | c.Inner
		s := rig.To(p, 0, wire.Deliver)
		s.Class = 0x28 | c.Outer // of another DSCP, which stays outside (RFC 2983)
		label := fmt.Sprintf("inner %02b, outer %02b", c.Inner, c.Outer)
		if c.Want == rig.Dropped {
			r.Send(t, s.Frame()).Is(t, label, rig.XDPDrop, nil, "drop_congested")
			continue
		}
		p.Class = 0xb8 | c.Want
		r.Send(t, s.Frame()).Is(t, label, rig.XDPPass, rig.Delivered(p), "deliver")
	}
}

// testAgentUntouched: whatever is for none of our SIDs is the kernel's.
func testAgentUntouched(t *testing.T, seen rig.Hits) {
	r := rig.NewAgent(t, seen, rig.Offering(rig.HuntPort))
	plain := rig.Inward(rig.HuntPort, wire.SYN).Frame()
	toSelf := rig.Inward(rig.HuntPort, wire.SYN)
	toSelf.Dst = netip.AddrPortFrom(wire.Own(rig.ServerLocator(rig.Here)), rig.HuntPort)
	elsewhere := rig.To(rig.Inward(rig.HuntPort, wire.SYN), 1, wire.ConnectAvail, wire.ConnectForce)
	elsewhere.Segments[0] = rig.SID(rig.ServerLocator(9), wire.ConnectAvail, 1)
	for _, c := range []struct {
		label string
		frame []byte
		why   string
	}{
		{"no more than a link header", plain[:14], "pass_not_ipv6"},
		{"VLAN tag", slices.Concat(plain[:12], []byte{0x81, 0, 0, 5}, plain[12:]), "pass_not_ipv6"},
		{"IPv4", rig.Altered(rig.Altered(plain, rig.AtEtherType, 8), rig.AtEtherType+1, 0), "pass_not_ipv6"},
		{"IPv6 header cut short", plain[:53], "pass_not_ipv6"},
		{"version 4", rig.Altered(plain, rig.AtVersion, 0x45), "pass_not_ipv6"},
		{"to another link address", rig.Altered(rig.To(rig.Inward(rig.HuntPort, wire.SYN), 1, wire.ConnectForce).Frame(), 0, 0xff), "pass_other_host"},
		{"to the VIP itself", plain, "pass_not_sid"},
		{"another node's SID", elsewhere.Frame(), "pass_not_sid"},
		{"own address", toSelf.Frame(), "pass_own_address"},
	} {
		r.Send(t, c.frame).Is(t, c.label, rig.XDPPass, c.frame, c.why)
	}
}

// testAgentMalformed: malformed packets for the agent's SIDs.
func testAgentMalformed(t *testing.T, seen rig.Hits) {
	r := rig.NewAgent(t, seen, rig.Offering(rig.HuntPort))
	p := rig.Inward(rig.HuntPort, wire.SYN)
	good := rig.To(p, 1, wire.ConnectAvail, wire.ConnectForce).Frame()
	plain := rig.To(p, 1, wire.ConnectAvail).Frame()
	for cut := rig.AtUpper; cut < len(good); cut++ {
		r.Send(t, good[:cut]).Is(t, fmt.Sprintf("cut to %d bytes", cut), rig.XDPDrop, nil, "drop_truncated")
		short := slices.Clone(good[:cut]) // cut, and the outer header knows it
		binary.BigEndian.PutUint16(short[rig.AtLength:], uint16(cut-rig.AtUpper))
		why := "drop_truncated"
		if cut < rig.AtUpper+8+16 {
			why = "drop_malformed_srh"
		}
		r.Send(t, short).Is(t, fmt.Sprintf("shortened to %d bytes", cut), rig.XDPDrop, nil, why)
	}
	other, ackOnly := rig.Inward(8080, wire.SYN), rig.Inward(rig.HuntPort, wire.ACK)
	datagram := rig.Inward(rig.HuntPort, 0)
	datagram.Payload = []byte("datagram")
	for _, c := range []struct {
		label string
		frame []byte
		why   string
	}{
		{"no function of any node", rig.To(p, 1, 0x77).Frame(), "drop_unknown_function"},
		{"an LB's function", rig.To(p, 1, wire.CreateStickiness).Frame(), "drop_unknown_function"},
		{"another service inside", rig.To(other, 1, wire.ConnectAvail).Frame(), "drop_not_our_service"},
		{"UDP inside", rig.ToWith(rig.InnerUDP(datagram), 1, wire.ConnectAvail).Frame(), "drop_not_our_service"},
		{"no transport header we know", rig.Altered(plain, rig.AtUpper+6, 132), "drop_not_our_service"},
		{"fragment of an offer", rig.Altered(plain, rig.AtUpper+6, 44), "drop_not_our_service"},
		{"TCP for a SID", rig.Altered(plain, rig.AtNext, 6), "drop_nothing_inside"},
		{"IPv4 named, IPv6 inside", rig.Altered(plain, rig.AtNext, 4), "drop_nothing_inside"},
		{"fragment for a SID", rig.Altered(plain, rig.AtNext, 44), "drop_nothing_inside"},
		{"data offset 4", rig.Altered(plain, rig.AtUpper+40+12, 4<<4), "drop_malformed_transport"},
		{"data offset 6 of 20 bytes", rig.Altered(plain, rig.AtUpper+40+12, 6<<4), "drop_malformed_transport"},
		{"offer without SYN", rig.To(ackOnly, 1, wire.ConnectAvail).Frame(), "drop_not_a_syn"},
		{"offer of a SYN-ACK", rig.To(rig.Inward(rig.HuntPort, wire.SYN|wire.ACK), 1, wire.ConnectForce).Frame(), "drop_not_a_syn"},
		{"version 4 inside", rig.Altered(plain, rig.AtUpper, 0x45), "drop_nothing_inside"},
		{"version 5 inside", rig.Altered(plain, rig.AtUpper, 0x55), "drop_truncated"},
		{"rj with a segment left", rig.To(rig.Inward(rig.HuntPort, wire.RST), 1, wire.Reject, wire.Reject).Frame(), "drop_segments_left"},
		{"dt with a segment left", rig.To(ackOnly, 0, wire.Deliver, wire.Deliver).Frame(), "drop_segments_left"}, // RFC 8986 §4.6, S02
	} {
		r.Send(t, c.frame).Is(t, c.label, rig.XDPDrop, nil, c.why)
	}
	for _, c := range rig.BadSRHs(rig.SID(rig.ServerLocator(rig.Here), wire.ConnectAvail, 1)) {
		r.Send(t, rig.WithSRH(plain, c.Header)).Is(t, c.Name, rig.XDPDrop, nil, "drop_malformed_srh")
	}
}
