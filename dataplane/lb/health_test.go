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

// wantHealth checks the counts of some servers of a service; of all others there are none.
func wantHealth(t *testing.T, r *rig.LB, label string, want map[int]dataplane.Health) {
	t.Helper()
	counts, err := r.Health(r.Cfg.Services[0].Servers)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range counts {
		if !c.Reached {
			t.Errorf("%s: server %d has no next hop", label, i)
		}
		if c.Reached = false; c != want[i] {
			t.Errorf("%s: server %d has %+v, want %+v", label, i, c, want[i])
		}
	}
}

// testHealthOfOffers: a SYN counts at its first candidate, and once again if it is repeated; later
// ones visit another candidate first. A cs is an answer of its server, and of the first candidate if
// that passed the SYN on, but not once the list was rotated.
func testHealthOfOffers(t *testing.T, seen rig.Hits) {
	for _, svc := range []topo.Service{rig.Hunting(2, 8), rig.Hunting(3, 8), rig.Hunting(2, 8, rig.Inserting)} {
		r := rig.NewLB(t, seen, svc)
		r.Remembers = true
		p := rig.Inward(rig.HuntPort, wire.SYN)
		list := r.List(t, 0, p.Flow())
		first, second := list[0], list[1]
		r.Send(t, p.Frame())
		wantHealth(t, r, "SYN", map[int]dataplane.Health{first: {Offered: 1}})
		r.Send(t, p.Frame())
		wantHealth(t, r, "repeated", map[int]dataplane.Health{first: {Offered: 1, Repeated: 1}})
		r.Accepted(t, second, p)
		wantHealth(t, r, "passed on", map[int]dataplane.Health{first: {Offered: 1, Repeated: 1, Answered: 1}, second: {Answered: 1}})
		r.Send(t, p.Frame())
		wantHealth(t, r, "embryonic", map[int]dataplane.Health{first: {Offered: 1, Repeated: 1, Answered: 1}, second: {Answered: 1}})

		r = rig.NewLB(t, seen, svc)
		r.Remembers = true
		for range 3 {
			r.Send(t, p.Frame())
		}
		r.Accepted(t, second, p)
		wantHealth(t, r, "rotated", map[int]dataplane.Health{first: {Offered: 1, Repeated: 1}, second: {Answered: 1}})
		data := p.Reply(wire.ACK)
		r.Send(t, rig.SignalFrom(first, data, wire.CreateStickiness, 77, func(w *rig.Route) { w.Insert = svc.Wire == topo.Insert }))
		wantHealth(t, r, "data of a flow", map[int]dataplane.Health{first: {Offered: 1, Repeated: 1}, second: {Answered: 1}})
	}
	r := rig.NewLB(t, seen, rig.Hunting(2, 8, rig.OverUDP))
	datagram := rig.Datagram(rig.HuntPort, "x")
	r.Send(t, datagram.Frame())
	wantHealth(t, r, "datagram", nil)
}

// testHealthOfKept: a SYN counts at its server, and each repetition; the client's ACK is the answer,
// and a RST or another SYN is none. Datagrams do not count.
func testHealthOfKept(t *testing.T, seen rig.Hits) {
	for _, svc := range []topo.Service{kept(8), learned(8)} {
		r := learner(t, seen, svc, udpOf(svc))
		syn := client(0, wire.SYN)
		server := serverIn(r.Send(t, syn.Frame()).Frame)
		if svc.Dispatch == topo.Single {
			server = r.List(t, 0, syn.Flow())[0]
		}
		wantHealth(t, r, "SYN", map[int]dataplane.Health{server: {Offered: 1}})
		r.Send(t, syn.Frame())
		r.Send(t, client(0, wire.RST).Frame())
		wantHealth(t, r, "repeated, and reset", map[int]dataplane.Health{server: {Offered: 1, Repeated: 1}})
		if svc.Dispatch == topo.Learned { // where a RST ends the flow
			continue
		}
		r.Send(t, client(0, wire.ACK).Frame())
		r.Send(t, client(0, wire.ACK|wire.PSH).Frame())
		wantHealth(t, r, "acknowledged", map[int]dataplane.Health{server: {Offered: 1, Repeated: 1, Answered: 1}})
		datagram := rig.Datagram(81, "x")
		r.Send(t, datagram.Frame())
		r.Send(t, datagram.Frame())
		wantHealth(t, r, "datagrams", map[int]dataplane.Health{server: {Offered: 1, Repeated: 1, Answered: 1}})
	}
	r := learner(t, seen, learned(4))
	server := serverIn(r.Send(t, client(0, wire.SYN).Frame()).Frame)
	r.Send(t, client(0, wire.ACK).Frame())
	wantHealth(t, r, "learned", map[int]dataplane.Health{server: {Offered: 1, Answered: 1}})
}

