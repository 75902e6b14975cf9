package lb_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"proffer/dataplane/objects"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// testLBIPv4: a service of IPv4 travels in the same segments, protocol 4 inside;
// every header that is changed keeps a right checksum.
func testLBIPv4(t *testing.T, seen rig.Hits) {
	r := rig.NewLB(t, seen, rig.Hunting(2, 8, rig.Over4))
	p := rig.OverIPv4(rig.Inward(rig.HuntPort, wire.SYN))
	list := r.List(t, 0, p.Flow())
	for _, class := range []byte{0, 0x2e, 0xff} {
		for _, hop := range []byte{2, 64, 128, 255} {
			p.Class, p.Hop, p.Seq = class, hop, p.Seq+1
			out := r.Send(t, p.Frame())
			out.Is(t, fmt.Sprintf("TOS %#02x, TTL %d", class, hop), rig.XDPTX, rig.Offered(p, list), "offer")
			inner := out.Frame[len(out.Frame)-40:]
			if wire.Checksum(inner[:20]) != 0 || out.Frame[rig.AtUpper] != 4 {
				t.Fatalf("inner header %x behind protocol %d", inner[:20], out.Frame[rig.AtUpper])
			}
		}
	}
	owner := list[0]
	r.Accepted(t, owner, p)
	p.Flags, p.Ack = wire.ACK, rig.ServerISN+1
	r.Send(t, p.Frame()).Is(t, "steered", rig.XDPTX, rig.ToOne(p, owner, wire.AckStickiness, wire.Generation(p.Seq)), "flow_established", "steer")
	for _, hop := range []byte{2, 64, 255} {
		answer := p.Reply(wire.FIN | wire.ACK)
		answer.Hop, answer.Class = hop, 0xb9
		r.Send(t, rig.SignalFrom(owner, answer, wire.RemoveStickiness, wire.Generation(p.Seq))).
			Is(t, fmt.Sprint("unwrapped, TTL ", hop), rig.XDPTX, rig.Unwrapped(answer), "stickiness_removed")
	}
	p.Hop--
	rest := without(list, owner)
	back := p
	back.Hop--
	r.Send(t, rig.SignalFrom(owner, p, wire.NotMine, 1)).Is(t, "given back", rig.XDPTX, rig.Recovered(p, rest), "recover_returned")
}

// TestIPv4NextHops: the longest prefix gives the neighbour, also for IPv4.
func TestIPv4NextHops(t *testing.T) {
	r := rig.NewLB(t, rig.Hits{}, rig.Hunting(2, 8, rig.Over4, rig.Members))
	near := map[string]topo.MAC{"192.0.2.7": rig.HopMAC(7), "192.0.2.6": rig.HopMAC(6), "192.0.2.8": rig.HopMAC(8), "10.0.0.1": rig.HopMAC(9)}
	err := r.SetNextHops(topo.NextHops{
		netip.MustParsePrefix("192.0.2.7/32"): rig.HopMAC(7), netip.MustParsePrefix("192.0.2.6/32"): rig.HopMAC(6),
		netip.MustParsePrefix("192.0.2.0/24"): rig.HopMAC(8), netip.MustParsePrefix("0.0.0.0/0"): rig.HopMAC(9),
	})
	if err != nil {
		t.Fatal(err)
	}
	for client, mac := range near {
		p := rig.OverIPv4(rig.Outward(rig.HuntPort, wire.ACK))
		p.Dst = netip.AddrPortFrom(netip.MustParseAddr(client), rig.ClientPort)
		want := rig.Unwrapped(p)
		copy(want, mac[:])
		r.Send(t, rig.SignalFrom(1, p, wire.CreateStickiness, 5)).Is(t, client, rig.XDPTX, want, "stickiness_recovered")
	}
}

