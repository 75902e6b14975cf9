package lb_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"proffer/plan"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// without is a list less one server.
func without(list []int, server int) []int {
	return slices.DeleteFunc(slices.Clone(list), func(s int) bool { return s == server })
}

// final is the frame that must leave for a SYN that one server had no listener for: the
// others must take it, and the last one's stack decides.
func final(p rig.Packet, servers []int) []netip.Addr {
	segments := rig.Ask(wire.ConnectForce, wire.Generation(p.Seq), servers...)
	for i := range segments {
		segments[i] = rig.WithFlags(segments[i], 2)
	}
	return segments
}

// testGivenBack: a packet that a server gives back goes to the others, once; a stale
// entry goes if it names this server for this generation, and only then.
func testGivenBack(t *testing.T, seen rig.Hits) {
	for _, by := range []topo.Wire{topo.Encap, topo.Insert} {
		r := rig.NewLB(t, seen, rig.Hunting(3, 8, func(s *topo.Service) { s.Wire = by }))
		change := func(w *rig.Route) { w.Insert = by == topo.Insert }
		p := rig.Inward(rig.HuntPort, wire.SYN)
		list := r.List(t, 0, p.Flow())
		generation := wire.Generation(p.Seq)
		back := func(server int, p rig.Packet, generation uint16) rig.Outcome {
			p.Hop--
			return r.Send(t, rig.SignalFrom(server, p, wire.NotMine, generation))
		}
		forward := func(p rig.Packet, servers []int, segments []netip.Addr) []byte {
			p.Hop--
			return rig.Sent(p, rig.HopMAC(servers[0]), segments, change)
		}
		rest := without(list, list[1])
		back(list[1], p, generation).Is(t, "SYN", rig.XDPTX, forward(p, rest, final(p, rest)), "offer_returned")

		r.Learn(t, list[1], p.Seq)
		p.Flags = wire.ACK
		for _, c := range []struct {
			label      string
			server     int
			generation uint16
		}{{"another server's", list[2], generation}, {"another generation's", list[1], generation + 1}} {
			others := without(list, c.server)
			back(c.server, p, c.generation).
				Is(t, c.label, rig.XDPTX, forward(p, others, rig.Ask(wire.RecoverStickiness, 0, others...)), "recover_returned")
			if _, known := r.Flow(t, p.Flow()); !known {
				t.Fatalf("%s word removed the entry", c.label)
			}
		}
		back(list[1], p, generation).
			Is(t, "a stale flow", rig.XDPTX, forward(p, rest, rig.Ask(wire.RecoverStickiness, 0, rest...)), "recover_returned", "stale_removed")
		if _, known := r.Flow(t, p.Flow()); known {
			t.Error("the stale entry is still there")
		}
		r.Accepted(t, list[1], rig.Inward(rig.HuntPort, wire.SYN))
		back(list[1], p, generation).
			Is(t, "a stale embryonic entry", rig.XDPTX, forward(p, rest, rig.Ask(wire.RecoverStickiness, 0, rest...)), "recover_returned", "stale_removed")
		if _, known := r.Embryonic(t, p.Flow()); known {
			t.Error("the stale embryonic entry is still there")
		}
		p.Hop = 2
		back(list[1], p, generation).Is(t, "at the end of its hops", rig.XDPDrop, nil, "drop_hop_limit")
	}
}

