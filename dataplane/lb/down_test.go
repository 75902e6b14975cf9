package lb_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"proffer/dataplane"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// datagram is one of the client i.
func datagram(i int, port uint16) rig.Packet {
	p := rig.Datagram(port, "x")
	p.Src = netip.AddrPortFrom(rig.ClientAddr, uint16(rig.ClientPort+i))
	return p
}

// fate sends a packet, which must leave for a server, and returns the server.
func fate(t *testing.T, r *rig.LB, label string, p rig.Packet, reasons ...string) int {
	t.Helper()
	out := r.Send(t, p.Frame())
	slices.Sort(reasons)
	out.Is(t, label, rig.XDPTX, nil, reasons...)
	return farmNumber(r, out.Frame)
}

// testDatagramsLeave: a datagram begins its flow again if the flow's server is down, however many
// datagrams the flow had; TCP stays, and so do datagrams at servers that drain.
func testDatagramsLeave(t *testing.T, seen rig.Hits) {
	for _, make := range []func(int, ...func(*topo.Service)) topo.Service{kept, learned} {
		for sent := 1; sent <= 3; sent++ {
			r := learner(t, seen, make(8, rig.OverUDP))
			p := datagram(0, 81)
			at := fate(t, r, "the first", p, "deliver", "flow_begun")
			for i := 1; i < sent; i++ {
				r.Send(t, p.Frame())
			}
			r.Reconfigure(t, make(8, rig.OverUDP, drained(at)))
			hopsOf(t, r)
			if sent == 3 {
				if now := fate(t, r, "while it drains", p, "steer"); now != at {
					t.Errorf("a flow left server %d, which drains, for %d", at, now)
				}
			}
			downs(r, at)
			reasons := []string{"deliver", "flow_begun", "flow_moved"}
			if sent == 1 { // the datagram establishes the flow that it then ends
				reasons = append(reasons, "flow_established")
			}
			now := fate(t, r, fmt.Sprint("down after ", sent), p, reasons...)
			if now == at {
				t.Errorf("%v, %d datagrams: the flow stays at a server that is down", r.Cfg.Services[0].Dispatch, sent)
			}
			if again := fate(t, r, "the next", p, "flow_established", "steer"); again != now {
				t.Errorf("the next datagram went to server %d, not %d", again, now)
			}
			downs(r)
			if again := fate(t, r, "back", p, "steer"); again != now {
				t.Errorf("the flow went back to server %d", again)
			}
		}
	}
}

// testDatagramsLeaveAgent: where servers signal, such a datagram asks and is offered as that of an
// unknown flow.
func testDatagramsLeaveAgent(t *testing.T, seen rig.Hits) {
	for _, confirmed := range []bool{false, true} {
		r := rig.NewLB(t, seen, rig.Hunting(2, 8, rig.OverUDP))
		p := datagram(0, rig.HuntPort)
		list := r.List(t, 0, p.Flow())
		r.Accepted(t, list[0], p)
		if confirmed {
			r.Confirm(t, p)
			r.Send(t, p.Frame()).Is(t, "steered", rig.XDPTX, nil, "steer")
		}
		downs(r, list[0])
		segments := append(rig.Ask(wire.RecoverStickiness, 0, list[1]), rig.Offer(p, 0, list...)...)
		for i := range segments {
			segments[i] = rig.With(segments[i], func(s *wire.SID) { s.Generation = 0 })
		}
		reasons := []string{"flow_moved", "offer_datagram"}
		if !confirmed {
			reasons = append([]string{"flow_established"}, reasons...)
		}
		r.Send(t, p.Frame()).Is(t, fmt.Sprint("confirmed: ", confirmed), rig.XDPTX, rig.Sent(p, rig.HopMAC(list[1]), segments), reasons...)
		if _, known := r.Flow(t, p.Flow()); known {
			t.Error("the entry of the server that is down is left")
		}
	}
}

// doubt names a server that left a check without an answer.
func doubt(r *rig.LB, number int) {
	if err := r.SetDown(nil, r.Cfg.Services[0].Servers[number:number+1]); err != nil {
		panic(err)
	}
}