// TestDefaultRoutes: whichever routes come and go beside the default ones, a packet goes by the
// longest prefix.
func TestDefaultRoutes(t *testing.T) {
	r := rig.NewLB(t, rig.Hits{}, rig.Hunting(2, 8, rig.Members), rig.Hunting(2, 8, rig.Over4, rig.Members))
	clients := []string{"192.0.2.7", "192.0.2.6", "192.0.3.1", "192.1.0.1", "10.0.0.1", "2001:db8:1:2::7", "2001:db8:1:3::7", "2001:db9::1", "2a00::1", "::7"}
	routes := []string{"0.0.0.0/0", "::/0", "192.0.2.7/32", "192.0.2.0/24", "192.0.0.0/15", "128.0.0.0/1", "0.0.0.0/5",
		"2001:db8:1:2::7/128", "2001:db8:1:2::/64", "2001:db8::/32", "2000::/5", "::/3", "::/64", "::7/128"}
	rng := rand.New(rand.NewPCG(5, 6))
	hops := topo.NextHops{}
	for range 300 {
		prefix := netip.MustParsePrefix(routes[rng.IntN(len(routes))])
		if rng.IntN(3) == 0 && prefix.Bits() > 0 || rng.IntN(9) == 0 {
			delete(hops, prefix)
		} else {
			hops[prefix] = rig.HopMAC(rng.IntN(8))
		}
		if err := r.SetNextHops(maps.Clone(hops)); err != nil {
			t.Fatal(err)
		}
		for i, client := range clients {
			p := rig.Outward(rig.HuntPort, wire.ACK)
			if a := netip.MustParseAddr(client); a.Is4() {
				p = rig.OverIPv4(p)
			}
			p.Dst = netip.AddrPortFrom(netip.MustParseAddr(client), uint16(rig.ClientPort+i))
			mac, known := hops.Lookup(p.Dst.Addr())
			if _, other := hops.Lookup(netip.IPv6Unspecified()); p.Dst.Addr().Is4() && !known && other {
				continue // the programs' table has IPv4 inside of IPv6
			}
			got := r.Run(t, rig.SignalFrom(1, p, wire.CreateStickiness, 5))
			if sent := got.Action == rig.XDPTX; sent != known || sent && topo.MAC(got.Frame[:6]) != mac {
				t.Fatalf("%v: %s goes to % x (action %d), want %v, %v", hops, client, got.Frame[:6], got.Action, mac, known)
			}
		}
	}
}

// TestDefaultRoutesChange: while routes change, a packet goes by the longest prefix of before or
// of after the change; then by the default route without a search, which is gone from the table here.
func TestDefaultRoutesChange(t *testing.T) {
	r := rig.NewLB(t, rig.Hits{}, rig.Hunting(2, 8, rig.Members))
	p := rig.Outward(rig.HuntPort, wire.ACK)
	p.Dst = netip.MustParseAddrPort("[2001:db8:1:2::7]:4711")
	frame := rig.SignalFrom(1, p, wire.CreateStickiness, 5)
	all, longer := netip.MustParsePrefix("::/0"), netip.MustParsePrefix("2001:db8::/32")
	// A default route that no packet here may take: there is a longer one at that time.
	routes := []topo.NextHops{{all: rig.HopMAC(1)}, {all: rig.HopMAC(2), longer: rig.HopMAC(3)}}
	set := func(hops topo.NextHops) {
		if err := r.SetNextHops(hops); err != nil {
			t.Error(err)
		}
	}
	set(routes[0])
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 2000 {
			set(routes[(i+1)%2])
		}
	}()
	for changing := true; changing; {
		select {
		case <-done:
			changing = false
		default:
		}
		got := r.Run(t, frame)
		if mac := topo.MAC(got.Frame[:6]); got.Action != rig.XDPTX || mac != rig.HopMAC(1) && mac != rig.HopMAC(3) {
			t.Errorf("while routes change, a packet goes to %v (action %d)", mac, got.Action)
			<-done
			return
		}
	}
	if err := r.HopMap.Delete(objects.LBPrefix{}); err != nil {
		t.Fatal(err)
	}
	if got := r.Run(t, frame); got.Action != rig.XDPTX || topo.MAC(got.Frame[:6]) != rig.HopMAC(1) {
		t.Errorf("a packet by the default route searches for it (action %d)", got.Action)
	}
}

