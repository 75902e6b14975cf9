package lb_test

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"proffer/dataplane/objects"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// byClient gives a service affinity.
func byClient(s *topo.Service) { s.Affinity, s.AffinityTime = topo.ClientAffinity, time.Minute }

// connection is the i-th of a client, which is one of many.
func connection(who, i int, port uint16, flags byte) rig.Packet {
	p := rig.Inward(port, flags)
	p.Src = netip.AddrPortFrom(rig.ClientNumber(who), uint16(2000+i))
	return p
}

// homeOf are the candidates of all flows of a client.
func homeOf(t *testing.T, r *rig.LB, p rig.Packet) []int {
	t.Helper()
	p.Src = netip.AddrPortFrom(p.Src.Addr(), 0)
	return r.List(t, 0, p.Flow())
}

// testAffinityOfOffers: once a server took a client's connection, it must take the client's next ones, while packets of
// the client come and the server gets new flows. Other clients' connections are offered as ever.
func testAffinityOfOffers(t *testing.T, seen rig.Hits) {
	for _, change := range []func(*topo.Service){func(*topo.Service) {}, rig.Over4, rig.Inserting} {
		svc := rig.Hunting(2, 8, byClient, change)
		r := rig.NewLB(t, seen, svc)
		anyClient(t, r)
		of := func(who, i int, flags byte) rig.Packet {
			p := connection(who, i, rig.HuntPort, flags)
			if svc.VIP.Addr.Is4() {
				p = rig.OverIPv4(p)
				p.Src = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 1, byte(who)}), p.Src.Port())
			}
			return p
		}
		insert := func(w *rig.Route) { w.Insert = svc.Wire == topo.Insert }
		offered := func(label string, p rig.Packet, reason string, servers ...int) {
			t.Helper()
			segments := rig.Offer(p, 0, servers...)
			if reason == "offer_same_client" {
				segments[0] = rig.SID(rig.ServerLocator(servers[0]), wire.ConnectForce, wire.Generation(p.Seq))
			}
			r.Send(t, p.Frame()).Is(t, label, rig.XDPTX, rig.Sent(p, rig.HopMAC(servers[0]), segments, insert), reason)
		}
		list := homeOf(t, r, of(1, 0, wire.SYN))
		first := of(1, 1, wire.SYN)
		offered("the first connection", first, "offer", list...)
		offered("one beside it", of(1, 2, wire.SYN), "offer", list...)
		r.Accepted(t, list[1], first)
		offered("once it was taken", of(1, 3, wire.SYN), "offer_same_client", list[1], list[0])
		offered("another client's", of(2, 1, wire.SYN), "offer", homeOf(t, r, of(2, 0, wire.SYN))...)
		r.Accepted(t, list[0], of(1, 2, wire.SYN))
		offered("one that another server took does not move it", of(1, 4, wire.SYN), "offer_same_client", list[1], list[0])

		r.Confirm(t, first)
		data := payload(of(1, 1, wire.ACK))
		data.Seq, data.Ack = first.Seq+1, rig.ServerISN+1
		r.At(t, r.Now+50*time.Second)
		r.Send(t, data.Frame()).Is(t, "data", rig.XDPTX, nil, "steer")
		r.At(t, r.Now+50*time.Second)
		offered("as its packets came", of(1, 5, wire.SYN), "offer_same_client", list[1], list[0])
		r.At(t, r.Now+70*time.Second)
		offered("after its silence", of(1, 6, wire.SYN), "offer", list...)

		r.Accepted(t, list[1], of(1, 6, wire.SYN))
		drain := rig.Hunting(2, 8, byClient, change, drained(list[1]))
		r.Reconfigure(t, drain)
		anyClient(t, r)
		now := homeOf(t, r, of(1, 0, wire.SYN))
		now = slices.DeleteFunc(now, func(s int) bool { return s == list[1] })
		r.Send(t, of(1, 7, wire.SYN).Frame()).Is(t, "its server drains", rig.XDPTX, nil, "offer")
		r.Accepted(t, now[0], of(1, 7, wire.SYN))
		r.Send(t, of(1, 8, wire.SYN).Frame()).Is(t, "at another one", rig.XDPTX, nil, "offer_same_client")
	}
}