func udpOf(svc topo.Service) topo.Service {
	svc.VIP.Protocol = topo.UDP
	return svc
}

// testUnreachable: an ICMP error counts at the server to which the quoted packet of ours was on its
// way; one about any other packet counts nowhere.
func testUnreachable(t *testing.T, seen rig.Hits) {
	r := rig.NewLB(t, seen, kept(8))
	p := client(0, wire.SYN)
	frame := r.Send(t, p.Frame()).Frame
	server := r.List(t, 0, p.Flow())[0]
	about := rig.AboutOurs(frame, 1400, 1232)
	const outerAt = rig.AtUpper + 8
	want := dataplane.Health{Offered: 1}
	for _, kind := range []byte{1, 3, 4} {
		r.Send(t, rig.Altered(about, rig.AtUpper, kind)).Is(t, fmt.Sprint("type ", kind), rig.XDPDrop, nil, "drop_icmp_error")
		want.Unreachable++
		wantHealth(t, r, fmt.Sprint("type ", kind), map[int]dataplane.Health{server: want})
	}
	about = rig.Altered(about, rig.AtUpper, 1)
	for label, hostile := range map[string][]byte{
		"of another source":  rig.Altered(about, outerAt+8, 9),
		"to another server":  rig.Altered(about, outerAt+24, 9),
		"not of our making":  rig.Altered(about, outerAt+6, 6),
		"cut in its header":  rig.AboutOurs(frame, 1400, 30),
		"a packet too big":   rig.AboutOurs(frame, 1400, 1232),
		"quotes version 4":   rig.Altered(about, outerAt, 0x45),
		"to the VIP, not us": rig.Altered(about, 14+24, 0x77),
	} {
		r.Send(t, hostile)
		wantHealth(t, r, label, map[int]dataplane.Health{server: want})
	}
}

// downs names servers that are down in the data plane.
func downs(r *rig.LB, numbers ...int) {
	var servers []topo.Server
	for _, i := range numbers {
		servers = append(servers, r.Cfg.Services[0].Servers[i])
	}
	if err := r.SetDown(servers, nil); err != nil {
		panic(err)
	}
}

// testLeavesDown: a SYN of a flow that is embryonic or over leaves a server that is down, and begins
// another flow; a flow that lives stays whatever comes.
func testLeavesDown(t *testing.T, seen rig.Hits) {
	for _, make := range []func(int, ...func(*topo.Service)) topo.Service{kept, learned} {
		r := learner(t, seen, make(8))
		const embryonic, lives, over = 0, 1, 2
		serverOf := func(p rig.Packet, reasons ...string) int {
			out := r.Send(t, p.Frame())
			slices.Sort(reasons)
			out.Is(t, fmt.Sprint(p.Src, " flags ", p.Flags), rig.XDPTX, nil, reasons...)
			return farmNumber(r, out.Frame)
		}
		serverOf(client(embryonic, wire.SYN), "deliver", "flow_begun")
		at := map[int]int{}
		for _, i := range []int{embryonic, lives, over} {
			at[i] = serverOf(client(i, wire.SYN), reasonsOf(i == embryonic)...)
		}
		for _, i := range []int{lives, over} {
			serverOf(client(i, wire.ACK), "flow_established", "steer")
		}
		serverOf(client(over, wire.FIN|wire.ACK), "steer")
		down := []int{at[embryonic], at[lives], at[over]}
		r.Reconfigure(t, make(8, drained(down...)))
		hopsOf(t, r)
		for _, i := range []int{embryonic, over} {
			if again := serverOf(client(i, wire.SYN), "steer"); again != at[i] {
				t.Errorf("the SYN of flow %d moved although its server is not known to be down", i)
			}
		}
		downs(r, down...)
		if again := serverOf(client(lives, wire.SYN), "steer"); again != at[lives] {
			t.Error("a SYN moved a flow that lives")
		}
		if again := serverOf(client(lives, wire.ACK|wire.PSH), "steer"); again != at[lives] {
			t.Error("a flow that lives moved")
		}
		for _, i := range []int{embryonic, over} {
			fresh := client(i, wire.SYN)
			if again := serverOf(fresh, "deliver", "flow_begun", "flow_moved"); slices.Contains(down, again) {
				t.Errorf("the SYN of flow %d went to server %d, which is down", i, again)
			}
			serverOf(client(i, wire.ACK), "flow_established", "steer")
		}
	}
}