// testGivenBackAlone: with no other server to ask, the server that gave it back has the
// last word. A server that left the pool has none.
func testGivenBackAlone(t *testing.T, seen rig.Hits) {
	r := rig.NewLB(t, seen, rig.Hunting(2, 1))
	p := rig.Inward(rig.HuntPort, wire.SYN)
	r.Send(t, rig.SignalFrom(0, p, wire.NotMine, wire.Generation(p.Seq))).
		Is(t, "SYN", rig.XDPTX, rig.Sent(p, rig.HopMAC(0), final(p, []int{0})), "offer_returned")
	p.Flags = wire.ACK
	r.Send(t, rig.SignalFrom(0, p, wire.NotMine, 5)).Is(t, "data", rig.XDPTX, rig.Recovered(p, []int{0}), "recover_returned")

	r.Reconfigure(t, rig.Hunting(2, 8, rig.Members))
	r.Learn(t, 7, rig.ClientISN)
	r.Reconfigure(t, rig.Hunting(2, 6))
	list := r.List(t, 0, p.Flow())
	r.Send(t, p.Frame()).Is(t, "its server is gone", rig.XDPTX, rig.Recovered(p, list), "recover", "stale_removed")
	if _, known := r.Flow(t, p.Flow()); known {
		t.Error("an entry of a server that is gone")
	}
	r.Send(t, rig.SignalFrom(7, p, wire.NotMine, 5)).Is(t, "from the one that is gone", rig.XDPDrop, nil, "drop_unknown_sender")
}

// crowd is a service with buckets of many members: every server of the farm
// was a candidate of every flow once, alone in its pool. The farm stands still.
func crowd(members int, change ...func(*topo.Service)) topo.Service {
	return rig.Hunting(1, members, append(change, func(s *topo.Service) {
		for i := range members {
			s.History = append(s.History, topo.Version{Version: members - i, Servers: rig.Farm(members)[i : i+1]})
		}
	})...)
}

// visit is a segment as it is met on the way.
type visit struct {
	server   int
	function wire.Function
}

// walk follows a packet of a flow through its lists as the servers and the LB
// pass it on: every one of them gives it to the next. Before each frame are the 192 bytes
// that the narrowest drivers leave. It returns the servers met.
func walk(r *rig.LB, t *testing.T, p rig.Packet, insert bool) (met []visit, rounds int) {
	t.Helper()
	frame := p.Frame()
	for rounds = 1; rounds < 140; rounds++ {
		out := sendNarrow(r, t, frame)
		if out.Action != rig.XDPTX {
			t.Fatalf("round %d: action %d for %v", rounds, out.Action, out.Reasons)
		}
		if len(out.Frame) > 14+rig.MTU {
			t.Fatalf("round %d: %d bytes", rounds, len(out.Frame))
		}
		segments := segmentsOf(out.Frame, insert)
		last := segments[len(segments)-1]
		for _, s := range segments {
			if a := s.As16(); !rig.LbLocator.Contains(s) {
				met = append(met, visit{int(a[7]), wire.ParseSID(s).Function})
			}
		}
		if !rig.LbLocator.Contains(last) {
			return met, rounds
		}
		if wire.ParseSID(last).Function != wire.RecoverStickiness || len(segments) < 2 {
			t.Fatalf("round %d goes on by %v", rounds, segments)
		}
		frame = arrivedAt(out.Frame, last, insert)
	}
	t.Fatal("a list without end")
	return nil, 0
}

// sendNarrow sends a frame with 192 bytes before it, as ixgbe, i40e and ice do: metadata take
// the rest of XDP's 256.
func sendNarrow(r *rig.LB, t *testing.T, frame []byte) rig.Outcome {
	t.Helper()
	const metadata = 256 - 192
	r.Ctx = xdpContext{Data: metadata, DataEnd: uint32(metadata + len(frame))}
	out := r.Send(t, append(make([]byte, metadata), frame...))
	r.Ctx = nil
	out.Frame = out.Frame[metadata:]
	return out
}

// segmentsOf reads a frame's route, first segment to last.
func segmentsOf(frame []byte, insert bool) []netip.Addr {
	list := []netip.Addr{netip.AddrFrom16([16]byte(frame[rig.AtDst:]))}
	if frame[rig.AtNext] != 43 {
		return list
	}
	entries := int(frame[rig.AtUpper+4]) + 1
	from := 0
	if insert { // the packet's own destination, …, the first again, the sender
		from, entries = 1, entries-2
	}
	for i := entries - 1; i >= from; i-- {
		list = append(list, netip.AddrFrom16([16]byte(frame[rig.AtUpper+8+16*i:])))
	}
	return list
}