// testAffinityOfMany: each of four candidates may be the server of a client, beside members of earlier pools; none of
// those is.
func testAffinityOfMany(t *testing.T, seen rig.Hits) {
	r := rig.NewLB(t, seen, rig.Hunting(4, 8, byClient, rig.Members))
	anyClient(t, r)
	for at := range 8 {
		p := connection(1+at, 0, rig.HuntPort, wire.SYN)
		home := p
		home.Src = netip.AddrPortFrom(p.Src.Addr(), 0)
		union := r.Union(t, 0, home.Flow())
		r.Accepted(t, union[at], p)
		next := connection(1+at, 1, rig.HuntPort, wire.SYN)
		out := r.Send(t, next.Frame())
		if at >= 4 {
			out.Is(t, fmt.Sprint("member ", at), rig.XDPTX, nil, "offer")
			continue
		}
		out.Is(t, fmt.Sprint("candidate ", at), rig.XDPTX, nil, "offer_same_client")
		if server := int(out.Frame[rig.AtDst+7]); server != union[at] {
			t.Errorf("candidate %d: offered to server %d first, want %d", at, server, union[at])
		}
	}
}

// testAffinityOfDatagrams: a datagram of an unknown flow asks as ever, and is then offered to the client's server first.
func testAffinityOfDatagrams(t *testing.T, seen rig.Hits) {
	r := rig.NewLB(t, seen, rig.Hunting(2, 8, rig.OverUDP, byClient))
	anyClient(t, r)
	of := func(i int) rig.Packet {
		p := rig.Datagram(rig.HuntPort, "x")
		p.Src = netip.AddrPortFrom(rig.ClientNumber(1), uint16(2000+i))
		return p
	}
	list := homeOf(t, r, of(0))
	r.Send(t, of(1).Frame()).Is(t, "first", rig.XDPTX, nil, "offer_datagram")
	r.Accepted(t, list[1], of(1))
	want := append(rig.Ask(wire.RecoverStickiness, 0, list...), rig.SID(rig.ServerLocator(list[1]), wire.ConnectForce, 0), rig.SID(rig.ServerLocator(list[0]), wire.ConnectForce, 0))
	r.Send(t, of(2).Frame()).Is(t, "second", rig.XDPTX, rig.Sent(of(2), rig.HopMAC(list[0]), want), "offer_datagram")
}

// testAffinityOfHealth: the answer of a client's server is none of the candidate that a client without one would be
// offered to first.
func testAffinityOfHealth(t *testing.T, seen rig.Hits) {
	r := rig.NewLB(t, seen, rig.Hunting(2, 8, byClient))
	r.Remembers = true
	anyClient(t, r)
	list := homeOf(t, r, connection(1, 0, rig.HuntPort, wire.SYN))
	for i := range 5 {
		p := connection(1, i, rig.HuntPort, wire.SYN)
		r.Send(t, p.Frame())
		r.Accepted(t, list[1], p)
	}
	counts, err := r.Health(r.Cfg.Services[0].Servers)
	if err != nil {
		t.Fatal(err)
	}
	if first, second := counts[list[0]], counts[list[1]]; first.Offered != 1 || first.Answered != 1 || second.Offered != 4 || second.Answered != 5 {
		t.Errorf("of a server that passed on one of 5 connections: %+v; of the one that took all: %+v", first, second)
	}
}

// testAffinityOfSeats: in each mode that chooses among seats a client's connections and datagrams go to the server of
// its first one, and count there.
func testAffinityOfSeats(t *testing.T, seen rig.Hits) {
	for _, d := range topo.Dispatches() {
		if !d.Seats() {
			continue
		}
		svc := learned(8, mode(d), byClient)
		r := learner(t, seen, svc, udpOf(svc))
		of := func(i int, flags byte) rig.Packet { return connection(1, i, 81, flags) }
		label := d.String()
		home := sendTo(t, r, label, of(0, wire.SYN), -1, "deliver", "flow_begun")
		for i := range 20 {
			sendTo(t, r, label+", beside it", of(1+i, wire.SYN), home, "deliver", "flow_begun", "flow_same_client")
		}
		wantSeat(t, r, label, home, 0, 21)
		others := map[int]bool{}
		for who := range 30 {
			others[sendTo(t, r, label+", another client", connection(2+who, 0, 81, wire.SYN), -1, "deliver", "flow_begun")] = true
		}
		if len(others) < 3 && d != topo.LearnedLiteral { // which counts established flows alone
			t.Errorf("%s: 30 clients have %d servers", label, len(others))
		}
		ack := of(0, wire.ACK)
		ack.Seq++
		for range 3 {
			r.At(t, r.Now+40*time.Second)
			r.Send(t, ack.Frame())
		}
		sendTo(t, r, label+", its packets came", of(30, wire.SYN), home, "deliver", "flow_begun", "flow_same_client")
		r.At(t, r.Now+61*time.Second)
		r.Send(t, of(31, wire.SYN).Frame()).Is(t, label+", it was silent", rig.XDPTX, nil, "deliver", "flow_begun")

		datagram := func(i int) rig.Packet {
			p := rig.Datagram(81, "x")
			p.Src = netip.AddrPortFrom(rig.ClientNumber(1), uint16(2000+i))
			return p
		}
		home = sendTo(t, r, label+", UDP", datagram(0), -1, "deliver", "flow_begun")
		for i := range 5 {
			sendTo(t, r, label+", UDP, beside it", datagram(1+i), home, "deliver", "flow_begun", "flow_same_client")
		}
		r.Reconfigure(t, learned(8, mode(d), byClient, drained(home)), udpOf(learned(8, mode(d), byClient, drained(home))))
		hopsOf(t, r)
		if now := sendTo(t, r, label+", its server drains", datagram(10), -1, "deliver", "flow_begun"); now == home {
			t.Errorf("%s: a datagram at a server that drains", label)
		}
	}
}

