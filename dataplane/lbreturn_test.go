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

// without is a list less one server.
func without(list []int, server int) []int {
	return slices.DeleteFunc(slices.Clone(list), func(s int) bool { return s == server })
}

// final is what must leave for a SYN that one server had no listener for: the
// others must take it, and the last one's stack decides.
func final(p packet, servers []int) []netip.Addr {
	segments := ask(0xcf, policy.Generation(p.seq), servers...)
	for i := range segments {
		segments[i] = withFlags(segments[i], 2)
	}
	return segments
}

// testGivenBack: what a server does not want goes to the others, once; a stale
// entry goes if it names this server for this generation, and only then.
func testGivenBack(t *testing.T, seen hits) {
	for _, by := range []topo.Wire{topo.Encap, topo.Insert} {
		r := newLBRig(t, seen, hunting(3, 8, func(s *topo.Service) { s.Wire = by }))
		change := func(w *route) { w.insert = by == topo.Insert }
		p := inward(huntPort, syn)
		list := r.list(t, 0, p.flow())
		generation := policy.Generation(p.seq)
		back := func(server int, p packet, generation uint16) outcome {
			p.hop--
			return r.send(t, signalFrom(server, p, notMine, generation, change))
		}
		forward := func(p packet, servers []int, segments []netip.Addr) []byte {
			p.hop--
			return sent(p, hopMAC(servers[0]), segments, change)
		}
		rest := without(list, list[1])
		back(list[1], p, generation).is(t, "SYN", xdpTX, forward(p, rest, final(p, rest)), "offer_returned")

		r.learn(t, list[1], p.seq)
		p.flags = ack
		for _, c := range []struct {
			what       string
			server     int
			generation uint16
		}{{"another server's", list[2], generation}, {"another generation's", list[1], generation + 1}} {
			others := without(list, c.server)
			back(c.server, p, c.generation).
				is(t, c.what, xdpTX, forward(p, others, ask(0xe5, 0, others...)), "recover_returned")
			if _, known := r.flow(t, p.flow()); !known {
				t.Fatalf("%s word removed the entry", c.what)
			}
		}
		back(list[1], p, generation).
			is(t, "a stale flow", xdpTX, forward(p, rest, ask(0xe5, 0, rest...)), "recover_returned", "stale_removed")
		if _, known := r.flow(t, p.flow()); known {
			t.Error("the stale entry is still there")
		}
		r.accepted(t, list[1], inward(huntPort, syn))
		back(list[1], p, generation).
			is(t, "a stale embryo", xdpTX, forward(p, rest, ask(0xe5, 0, rest...)), "recover_returned", "stale_removed")
		if _, known := r.embryo(t, p.flow()); known {
			t.Error("the stale embryo is still there")
		}
		p.hop = 2
		back(list[1], p, generation).is(t, "at the end of its hops", xdpDrop, nil, "drop_hop_limit")
	}
}

// testGivenBackAlone: with nobody else to ask, the one that gave it back has the
// last word. A server that left the pool has none.
func testGivenBackAlone(t *testing.T, seen hits) {
	r := newLBRig(t, seen, hunting(2, 1))
	p := inward(huntPort, syn)
	r.send(t, signalFrom(0, p, notMine, policy.Generation(p.seq))).
		is(t, "SYN", xdpTX, sent(p, hopMAC(0), final(p, []int{0})), "offer_returned")
	p.flags = ack
	r.send(t, signalFrom(0, p, notMine, 5)).is(t, "data", xdpTX, recovered(p, []int{0}), "recover_returned")

	r.apply(t, hunting(2, 8))
	r.learn(t, 7, clientISN)
	r.apply(t, hunting(2, 6))
	list := r.list(t, 0, p.flow())
	r.send(t, p.frame()).is(t, "its server is gone", xdpTX, recovered(p, list), "recover", "stale_removed")
	if _, known := r.flow(t, p.flow()); known {
		t.Error("an entry of a server that is gone")
	}
	r.send(t, signalFrom(7, p, notMine, 5)).is(t, "from the one that is gone", xdpDrop, nil, "drop_unknown_sender")
}

// crowd is a service whose buckets have many members: every server of the farm
// was a candidate of every flow once, alone in its pool. The farm stands still.
func crowd(members int, change ...func(*topo.Service)) topo.Service {
	return hunting(1, members, append(change, func(s *topo.Service) {
		for i := range members {
			s.History = append(s.History, topo.Version{Version: members - i, Servers: farm(members)[i : i+1]})
		}
	})...)
}