// arrivedAt is a frame at the last of its segments, all others behind it.
func arrivedAt(frame []byte, last netip.Addr, insert bool) []byte {
	frame = slices.Clone(frame)
	copy(frame, rig.HereMAC[:])
	copy(frame[rig.AtDst:], last.AsSlice())
	frame[rig.AtUpper+3] = 0
	if insert {
		frame[rig.AtUpper+3] = 1
	}
	return frame
}

// testContinued: docs/failures.md, pool change: when the header does not fit, the list
// is walked in rounds: every server is asked once, and the last is a server.
func testContinued(t *testing.T, seen rig.Hits) {
	for _, c := range []struct {
		members int
		change  []func(*topo.Service)
	}{
		{15, nil}, {15, []func(*topo.Service){rig.Inserting}}, {14, nil}, {7, []func(*topo.Service){rig.Over4}},
		{15, []func(*topo.Service){rig.ViaTransit(1)}},
		{16, nil}, {29, []func(*topo.Service){rig.Inserting}}, {30, nil}, {132, nil},
	} {
		svc := crowd(c.members, c.change...)
		r := rig.NewLB(t, seen, svc)
		insert := svc.Wire == topo.Insert
		for length := 60; length <= rig.MTU-24; length++ {
			if length > 80 && length < rig.MTU-270 {
				continue // the MTU has room for any list
			}
			p := rig.Inward(rig.HuntPort, wire.ACK)
			if !svc.VIP.Addr.Is6() {
				p = rig.OverIPv4(p)
			}
			p.Hop = 200
			p.Payload = make([]byte, length-(len(p.Ip())))
			label := fmt.Sprintf("%d members, %v, %d via, %d bytes", c.members, svc.Wire, len(svc.Via), length)
			least := 64 // two segments
			if insert {
				least = 72
			}
			if rig.MTU-length < least+16*len(svc.Via) {
				r.Send(t, p.Frame()).Is(t, label, rig.XDPTX, nil, "too_big")
				continue
			}
			want := r.Union(t, 0, p.Flow())
			met, rounds := walk(r, t, p, insert)
			met = slices.DeleteFunc(met, func(v visit) bool { return v.function == 0xe })
			got := make([]int, len(met))
			for i, v := range met {
				got[i] = v.server
				if v.function != wire.RecoverStickiness {
					t.Fatalf("%s: %v", label, met)
				}
			}
			if len(want) != c.members || !slices.Equal(got, want) {
				t.Fatalf("%s: %d rounds met %v, want %v", label, rounds, got, want)
			}
			if length > 1460-24 && rounds < 2 {
				t.Fatalf("%s: one round", label)
			}
		}
		p := rig.Inward(rig.HuntPort, wire.ACK)
		if svc.VIP.Addr.Is6() {
			testGoneOn(t, r, p, insert)
		}
	}
}

// testGoneOn: a list that comes back to the LB goes on at the position in its argument.
func testGoneOn(t *testing.T, r *rig.LB, p rig.Packet, insert bool) {
	union := r.Union(t, 0, p.Flow())
	report := rig.WithReport(rig.SID(rig.LbLocator, wire.RecoverStickiness, 0), 3)
	back := rig.Route{From: rig.LbLocator, Segments: []netip.Addr{report}, Hop: 63, Insert: insert}
	frame := wire.Frame(rig.HereMAC, rig.RouterMAC, back.Around(p))
	out := r.Send(t, frame)
	if met := segmentsOf(out.Frame, insert); out.Action != rig.XDPTX || !slices.Equal(out.Reasons, []string{"list_continued"}) ||
		!slices.ContainsFunc(met, func(a netip.Addr) bool { return a == rig.SID(rig.ServerLocator(union[3]), wire.RecoverStickiness, 0) }) ||
		slices.Contains(met, rig.SID(rig.ServerLocator(union[2]), wire.RecoverStickiness, 0)) {
		t.Errorf("from place 3 on: %v for %v", met, out.Reasons)
	}
	past := rig.WithReport(rig.SID(rig.LbLocator, wire.RecoverStickiness, 0), topo.MaxMembers)
	back.Segments = []netip.Addr{past}
	r.Send(t, wire.Frame(rig.HereMAC, rig.RouterMAC, back.Around(p))).Is(t, "past the end", rig.XDPDrop, nil, "drop_no_server")
}

