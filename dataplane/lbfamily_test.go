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

// testLBIPv4: a service of IPv4 travels in the same segments, protocol 4 inside;
// every header that is changed keeps a right checksum.
func testLBIPv4(t *testing.T, seen hits) {
	r := newLBRig(t, seen, hunting(2, 8, over4))
	p := overIPv4(inward(huntPort, syn))
	list := r.list(t, 0, p.flow())
	for _, class := range []byte{0, 0x2e, 0xff} {
		for _, hop := range []byte{2, 64, 128, 255} {
			p.class, p.hop, p.seq = class, hop, p.seq+1
			out := r.send(t, p.frame())
			out.is(t, fmt.Sprintf("TOS %#02x, TTL %d", class, hop), xdpTX, offered(p, list), "offer")
			inner := out.frame[len(out.frame)-40:]
			if sum(inner[:20]) != 0xffff || out.frame[atUpper] != 4 {
				t.Fatalf("inner header %x behind protocol %d", inner[:20], out.frame[atUpper])
			}
		}
	}
	r.accepted(t, 3, p)
	p.flags, p.ack = ack, serverISN+1
	r.send(t, p.frame()).is(t, "steered", xdpTX, toOne(p, 3, 0xa5, policy.Generation(p.seq)), "flow_established", "steer")
	for _, hop := range []byte{2, 64, 255} {
		answer := p.reply(fin | ack)
		answer.hop, answer.class = hop, 0xb9
		r.send(t, signalFrom(3, answer, remove, policy.Generation(p.seq))).
			is(t, fmt.Sprint("unwrapped, TTL ", hop), xdpTX, unwrapped(answer), "stickiness_removed")
	}
	p.hop--
	rest := without(list, 3)
	if len(rest) == 2 {
		rest = list
	}
	back := p
	back.hop--
	r.send(t, signalFrom(3, p, notMine, 1)).is(t, "given back", xdpTX, recovered(p, rest), "recover_returned")
}

// TestIPv4NextHops: the longest prefix says which neighbour, also for IPv4.
func TestIPv4NextHops(t *testing.T) {
	r := newLBRig(t, hits{}, hunting(2, 8, over4))
	near := map[string]topo.MAC{"192.0.2.7": hopMAC(7), "192.0.2.6": hopMAC(6), "192.0.2.8": hopMAC(8), "10.0.0.1": hopMAC(9)}
	err := r.SetNextHops(topo.NextHops{
		netip.MustParsePrefix("192.0.2.7/32"): hopMAC(7), netip.MustParsePrefix("192.0.2.6/32"): hopMAC(6),
		netip.MustParsePrefix("192.0.2.0/24"): hopMAC(8), netip.MustParsePrefix("0.0.0.0/0"): hopMAC(9),
	})
	if err != nil {
		t.Fatal(err)
	}
	for client, mac := range near {
		p := overIPv4(outward(huntPort, ack))
		p.dst = netip.AddrPortFrom(netip.MustParseAddr(client), clientPort)
		want := unwrapped(p)
		copy(want, mac[:])
		r.send(t, signalFrom(1, p, create, 5)).is(t, client, xdpTX, want, "stickiness_recovered")
	}
}