func reasonsOf(again bool) []string {
	if again {
		return []string{"steer"}
	}
	return []string{"deliver", "flow_begun"}
}

// farmNumber is the position of the server that a frame goes to.
func farmNumber(r *rig.LB, frame []byte) int {
	to := netip.AddrFrom16([16]byte(frame[14+24 : 14+40]))
	return slices.IndexFunc(r.Cfg.Services[0].Servers, func(s topo.Server) bool { return s.Locator.Contains(to) })
}

// testProbeOffers: a probe is the next SYN of a flow of which the server that is down would be a
// candidate; that server must take it. The same SYN again goes to the candidates, as all other flows
// do; and of an embryonic flow, too.
func testProbeOffers(t *testing.T, seen rig.Hits) {
	whole := rig.Hunting(2, 8)
	for _, older := range []int{0, 5} { // pools in the history: more members than a bucket names
		down := 3
		svc := rig.Hunting(2, 8, drained(down))
		svc.History = []topo.Version{{Version: 1, Servers: whole.Servers}}
		for i := range older {
			svc.History = append(svc.History, topo.Version{Version: -i, Servers: rig.Farm(8)[i : i+2]})
		}
		svc.Version = 2
		r := rig.NewLB(t, seen, svc)
		r.Remembers = true
		downs(r, down)
		r.Probe(svc.VIP, svc.Servers[down].At())
		probed := 0
		for i := range 200 {
			p := rig.Inward(rig.HuntPort, wire.SYN)
			p.Src = netip.AddrPortFrom(rig.ClientAddr, uint16(rig.ClientPort+i))
			list := r.List(t, 0, p.Flow())
			own := slices.Contains(mayHave(t, &svc, p), down)
			if !own || probed > 0 {
				r.Send(t, p.Frame()).Is(t, fmt.Sprint("flow ", i), rig.XDPTX, rig.Offered(p, list), "offer")
				continue
			}
			probed++
			segments := rig.Offer(p, 0, down, list[0], list[1])
			segments[0] = rig.SID(rig.ServerLocator(down), wire.ConnectForce, wire.Generation(p.Seq))
			r.Send(t, p.Frame()).Is(t, "probe", rig.XDPTX, rig.Sent(p, rig.HopMAC(down), segments), "offer_probe")
			counts, err := r.Health(svc.Servers[down : down+1])
			if err != nil || counts[0].Offered != 1 {
				t.Errorf("counts of the probed server: %+v, %v", counts, err)
			}
			again := rig.Sent(p, rig.HopMAC(list[0]), rig.Offer(p, 1, list...))
			r.Send(t, p.Frame()).Is(t, "the probe's SYN again", rig.XDPTX, again, "offer_retry")
			r.Accepted(t, down, p) // its cs is believed
			other := p
			other.Seq += 5000
			r.Send(t, other.Frame()).Is(t, "another SYN of an embryonic flow there", rig.XDPTX, rig.Offered(other, list), "offer")
			r.Confirm(t, p)
			other.Seq += 5000
			r.Send(t, other.Frame()).Is(t, "another SYN of a flow there", rig.XDPTX, rig.Offered(other, list), "flow_moved", "offer")
		}
		if probed != 1 {
			t.Errorf("%d probes, want one", probed)
		}
	}
}