// TestReturnedTooBig: a packet that one server gives back and that the list of
// the others does not fit is answered to its client.
func TestReturnedTooBig(t *testing.T) {
	r := rig.NewLB(t, rig.Hits{}, rig.Hunting(4, 8))
	p := rig.Inward(rig.HuntPort, wire.ACK)
	p.Payload = make([]byte, rig.MTU-40-60)
	list := r.List(t, 0, p.Flow())
	out := r.Send(t, rig.SignalFrom(list[0], p, wire.NotMine, 1))
	if out.Action != rig.XDPTX || !slices.Equal(out.Reasons, []string{"recover_returned", "too_big"}) && !slices.Equal(out.Reasons, []string{"too_big"}) {
		t.Fatalf("action %d for %v", out.Action, out.Reasons)
	}
	if got, want := out.Frame[:14], slices.Concat(rig.RouterMAC[:], rig.HereMAC[:], []byte{0x86, 0xdd}); !slices.Equal(got, want) {
		t.Errorf("link header %x, want %x", got, want)
	}
	checkTooBig(t, "given back", out.Frame[14:], p, rig.MTU-plan.LongestHeader(&r.Cfg.Services[0]))
}

// checkTooBig holds an ICMP "too big" against the frame that the client must see: from the
// VIP, about p as the client sent it, with room for every header of ours.
func checkTooBig(t *testing.T, label string, ip []byte, p rig.Packet, mtu int) {
	t.Helper()
	original := p.Ip()
	var src, dst netip.Addr
	var icmp []byte
	if p.Src.Addr().Is6() {
		src, dst, icmp = netip.AddrFrom16([16]byte(ip[8:24])), netip.AddrFrom16([16]byte(ip[24:40])), ip[40:]
		if int(binary.BigEndian.Uint16(ip[4:])) != len(icmp) || ip[6] != 58 || len(ip) > 1280 || ip[7] != 64 {
			t.Errorf("%s: IPv6 header %x of %d bytes", label, ip[:40], len(ip))
		}
		if got := (wire.IP{Source: src, Destination: dst}).Checksum(wire.ProtoICMPv6, icmp); got != 0 {
			t.Errorf("%s: checksum gives %#x", label, got)
		}
		if icmp[0] != 2 || icmp[1] != 0 || binary.BigEndian.Uint32(icmp[4:]) != uint32(max(mtu, 1280)) {
			t.Errorf("%s: ICMPv6 %x, want MTU %d", label, icmp[:8], mtu)
		}
	} else {
		src, dst, icmp = netip.AddrFrom4([4]byte(ip[12:16])), netip.AddrFrom4([4]byte(ip[16:20])), ip[20:]
		if int(binary.BigEndian.Uint16(ip[2:])) != len(ip) || ip[9] != 1 || len(ip) > 576 || wire.Checksum(ip[:20]) != 0 {
			t.Errorf("%s: IPv4 header %x of %d bytes", label, ip[:20], len(ip))
		}
		if got := wire.Checksum(icmp); got != 0 {
			t.Errorf("%s: checksum gives %#x", label, got)
		}
		if icmp[0] != 3 || icmp[1] != 4 || binary.BigEndian.Uint16(icmp[4:]) != 0 || binary.BigEndian.Uint16(icmp[6:]) != uint16(mtu) {
			t.Errorf("%s: ICMP %x, want MTU %d", label, icmp[:8], mtu)
		}
	}
	if src != p.Dst.Addr() || dst != p.Src.Addr() {
		t.Errorf("%s: from %v to %v", label, src, dst)
	}
	quote := icmp[8:]
	if len(quote) < 64 || !slices.Equal(quote, original[:len(quote)]) {
		t.Errorf("%s: quotes\n%x of\n%x", label, quote, original)
	}
}