// testLBUDP: an unknown datagram is a question, then an offer; what a server
// answers pins it, once the client says more.
func testLBUDP(t *testing.T, seen hits) {
	for _, change := range []func(*topo.Service){func(*topo.Service) {}, inserting, over4} {
		svc := hunting(2, 8, overUDP, change, func(s *topo.Service) {
			s.History = []topo.Version{{Version: 1, Servers: farm(8)[3:]}}
		})
		r := newLBRig(t, seen, svc)
		carried := func(w *route) { w.insert = svc.Wire == topo.Insert }
		p := datagram(huntPort, "first")
		if svc.VIP.Addr.Is4() {
			p = overIPv4(p)
		}
		list, union := r.list(t, 0, p.flow()), r.union(t, 0, p.flow())
		laps := func(union, list []int) []netip.Addr {
			offers := ask(0xca, 0, list...)
			offers[len(offers)-1] = sid(serverLocator(list[len(list)-1]), 0xcf, 0)
			return slices.Concat(ask(0xe5, 0, union...), offers)
		}
		want := sent(p, hopMAC(union[0]), laps(union, list), carried)
		r.send(t, p.frame()).is(t, "unknown", xdpTX, want, "offer_datagram")
		r.send(t, p.frame()).is(t, "unknown still", xdpTX, want, "offer_datagram")

		answer := p.reply(0)
		r.send(t, signalFrom(list[1], answer, create, 9, carried)).is(t, "answer", xdpTX, unwrapped(answer), "stickiness_created")
		r.send(t, signalFrom(list[1], answer, create, 9, carried)).is(t, "another", xdpTX, unwrapped(answer), "stickiness_repeated")
		r.send(t, signalFrom(list[0], answer, create, 9, carried)).
			is(t, "another server's", xdpDrop, nil, "drop_stickiness_conflict", "stickiness_conflict")
		steer := sent(p, hopMAC(list[1]), ask(0xa5, 9, list[1]), carried)
		r.send(t, p.frame()).is(t, "the client again", xdpTX, steer, "flow_established", "steer")
		r.send(t, p.frame()).is(t, "and again", xdpTX, steer, "steer")
		r.send(t, signalFrom(list[1], answer, create, 9, carried)).is(t, "answer", xdpTX, unwrapped(answer), "stickiness_repeated")

		others := without(union, list[1])
		r.send(t, signalFrom(list[1], p, notMine, 9, carried)).is(t, "not mine", xdpTX,
			sent(p, hopMAC(others[0]), laps(others, without(list, list[1])), carried), "recover_returned", "stale_removed")
		forced := ask(0xcf, 0, list[0])
		forced[0] = withFlags(forced[0], sidFinal)
		r.send(t, signalFrom(list[1], p, notMine, 0, carried)).
			is(t, "nobody listens", xdpTX, sent(p, hopMAC(list[0]), forced, carried), "offer_returned")
	}
	r := newLBRig(t, seen, crowd(15, overUDP))
	p := datagram(huntPort, "x")
	met, rounds := r.walk(t, p, false)
	want := append(r.union(t, 0, p.flow()), r.list(t, 0, p.flow())...)
	for i, v := range met {
		function := byte(0xe5)
		if i == len(want)-1 {
			function = 0xcf
		}
		if len(met) != 16 || rounds != 2 || v != (visit{want[i], function}) {
			t.Fatalf("%d rounds met %v, want %v", rounds, met, want)
		}
	}
}

// testLBEcho: the VIP answers pings by itself, whatever the rest of the packet.
func testLBEcho(t *testing.T, seen hits) {
	r := newLBRig(t, seen, hunting(2, 4), hunting(2, 4, over4), service(81, topo.Single, 1, 2))
	for _, length := range []int{0, 1, 56, 1400} {
		payload := make([]byte, length)
		for i := range payload {
			payload[i] = byte(i * 7)
		}
		r.send(t, echo(inward(0, 0), 128, payload)).
			is(t, fmt.Sprintf("IPv6, %d bytes", length), xdpTX, echo(pong(inward(0, 0)), 129, payload), "echo_reply")
		four := overIPv4(inward(0, 0))
		r.send(t, echo(four, 8, payload)).
			is(t, fmt.Sprintf("IPv4, %d bytes", length), xdpTX, echo(pong(four), 0, payload), "echo_reply")
	}
	reply := echo(inward(0, 0), 129, nil)
	r.send(t, reply).is(t, "an echo reply", xdpPass, reply, "pass_not_service")
	other := inward(0, 0)
	other.dst = netip.MustParseAddrPort("[2001:db8:f::2]:0")
	elsewhere := echo(other, 128, nil)
	r.send(t, elsewhere).is(t, "another address", xdpPass, elsewhere, "pass_not_service")
	cut := echo(inward(0, 0), 128, make([]byte, 10))
	r.send(t, cut[:len(cut)-1]).is(t, "cut short", xdpDrop, nil, "drop_truncated")
}

// pong is the direction of the answer, from this node, with a hop limit of its own.
func pong(p packet) packet {
	p = p.reply(0)
	p.to, p.from, p.hop = routerMAC, hereMAC, 64
	return p
}