// testDatagramsAskNoneDown: the question before an offer leaves out servers that are down or in doubt; the
// offer would wait behind them.
func testDatagramsAskNoneDown(t *testing.T, seen rig.Hits) {
	whole := rig.Hunting(2, 8, rig.OverUDP)
	const down = 3
	svc := rig.Hunting(2, 8, rig.OverUDP, drained(down))
	svc.History, svc.Version = []topo.Version{{Version: 1, Servers: whole.Servers}}, 2
	r := rig.NewLB(t, seen, svc)
	to := func(p rig.Packet) (segments []netip.Addr) {
		out := r.Send(t, p.Frame())
		out.Is(t, "datagram", rig.XDPTX, nil, "offer_datagram")
		return segmentsOf(out.Frame, false)
	}
	asked := 0
	for i := range 100 {
		p := datagram(i, rig.HuntPort)
		if !slices.Contains(mayHave(t, &svc, p), down) {
			continue
		}
		downs(r)
		asks := func() bool {
			return slices.ContainsFunc(to(p), func(a netip.Addr) bool { return rig.ServerLocator(down).Contains(a) })
		}
		if !asks() {
			t.Errorf("flow %d: a server that drains is not asked", i)
		}
		doubt(r, down)
		if asks() {
			t.Errorf("flow %d: the offer waits behind a server that left a check without an answer", i)
		}
		downs(r, down)
		if asks() {
			t.Errorf("flow %d: the offer waits behind a server that is down", i)
		}
		asked++
	}
	if asked == 0 {
		t.Error("no flow of the server")
	}
}

// testDownLastInEachTurn: a segment of an unknown flow that comes again asks its servers in another
// order, and the one that is down last in each; also where it takes several rounds.
func testDownLastInEachTurn(t *testing.T, seen rig.Hits) {
	r := rig.NewLB(t, seen, rig.Hunting(3, 8))
	r.Remembers = true
	p := rig.Inward(rig.HuntPort, wire.ACK)
	p.Payload = []byte("data")
	list := r.List(t, 0, p.Flow())
	for turn := range 6 {
		downs(r, list[1])
		order := [][]int{{list[0], list[2]}, {list[2], list[0]}, {list[2], list[0]}}[turn%3]
		r.Send(t, p.Frame()).Is(t, fmt.Sprint("turn ", turn), rig.XDPTX, rig.Recovered(p, append(order, list[1])), "recover")
	}
	for _, servers := range []int{7, 8, 15} {
		r := rig.NewLB(t, seen, crowd(servers))
		p := rig.Inward(rig.HuntPort, wire.ACK)
		p.Payload = []byte("data")
		union := r.Union(t, 0, p.Flow())
		down := union[len(union)/2]
		downs(r, down)
		met, _ := walk(r, t, p, false)
		var order []int
		for _, v := range met {
			order = append(order, v.server)
		}
		if want := append(without(union, down), down); !slices.Equal(order, want) {
			t.Errorf("%d servers: met %v, want %v", servers, order, want)
		}
	}
}

// testReusedAtDown: a SYN of another connection does not wait for the server of the flow before, if
// that is down; the server that takes the SYN has the flow at once. Nor does it wait for one in doubt, if no
// client has established the flow.
func testReusedAtDown(t *testing.T, seen rig.Hits) {
	r := rig.NewLB(t, seen, rig.Hunting(3, 8))
	p := rig.Inward(rig.HuntPort, wire.SYN)
	list := r.List(t, 0, p.Flow())
	r.Send(t, p.Frame())
	r.Accepted(t, list[2], p)
	doubt(r, list[2])
	p.Seq += 12345
	r.Send(t, p.Frame()).Is(t, "embryonic, in doubt", rig.XDPTX, rig.Offered(p, list), "offer")
	r.Accepted(t, list[2], p)
	r.Confirm(t, p)
	p.Seq += 12345
	out := r.Send(t, p.Frame())
	out.Is(t, "ports used again, in doubt", rig.XDPTX, nil, "offer_again")
	if first := segmentsOf(out.Frame, false)[0]; !rig.ServerLocator(list[2]).Contains(first) {
		t.Errorf("the flow that lives left a server in doubt for %v", first)
	}
	downs(r, list[2])
	p.Seq += 12345
	r.Send(t, p.Frame()).Is(t, "ports used again", rig.XDPTX, rig.Offered(p, list), "flow_moved", "offer")
	r.Accepted(t, list[0], p)
	if e, known := r.Embryonic(t, p.Flow()); !known || int(e.Server) != list[0] {
		t.Errorf("the flow is %+v, %v", e, known)
	}
}

// testOverInDoubt: a SYN that uses the ports of a flow again that is over does not go to the flow's server while
// that is in doubt.
func testOverInDoubt(t *testing.T, seen rig.Hits) {
	for _, make := range []func(int, ...func(*topo.Service)) topo.Service{kept, learned} {
		r := learner(t, seen, make(8))
		at := fate(t, r, "SYN", client(0, wire.SYN), "deliver", "flow_begun")
		r.Send(t, client(0, wire.ACK).Frame())
		r.Send(t, client(0, wire.ACK|wire.FIN).Frame())
		doubt(r, at)
		hopsOf(t, r)
		p := client(0, wire.SYN)
		p.Seq += 1 << 20
		out := r.Send(t, p.Frame())
		if out.Is(t, "again", rig.XDPTX, nil, "deliver", "flow_begun", "flow_moved"); r.Table.Get(t, p.Flow()).Word&(1<<48) != 0 {
			t.Error("the flow is still over")
		}
	}
}