// testLBUDP: an unknown datagram is a question, then an offer; a server's
// answer pins the flow, once the client sends more.
func testLBUDP(t *testing.T, seen rig.Hits) {
	for _, change := range []func(*topo.Service){func(*topo.Service) {}, rig.Inserting, rig.Over4} {
		svc := rig.Hunting(2, 8, rig.OverUDP, change, func(s *topo.Service) {
			s.History = []topo.Version{{Version: 1, Servers: rig.Farm(8)[3:]}}
		})
		r := rig.NewLB(t, seen, svc)
		carried := func(w *rig.Route) { w.Insert = svc.Wire == topo.Insert }
		p := rig.Datagram(rig.HuntPort, "first")
		if svc.VIP.Addr.Is4() {
			p = rig.OverIPv4(p)
		}
		list, union := r.List(t, 0, p.Flow()), r.Union(t, 0, p.Flow())
		laps := func(union, list []int) []netip.Addr {
			offers := rig.Ask(wire.ConnectAvail, 0, list...)
			offers[len(offers)-1] = rig.SID(rig.ServerLocator(list[len(list)-1]), wire.ConnectForce, 0)
			return slices.Concat(rig.Ask(wire.RecoverStickiness, 0, union...), offers)
		}
		want := rig.Sent(p, rig.HopMAC(union[0]), laps(union, list), carried)
		r.Send(t, p.Frame()).Is(t, "unknown", rig.XDPTX, want, "offer_datagram")
		r.Send(t, p.Frame()).Is(t, "unknown still", rig.XDPTX, want, "offer_datagram")

		answer := p.Reply(0)
		r.Send(t, rig.SignalFrom(list[1], answer, wire.CreateStickiness, 9, carried)).Is(t, "answer", rig.XDPTX, rig.Unwrapped(answer), "stickiness_created")
		r.Send(t, rig.SignalFrom(list[1], answer, wire.CreateStickiness, 9, carried)).Is(t, "another", rig.XDPTX, rig.Unwrapped(answer), "stickiness_repeated")
		r.Send(t, rig.SignalFrom(list[0], answer, wire.CreateStickiness, 9, carried)).
			Is(t, "another server's", rig.XDPDrop, nil, "drop_stickiness_conflict", "stickiness_conflict")
		steer := rig.Sent(p, rig.HopMAC(list[1]), rig.Ask(wire.AckStickiness, 9, list[1]), carried)
		r.Send(t, p.Frame()).Is(t, "the client again", rig.XDPTX, steer, "flow_established", "steer")
		r.Send(t, p.Frame()).Is(t, "and again", rig.XDPTX, steer, "steer")
		r.Send(t, rig.SignalFrom(list[1], answer, wire.CreateStickiness, 9, carried)).Is(t, "answer", rig.XDPTX, rig.Unwrapped(answer), "stickiness_repeated")

		others := without(union, list[1])
		r.Send(t, rig.SignalFrom(list[1], p, wire.NotMine, 9)).Is(t, "not mine", rig.XDPTX,
			rig.Sent(p, rig.HopMAC(others[0]), laps(others, without(list, list[1])), carried), "recover_returned", "stale_removed")
		forced := rig.Ask(wire.ConnectForce, 0, list[0])
		forced[0] = rig.WithFlags(forced[0], wire.Final)
		r.Send(t, rig.SignalFrom(list[1], p, wire.NotMine, 0)).
			Is(t, "no listener", rig.XDPTX, rig.Sent(p, rig.HopMAC(list[0]), forced, carried), "offer_returned")
	}
	r := rig.NewLB(t, seen, crowd(15, rig.OverUDP))
	p := rig.Datagram(rig.HuntPort, "x")
	met, rounds := walk(r, t, p, false)
	want := append(r.Union(t, 0, p.Flow()), r.List(t, 0, p.Flow())...)
	for i, v := range met {
		function := wire.RecoverStickiness
		if i == len(want)-1 {
			function = wire.ConnectForce
		}
		if len(met) != 16 || rounds != 3 || v != (visit{want[i], function}) {
			t.Fatalf("%d rounds met %v, want %v", rounds, met, want)
		}
	}
}

// testLBEcho: the VIP answers pings by itself, whatever the rest of the packet.
func testLBEcho(t *testing.T, seen rig.Hits) {
	r := rig.NewLB(t, seen, rig.Hunting(2, 4), rig.Hunting(2, 4, rig.Over4), rig.Service(81, topo.Stateless, 1, 2))
	for _, length := range []int{0, 1, 56, 1400} {
		payload := make([]byte, length)
		for i := range payload {
			payload[i] = byte(i * 7)
		}
		r.Send(t, rig.Echo(rig.Inward(0, 0), 128, payload)).
			Is(t, fmt.Sprintf("IPv6, %d bytes", length), rig.XDPTX, rig.Echo(pong(rig.Inward(0, 0)), 129, payload), "echo_reply")
		four := rig.OverIPv4(rig.Inward(0, 0))
		r.Send(t, rig.Echo(four, 8, payload)).
			Is(t, fmt.Sprintf("IPv4, %d bytes", length), rig.XDPTX, rig.Echo(pong(four), 0, payload), "echo_reply")
	}
	other := rig.Inward(0, 0)
	other.Dst = netip.MustParseAddrPort("[2001:db8:f::2]:0")
	elsewhere := rig.Echo(other, 128, nil)
	r.Send(t, elsewhere).Is(t, "another address", rig.XDPPass, elsewhere, "pass_not_service")
	cut := rig.Echo(rig.Inward(0, 0), 128, make([]byte, 10))
	r.Send(t, cut[:len(cut)-1]).Is(t, "cut short", rig.XDPDrop, nil, "drop_truncated")
}