// testAffinityOfHashes: where an LB remembers no flows, or single's, a hash of the client has the server of all its
// packets, at each LB and after each change of the LB.
func testAffinityOfHashes(t *testing.T, seen rig.Hits) {
	for _, d := range []topo.Dispatch{topo.Single, topo.Stateless} {
		for _, change := range []func(*topo.Service){func(*topo.Service) {}, rig.OverUDP} {
			svc := rig.Service(81, d, 1, 8)
			byClient(&svc)
			change(&svc)
			r := rig.NewLB(t, seen, svc)
			anyClient(t, r)
			servers := map[int]bool{}
			for who := range 20 {
				home := homeOf(t, r, withProtocol(connection(who, 0, 81, wire.SYN), svc.VIP.Protocol))[0]
				servers[home] = true
				for i := range 5 {
					p := withProtocol(connection(who, i, 81, wire.SYN), svc.VIP.Protocol)
					label := fmt.Sprint(d, " ", svc.VIP.Protocol)
					r.Send(t, p.Frame()).Is(t, label, rig.XDPTX, rig.ToOne(p, home, wire.Deliver, 0), append([]string{"deliver"}, map[bool][]string{true: {"flow_begun"}}[d == topo.Single]...)...)
				}
			}
			if len(servers) < 5 {
				t.Errorf("20 clients have %d servers", len(servers))
			}
		}
	}
}

func withProtocol(p rig.Packet, protocol topo.Protocol) rig.Packet {
	if p.Protocol = protocol; protocol == topo.UDP {
		p.Flags, p.Seq, p.Payload = 0, 0, []byte("x")
	}
	return p
}

// TestAffinityOutlivesDaemon: the next daemon has the servers of clients.
func TestAffinityOutlivesDaemon(t *testing.T) {
	rig.Enter(t)
	cfg := rig.LBConfig(learned(8, mode(topo.Rr), byClient))
	cfg.Pin = filepath.Join(rig.BPFFS(t), "lb")
	first := successor(t, cfg)
	home := sendTo(t, first, "before", connection(1, 0, 81, wire.SYN), -1, "deliver", "flow_begun")
	first.Die(t)
	second := successor(t, cfg)
	for i := range 5 {
		sendTo(t, second, "afterwards", connection(1, 1+i, 81, wire.SYN), home, "deliver", "flow_begun", "flow_same_client")
	}
}

// TestAffinityBounded: clients that are forged cost no more records than there are, and none of a client that sends.
func TestAffinityBounded(t *testing.T) {
	const forged, records = 20_000, 4096 // of 65,536, which a test would fill in seconds
	rig.Enter(t)
	cfg := rig.LBConfig(learned(8, mode(topo.Rr), byClient))
	cfg.Flows.Entries = 32_768 // else they are in the way of the flows
	r := rig.LoadLBWith(t, rig.Hits{}, cfg, func(spec *ebpf.CollectionSpec) error {
		spec.Maps[objects.LBMapClients].MaxEntries = records
		return rig.InVirtualTime(spec)
	})
	hopsOf(t, r)
	home := sendTo(t, r, "a client", connection(0, 0, 81, wire.SYN), -1, "deliver", "flow_begun")
	ack := connection(0, 0, 81, wire.ACK)
	ack.Seq++
	frame := ack.Frame()
	for i := range forged {
		r.Run(t, connection(1+i, 0, 81, wire.SYN).Frame())
		if i%100 == 0 {
			r.Run(t, frame)
		}
	}
	n := 0
	var key, value []byte
	it := r.Objects().Clients.Iterate()
	for it.Next(&key, &value) {
		n++
	}
	if err := it.Err(); err != nil || n < records/2 || n > records {
		t.Errorf("%d records: %v", n, err)
	}
	out := r.Send(t, connection(0, 1, 81, wire.SYN).Frame())
	if server := serverIn(out.Frame); server != home || !slices.Contains(out.Reasons, "flow_same_client") {
		t.Errorf("the client's next connection: at server %d for %v, want %d", server, out.Reasons, home)
	}
}