// visit is one segment as it is met on the way.
type visit struct {
	server   int
	function byte
}

// walk follows a packet of a flow through its lists as the servers and the LB
// pass it on: every one of them gives it to the next. It returns whom it met.
func (r *lbRig) walk(t *testing.T, p packet, insert bool) (met []visit, rounds int) {
	t.Helper()
	frame := p.frame()
	for rounds = 1; rounds < 30; rounds++ {
		out := r.send(t, frame)
		if out.action != xdpTX {
			t.Fatalf("round %d: action %d for %v", rounds, out.action, out.reasons)
		}
		if len(out.frame) > 14+mtu {
			t.Fatalf("round %d: %d bytes", rounds, len(out.frame))
		}
		segments := segmentsOf(out.frame, insert)
		last := segments[len(segments)-1]
		for _, s := range segments {
			if a := s.As16(); !lbLocator.Contains(s) {
				met = append(met, visit{int(a[7]), a[9]})
			}
		}
		if !lbLocator.Contains(last) {
			return met, rounds
		}
		if a := last.As16(); a[9] != goOn || len(segments) < 2 {
			t.Fatalf("round %d goes on by %v", rounds, segments)
		}
		frame = arrivedAt(out.frame, last, insert)
	}
	t.Fatal("a list without end")
	return nil, 0
}

// segmentsOf reads a frame's route, first segment to last.
func segmentsOf(frame []byte, insert bool) []netip.Addr {
	list := []netip.Addr{netip.AddrFrom16([16]byte(frame[atDst:]))}
	if frame[atNext] != 43 {
		return list
	}
	entries := int(frame[atUpper+4]) + 1
	from := 0
	if insert { // the packet's own destination, …, the first again, the sender
		from, entries = 1, entries-2
	}
	for i := entries - 1; i >= from; i-- {
		list = append(list, netip.AddrFrom16([16]byte(frame[atUpper+8+16*i:])))
	}
	return list
}

// arrivedAt is a frame at the last of its segments, all others behind it.
func arrivedAt(frame []byte, last netip.Addr, insert bool) []byte {
	frame = slices.Clone(frame)
	copy(frame, hereMAC[:])
	copy(frame[atDst:], last.AsSlice())
	frame[atUpper+3] = 0
	if insert {
		frame[atUpper+3] = 1
	}
	return frame
}

// testContinued: FAILURES.md, pool change: when the header does not fit, the list
// is walked in rounds: everybody is asked once, and the last is a server.
func testContinued(t *testing.T, seen hits) {
	for _, c := range []struct {
		members int
		change  []func(*topo.Service)
	}{
		{15, nil}, {15, []func(*topo.Service){inserting}}, {14, nil}, {7, []func(*topo.Service){over4}},
		{15, []func(*topo.Service){viaTransit(1)}},
	} {
		svc := crowd(c.members, c.change...)
		r := newLBRig(t, seen, svc)
		insert := svc.Wire == topo.Insert
		for length := 60; length <= mtu-24; length++ {
			if length > 80 && length < mtu-270 {
				continue // a list of 14 fits all of them
			}
			p := inward(huntPort, ack)
			if !svc.VIP.Addr.Is6() {
				p = overIPv4(p)
			}
			p.hop = 100
			p.payload = make([]byte, length-(len(p.ip())))
			what := fmt.Sprintf("%d members, %v, %d via, %d bytes", c.members, svc.Wire, len(svc.Via), length)
			least := 64 // two segments
			if insert {
				least = 72
			}
			if mtu-length < least+16*len(svc.Via) {
				r.send(t, p.frame()).is(t, what, xdpTX, nil, "too_big")
				continue
			}
			want := r.union(t, 0, p.flow())
			met, rounds := r.walk(t, p, insert)
			met = slices.DeleteFunc(met, func(v visit) bool { return v.function == 0xe })
			got := make([]int, len(met))
			for i, v := range met {
				got[i] = v.server
				if v.function != 0xe5 {
					t.Fatalf("%s: %v", what, met)
				}
			}
			if len(want) != c.members || !slices.Equal(got, want) {
				t.Fatalf("%s: %d rounds met %v, want %v", what, rounds, got, want)
			}
			if length > 1460-24 && rounds < 2 {
				t.Fatalf("%s: one round", what)
			}
		}
		p := inward(huntPort, ack)
		if svc.VIP.Addr.Is6() {
			testGoneOn(t, r, p, insert)
		}
	}
}