// pong is the direction of the answer, from this node, with a hop limit of its own.
func pong(p rig.Packet) rig.Packet {
	p = p.Reply(0)
	p.To, p.From, p.Hop = rig.RouterMAC, rig.HereMAC, 64
	return p
}

// testLBFragments: a service that takes them hashes all of its packets by addresses
// alone, so that fragments, first or not, go where the whole packets go; elsewhere
// they are dropped.
func testLBFragments(t *testing.T, seen rig.Hits) {
	hashed := func(s *topo.Service) { s.Fragments = topo.HashFragments }
	six, four := rig.Service(81, topo.Stateless, 1, 8), rig.Service(81, topo.Stateless, 1, 8)
	hashed(&six)
	hashed(&four)
	rig.Over4(&four)
	r := rig.NewLB(t, seen, rig.Hunting(2, 8), six, four)
	targets := map[int]bool{}
	for i := range 40 {
		for _, p := range []rig.Packet{rig.Inward(81, wire.ACK), rig.OverIPv4(rig.Inward(81, wire.ACK))} {
			a := p.Src.Addr().AsSlice()
			a[len(a)-1] = byte(i + 1)
			client, _ := netip.AddrFromSlice(a)
			p.Src = netip.AddrPortFrom(client, 1)
			server := int(r.Send(t, p.Frame()).Frame[rig.AtDst+7])
			targets[server] = true
			for port := range uint16(5) {
				p.Src = netip.AddrPortFrom(client, 1000+port)
				r.Send(t, p.Frame()).Is(t, "whole", rig.XDPTX, rig.ToOne(p, server, wire.Deliver, 0), "deliver")
			}
			for _, f := range fragmentsOf(p) {
				out := r.Send(t, f)
				out.Is(t, "fragment", rig.XDPTX, nil, "deliver")
				want := slices.Clone(f[14:])
				if p.Src.Addr().Is6() {
					want[7]--
				} else {
					want[8]--
					rig.Resum(want)
				}
				if int(out.Frame[rig.AtDst+7]) != server || !slices.Equal(out.Frame[rig.AtUpper:], want) {
					t.Fatalf("fragment went to %d, want %d:\n got %x\nwant %x", out.Frame[rig.AtDst+7], server, out.Frame[rig.AtUpper:], want)
				}
			}
		}
	}
	if len(targets) < 6 {
		t.Errorf("40 clients of either family meet %d of 8 servers", len(targets))
	}
	r.Reconfigure(t, rig.Hunting(2, 8), rig.Service(81, topo.Stateless, 1, 8))
	for _, f := range fragmentsOf(rig.Inward(81, wire.ACK)) {
		r.Send(t, f).Is(t, "not taken any more", rig.XDPDrop, nil, "drop_fragment")
	}
	for _, f := range fragmentsOf(rig.OverIPv4(rig.Inward(81, wire.ACK))) {
		r.Send(t, f).Is(t, "a VIP no more", rig.XDPPass, f, "pass_not_service")
	}
}

// fragmentsOf are a first and a later fragment of p: the LB
// does not read their payload (RFC 8200 §4.5, RFC 791 §3.1).
func fragmentsOf(p rig.Packet) [][]byte {
	if p.Src.Addr().Is4() {
		first, later := p.Ip(), p.Ip()
		first[6], later[6], later[7] = 0x20, 0, 3
		for _, ip := range [][]byte{first, later} {
			rig.Resum(ip)
		}
		return [][]byte{wire.Frame(p.To, p.From, first), wire.Frame(p.To, p.From, later)}
	}
	body := p.Ip()[wire.IPv6Bytes:]
	first := append([]byte{6, 0, 0, 1, 1, 2, 3, 4}, body...)
	later := append([]byte{6, 0, 0, 24, 1, 2, 3, 4}, body...)
	return [][]byte{wire.Frame(p.To, p.From, p.Around(44, first)), wire.Frame(p.To, p.From, p.Around(44, later))}
}