// echo is an ICMP echo message of this type between p's addresses.
func echo(p packet, kind byte, payload []byte) []byte {
	icmp := append([]byte{kind, 0, 0, 0, 0x12, 0x34, 0, 1}, payload...)
	next := byte(1)
	if p.src.Addr().Is6() {
		next = 58
		binary.BigEndian.PutUint16(icmp[2:], checksum(p.src.Addr(), p.dst.Addr(), 58, icmp))
	} else {
		binary.BigEndian.PutUint16(icmp[2:], ^sum(icmp))
	}
	return ethernet(p.to, p.from, p.around(next, icmp))
}

// testLBFragments: a service that takes them hashes all of its packets by addresses
// alone, so that fragments, first or not, go where the whole packets go; elsewhere
// they are dropped.
func testLBFragments(t *testing.T, seen hits) {
	hashed := func(s *topo.Service) { s.Fragments = topo.HashFragments }
	six, four := service(81, topo.Single, 1, 8), service(81, topo.Single, 1, 8)
	hashed(&six)
	hashed(&four)
	over4(&four)
	r := newLBRig(t, seen, hunting(2, 8), six, four)
	targets := map[int]bool{}
	for i := range 40 {
		for _, p := range []packet{inward(81, ack), overIPv4(inward(81, ack))} {
			a := p.src.Addr().AsSlice()
			a[len(a)-1] = byte(i + 1)
			client, _ := netip.AddrFromSlice(a)
			p.src = netip.AddrPortFrom(client, 1)
			server := int(r.send(t, p.frame()).frame[atDst+7])
			targets[server] = true
			for port := range uint16(5) {
				p.src = netip.AddrPortFrom(client, 1000+port)
				r.send(t, p.frame()).is(t, "whole", xdpTX, toOne(p, server, 0xd7, 0), "deliver")
			}
			for _, f := range fragmentsOf(p) {
				out := r.send(t, f)
				out.is(t, "fragment", xdpTX, nil, "deliver")
				want := slices.Clone(f[14:])
				if p.src.Addr().Is6() {
					want[7]--
				} else {
					want[8]--
					clear(want[10:12])
					binary.BigEndian.PutUint16(want[10:], ^sum(want[:20]))
				}
				if int(out.frame[atDst+7]) != server || !slices.Equal(out.frame[atUpper:], want) {
					t.Fatalf("fragment went to %d, want %d:\n got %x\nwant %x", out.frame[atDst+7], server, out.frame[atUpper:], want)
				}
			}
		}
	}
	if len(targets) < 6 {
		t.Errorf("40 clients of either family meet %d of 8 servers", len(targets))
	}
	r.apply(t, hunting(2, 8), service(81, topo.Single, 1, 8))
	for _, f := range fragmentsOf(inward(81, ack)) {
		r.send(t, f).is(t, "not taken any more", xdpDrop, nil, "drop_fragment")
	}
	for _, f := range fragmentsOf(overIPv4(inward(81, ack))) {
		r.send(t, f).is(t, "nobody's VIP any more", xdpPass, f, "pass_not_service")
	}
}

// fragmentsOf are a first and a later fragment of p: what they say inside is
// nobody's business (RFC 8200 §4.5, RFC 791 §3.1).
func fragmentsOf(p packet) [][]byte {
	body := p.tcp()
	if p.src.Addr().Is4() {
		first, later := p.ip(), p.ip()
		first[6], later[6], later[7] = 0x20, 0, 3
		for _, ip := range [][]byte{first, later} {
			clear(ip[10:12])
			binary.BigEndian.PutUint16(ip[10:], ^sum(ip[:20]))
		}
		return [][]byte{ethernet(p.to, p.from, first), ethernet(p.to, p.from, later)}
	}
	first := append([]byte{6, 0, 0, 1, 1, 2, 3, 4}, body...)
	later := append([]byte{6, 0, 0, 24, 1, 2, 3, 4}, body...)
	return [][]byte{ethernet(p.to, p.from, p.around(44, first)), ethernet(p.to, p.from, p.around(44, later))}
}