// testGoneOn: what comes back to the LB goes on where the report says.
func testGoneOn(t *testing.T, r *lbRig, p packet, insert bool) {
	union := r.union(t, 0, p.flow())
	report := withReport(sid(lbLocator, goOn, 0), 3)
	back := route{from: lbLocator, segments: []netip.Addr{report}, hop: 63, insert: insert}
	frame := ethernet(hereMAC, routerMAC, back.around(p))
	out := r.send(t, frame)
	if met := segmentsOf(out.frame, insert); out.action != xdpTX || !slices.Equal(out.reasons, []string{"list_continued"}) ||
		!slices.ContainsFunc(met, func(a netip.Addr) bool { return a == sid(serverLocator(union[3]), goOn, 0) }) ||
		slices.Contains(met, sid(serverLocator(union[2]), goOn, 0)) {
		t.Errorf("from place 3 on: %v for %v", met, out.reasons)
	}
	past := withReport(sid(lbLocator, goOn, 0), 40)
	back.segments = []netip.Addr{past}
	r.send(t, ethernet(hereMAC, routerMAC, back.around(p))).is(t, "past the end", xdpDrop, nil, "drop_no_server")
}

// TestReturnedTooBig: a packet that one server gives back and that the list of
// the others does not fit is answered to its client.
func TestReturnedTooBig(t *testing.T) {
	r := newLBRig(t, hits{}, hunting(4, 8))
	p := inward(huntPort, ack)
	p.payload = make([]byte, mtu-40-60)
	list := r.list(t, 0, p.flow())
	out := r.send(t, signalFrom(list[0], p, notMine, 1))
	if out.action != xdpTX || !slices.Equal(out.reasons, []string{"recover_returned", "too_big"}) && !slices.Equal(out.reasons, []string{"too_big"}) {
		t.Fatalf("action %d for %v", out.action, out.reasons)
	}
	if got, want := out.frame[:14], slices.Concat(routerMAC[:], hereMAC[:], []byte{0x86, 0xdd}); !slices.Equal(got, want) {
		t.Errorf("link header %x, want %x", got, want)
	}
	checkTooBig(t, "given back", out.frame[14:], p, mtu-longestHeader(&r.cfg.Services[0]))
}

// checkTooBig holds an ICMP "too big" against what the client must see: from the
// VIP, about p as the client sent it, with room for every header of ours.
func checkTooBig(t *testing.T, what string, ip []byte, p packet, mtu int) {
	t.Helper()
	original := p.ip()
	var src, dst netip.Addr
	var icmp []byte
	if p.src.Addr().Is6() {
		src, dst, icmp = netip.AddrFrom16([16]byte(ip[8:24])), netip.AddrFrom16([16]byte(ip[24:40])), ip[40:]
		if int(binary.BigEndian.Uint16(ip[4:])) != len(icmp) || ip[6] != 58 || len(ip) > 1280 || ip[7] != 64 {
			t.Errorf("%s: IPv6 header %x of %d bytes", what, ip[:40], len(ip))
		}
		if got := ^checksum(src, dst, 58, icmp); got != 0xffff {
			t.Errorf("%s: checksum gives %#x", what, got)
		}
		if icmp[0] != 2 || icmp[1] != 0 || binary.BigEndian.Uint32(icmp[4:]) != uint32(max(mtu, 1280)) {
			t.Errorf("%s: ICMPv6 %x, want MTU %d", what, icmp[:8], mtu)
		}
	} else {
		src, dst, icmp = netip.AddrFrom4([4]byte(ip[12:16])), netip.AddrFrom4([4]byte(ip[16:20])), ip[20:]
		if int(binary.BigEndian.Uint16(ip[2:])) != len(ip) || ip[9] != 1 || len(ip) > 576 || sum(ip[:20]) != 0xffff {
			t.Errorf("%s: IPv4 header %x of %d bytes", what, ip[:20], len(ip))
		}
		if got := sum(icmp); got != 0xffff {
			t.Errorf("%s: checksum gives %#x", what, got)
		}
		if icmp[0] != 3 || icmp[1] != 4 || binary.BigEndian.Uint16(icmp[4:]) != 0 || binary.BigEndian.Uint16(icmp[6:]) != uint16(mtu) {
			t.Errorf("%s: ICMP %x, want MTU %d", what, icmp[:8], mtu)
		}
	}
	if src != p.dst.Addr() || dst != p.src.Addr() {
		t.Errorf("%s: from %v to %v", what, src, dst)
	}
	quote := icmp[8:]
	if len(quote) < 64 || !slices.Equal(quote, original[:len(quote)]) {
		t.Errorf("%s: quotes\n%x of\n%x", what, quote, original)
	}
}