// testStandIn: of a service without flows the packets of a server that is down go to others, all of a
// flow to the same, and those of all other servers stay.
func testStandIn(t *testing.T, seen rig.Hits) {
	for _, change := range []func(*topo.Service){func(*topo.Service) {}, func(s *topo.Service) { s.Fragments = topo.HashFragments }, rig.Inserting} {
		svc := rig.Service(81, topo.Stateless, 1, 8)
		change(&svc)
		r := rig.NewLB(t, seen, svc)
		const down, other = 2, 5
		at := map[int]int{}
		for i := range 100 {
			at[i] = fate(t, r, "before", client(i, wire.ACK), "deliver")
		}
		downs(r, down, other)
		moved := 0
		for i := range 100 {
			now := fate(t, r, "down", client(i, wire.SYN), "deliver")
			if again := fate(t, r, "data", client(i, wire.ACK|wire.PSH), "deliver"); again != now {
				t.Errorf("flow %d went to server %d and then to %d", i, now, again)
			}
			switch left := at[i] == down || at[i] == other; {
			case now == down || now == other:
				t.Errorf("flow %d went to server %d, which is down", i, now)
			case !left && now != at[i]:
				t.Errorf("flow %d left server %d, which is not down", i, at[i])
			case left:
				moved++
			}
		}
		if moved == 0 && svc.Fragments != topo.HashFragments { // by addresses all have one server
			t.Error("no flow of the servers that are down")
		}
	}
}

// testBriefEnds: a flow is brief for its first two datagrams, and with the third it is not, so that it
// gives way to no other.
func testBriefEnds(t *testing.T, seen rig.Hits) {
	const brief = 1 << 51
	for _, make := range []func(int, ...func(*topo.Service)) topo.Service{kept, learned} {
		r := learner(t, seen, make(8, rig.OverUDP))
		p := datagram(0, 81)
		for n := 1; n <= 4; n++ {
			r.Send(t, p.Frame())
			if is := r.Table.Get(t, p.Flow()).Word&brief != 0; n > 1 && is != (n < 3) {
				t.Errorf("%v, after %d datagrams: brief is %v", r.Cfg.Services[0].Dispatch, n, is)
			}
		}
	}
}

// testChecks: a check is a question about a flow that no client has, with this LB behind the server. Back at the LB it
// counts for that server, and for none if its tag is another's.
func testChecks(t *testing.T, seen rig.Hits) {
	services := []topo.Service{
		rig.Hunting(2, 8), rig.Hunting(2, 8, rig.OverUDP), rig.Hunting(2, 8, rig.Inserting), rig.Hunting(2, 8, rig.Over4),
		rig.Hunting(2, 8, rig.ViaTransit(2)), kept(8, byAgents),
		kept(8), kept(8, rig.OverUDP), rig.Service(81, topo.Stateless, 1, 8), kept(8, rig.Over4),
	}
	for i, svc := range services {
		for _, keys := range [][]topo.SignalKey{nil, {rig.OldKeys}} {
			r := newSigningRig(t, seen, keys, svc)
			const server = 5
			check := dataplane.Check{VIP: svc.VIP, Server: svc.Servers[server]}
			frame := r.CheckOf(check)
			segments := segmentsOf(frame, svc.Wire == topo.Insert)
			if n := len(segments); n < 2 || !rig.ServerLocator(server).Contains(segments[n-2]) || !rig.LbLocator.Contains(segments[n-1]) {
				t.Fatalf("service %d: segments %v", i, segments)
			}
			back := arrivedAt(frame, segments[len(segments)-1], svc.Wire == topo.Insert)
			r.Send(t, back).Is(t, fmt.Sprint("service ", i), rig.XDPDrop, nil, "check_answered")
			wantHealth(t, r, fmt.Sprint("service ", i), map[int]dataplane.Health{server: {Alive: 1}})
			if keys != nil {
				r.Send(t, rig.Altered(back, 14+8+15, back[14+8+15]+1)).Is(t, "another tag", rig.XDPDrop, nil, "drop_bad_tag")
			}
			if err := r.Check([]dataplane.Check{check}); err != nil {
				t.Fatal(err)
			}
			all, err := r.Counters()
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range all {
				seen[c.Name] = seen[c.Name] || c.Name == "check" && c.Value == 1
			}
		}
	}
	r := rig.NewLB(t, seen, kept(8))
	check := dataplane.Check{VIP: r.Cfg.Services[0].VIP, Server: r.Cfg.Services[0].Servers[0]}
	check.VIP.Port++
	if frame := r.CheckOf(check); frame != nil {
		t.Error("a check of a service that is gone")
	}
	if err := r.SetNextHops(nil); err != nil {
		t.Fatal(err)
	}
	if counts, err := r.Health(r.Cfg.Services[0].Servers); err != nil || counts[0].Reached {
		t.Errorf("without next hops: %+v, %v", counts[0], err)
	}
}