// testProbeKept: where the client's packets make the entries, the next new flow of the service is the
// probe; the flow that leaves a server that is down is none. By agents, the server must be a member.
func testProbeKept(t *testing.T, seen rig.Hits) {
	const down = 3
	for _, make := range []func(int, ...func(*topo.Service)) topo.Service{kept, learned} {
		r := learner(t, seen, make(8, drained(down)))
		downs(r, down)
		svc := &r.Cfg.Services[0]
		at := func(label string, p rig.Packet, reasons ...string) int {
			out := r.Send(t, p.Frame())
			out.Is(t, label, rig.XDPTX, nil, reasons...)
			return farmNumber(r, out.Frame)
		}
		r.Probe(svc.VIP, svc.Servers[down].At())
		if server := at("probe", client(0, wire.SYN), "deliver", "flow_begun", "flow_probe"); server != down {
			t.Errorf("%v: the probe went to server %d", svc.Dispatch, server)
		}
		r.Probe(svc.VIP, svc.Servers[down].At())
		if server := at("the probe's SYN again", client(0, wire.SYN), "deliver", "flow_begun", "flow_moved"); server == down {
			t.Errorf("%v: a client waits for a second probe", svc.Dispatch)
		}
		r.Probe(svc.VIP, netip.Addr{})
		if server := at("no probe", client(1, wire.SYN), "deliver", "flow_begun"); server == down {
			t.Errorf("%v: a flow went to a server that is down", svc.Dispatch)
		}
		r.Probe(svc.VIP, svc.Servers[down].At())
		if server := at("the next", client(2, wire.SYN), "deliver", "flow_begun", "flow_probe"); server != down {
			t.Errorf("%v: the second probe went to server %d", svc.Dispatch, server)
		}
		at("its answer", client(2, wire.ACK), "flow_established", "steer")
		wantHealthOf(t, r, down, dataplane.Health{Offered: 2, Repeated: 1, Answered: 1})
		if svc.Dispatch == topo.Learned {
			if seats := seats(t, r, 0); seats[down].Established != 1 {
				t.Errorf("the probed server's seat: %+v", seats[down])
			}
		}
		for i := range 2 { // not by chance
			const suspect = 5 // not down, and with flows
			r.Probe(svc.VIP, svc.Servers[suspect].At())
			if server := at("of a suspect", client(10+i, wire.SYN), "deliver", "flow_begun", "flow_probe"); server != suspect {
				t.Errorf("%v: the probe of a suspect went to server %d", svc.Dispatch, server)
			}
		}
		r.Probe(svc.VIP, svc.Servers[down].At())
		r.Reconfigure(t, make(8, drained(down, 4))) // which forgets it
		hopsOf(t, r)
		if server := at("after a reload", client(3, wire.SYN), "deliver", "flow_begun"); server == down {
			t.Errorf("%v: a probe outlived the table", svc.Dispatch)
		}
	}
	whole := kept(8)
	svc := kept(8, drained(down), byAgents, after(whole.Servers))
	r := rig.NewLB(t, seen, svc)
	downs(r, down)
	r.Probe(svc.VIP, svc.Servers[down].At())
	for i := range 100 {
		p := client(i, wire.SYN)
		own := rig.Candidates(t, &whole, whole.Servers, p.Flow())[0]
		out := r.Send(t, p.Frame())
		if server := farmNumber(r, out.Frame); (server == down) != (own == down) || slices.Contains(out.Reasons, "flow_probe") != (own == down) {
			t.Errorf("flow %d of server %d went to server %d: %v", i, own, server, out.Reasons)
		} else if own == down {
			return
		}
	}
	t.Error("no flow of the server that is down")
}

func wantHealthOf(t *testing.T, r *rig.LB, server int, want dataplane.Health) {
	t.Helper()
	counts, err := r.Health(r.Cfg.Services[0].Servers)
	want.Reached = true
	if err != nil || counts[server] != want {
		t.Errorf("server %d has %+v, want %+v; %v", server, counts[server], want, err)
	}
}

// testIdleLast: servers without weight are asked after all others, and that of the latest pool is
// the last.
func testIdleLast(t *testing.T, seen rig.Hits) {
	whole := rig.Hunting(2, 8)
	svc := rig.Hunting(2, 8, drained(1, 2))
	svc.History = []topo.Version{{Version: 3, Servers: rig.Hunting(2, 8, drained(1)).Servers}, {Version: 2, Servers: whole.Servers}, {Version: 1, Servers: rig.Farm(8)[5:7]}}
	svc.Version = 4
	r := rig.NewLB(t, seen, svc)
	checked := 0
	for i := range 200 {
		p := rig.Inward(rig.HuntPort, wire.ACK)
		p.Src = netip.AddrPortFrom(rig.ClientAddr, uint16(rig.ClientPort+i))
		p.Payload = []byte("data")
		var first, last []int
		for _, m := range mayHave(t, &svc, p) {
			if m == 1 || m == 2 {
				last = append(last, m)
			} else {
				first = append(first, m)
			}
		}
		slices.Reverse(last)
		if len(first)+len(last) > 7 { // as many fit a packet
			continue
		}
		if len(last) > 1 {
			checked++
		}
		r.Send(t, p.Frame()).Is(t, fmt.Sprint("flow ", i), rig.XDPTX, rig.Recovered(p, append(first, last...)), "recover")
	}
	if checked == 0 {
		t.Error("no flow with both")
	}
}

// mayHave lists the candidates of a packet's flow in all pools of a service, the latest first.
func mayHave(t *testing.T, svc *topo.Service, p rig.Packet) (all []int) {
	t.Helper()
	pools := [][]topo.Server{svc.Servers}
	for _, v := range svc.History {
		pools = append(pools, v.Servers)
	}
	for _, pool := range pools {
		for _, i := range rig.Candidates(t, svc, pool, p.Flow()) {
			if !slices.Contains(all, i) {
				all = append(all, i)
			}
		}
	}
	return all
}
