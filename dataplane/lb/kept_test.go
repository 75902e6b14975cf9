package lb_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// kept is a service of which the clients' packets make the entries.
func kept(servers int, change ...func(*topo.Service)) topo.Service {
	svc := rig.Service(81, topo.Single, 1, servers)
	for _, c := range change {
		c(&svc)
	}
	return svc
}

func drained(drained ...int) func(*topo.Service) {
	return func(s *topo.Service) {
		s.Servers = slices.Clone(s.Servers)
		for _, i := range drained {
			s.Servers[i].Weight = 0
		}
	}
}

func byAgents(s *topo.Service) { s.Recovery = topo.AgentsRecovery }

// after puts earlier pools into a service, the newest first.
func after(pools ...[]topo.Server) func(*topo.Service) {
	return func(s *topo.Service) {
		for i, pool := range pools {
			s.History = append(s.History, topo.Version{Version: len(pools) - i, Servers: pool})
		}
		s.Version = len(pools) + 1
	}
}

// client is the i-th client's packet.
func client(i int, flags byte) rig.Packet {
	p := rig.Inward(81, flags)
	p.Src = netip.AddrPortFrom(rig.ClientAddr, uint16(rig.ClientPort+i))
	if flags&wire.SYN == 0 {
		p.Seq++
	}
	return p
}

// begin opens and establishes a client's connection, and returns its server.
func begin(t *testing.T, r *rig.LB, i int) int {
	t.Helper()
	syn := client(i, wire.SYN)
	server := r.List(t, 0, syn.Flow())[0]
	r.Send(t, syn.Frame()).Is(t, "SYN", rig.XDPTX, rig.ToOne(syn, server, wire.Deliver, 0), "deliver", "flow_begun")
	ack := client(i, wire.ACK)
	r.Send(t, ack.Frame()).Is(t, "ACK", rig.XDPTX, rig.ToOne(ack, server, wire.Deliver, 0), "flow_established", "steer")
	return server
}

// wantAt sends a packet, which must reach one server in dt.
func wantAt(t *testing.T, r *rig.LB, label string, p rig.Packet, server int, reasons ...string) {
	t.Helper()
	r.Send(t, p.Frame()).Is(t, label, rig.XDPTX, rig.ToOne(p, server, wire.Deliver, 0), reasons...)
}

// testKept: a SYN or a datagram makes an embryonic entry, the next packet of the client
// establishes it, a repeated SYN does not.
func testKept(t *testing.T, seen rig.Hits) {
	r := rig.NewLB(t, seen, kept(8), kept(8, rig.OverUDP), kept(8, rig.Over4))
	syn := client(0, wire.SYN)
	server := r.List(t, 0, syn.Flow())[0]
	wantAt(t, r, "SYN", syn, server, "deliver", "flow_begun")
	wantAt(t, r, "SYN again", syn, server, "steer")
	wantAt(t, r, "RST of a handshake", client(0, wire.RST), server, "steer")
	if _, embryonic := r.Embryonic(t, syn.Flow()); !embryonic {
		t.Error("a SYN and its repetition left no embryonic entry")
	}
	wantAt(t, r, "ACK", client(0, wire.ACK), server, "flow_established", "steer")
	if e, known := r.Flow(t, syn.Flow()); !known || e.Closed != 0 {
		t.Errorf("after the ACK: %+v, %v", e, known)
	}
	wantAt(t, r, "data", client(0, wire.ACK|wire.PSH), server, "steer")
	wantAt(t, r, "too big", rig.TooBig(client(0, wire.ACK).Reply(wire.ACK), 1400), server, "steer")

	datagram := rig.Datagram(81, "one")
	server = r.List(t, 1, datagram.Flow())[0]
	wantAt(t, r, "datagram", datagram, server, "deliver", "flow_begun")
	wantAt(t, r, "second datagram", datagram, server, "flow_established", "steer")

	begins := syn
	begins.Src, begins.Dst = netip.AddrPortFrom(rig.Client4, rig.ClientPort), netip.AddrPortFrom(rig.Vip4, 81)
	server = r.List(t, 2, begins.Flow())[0]
	wantAt(t, r, "IPv4", begins, server, "deliver", "flow_begun")
}

// testKeptCloses: the client's FIN or RST ends an entry after `linger` without packets; a SYN
// on the same five-tuple keeps its server within a second.
func testKeptCloses(t *testing.T, seen rig.Hits) {
	for _, flags := range []byte{wire.FIN | wire.ACK, wire.RST} {
		r := rig.NewLB(t, seen, kept(8))
		server := begin(t, r, 0)
		wantAt(t, r, "close", client(0, flags), server, "steer")
		r.At(t, rig.Start+9*time.Second)
		wantAt(t, r, "within linger", client(0, wire.ACK), server, "steer")
		r.At(t, rig.Start+21*time.Second)
		if swept, err := r.Sweep(); err != nil || swept.Kept != 0 {
			t.Errorf("flags %#x: %d entries after linger, %v", flags, swept.Kept, err)
		}

		server = begin(t, r, 1)
		wantAt(t, r, "close", client(1, flags), server, "steer")
		r.Reconfigure(t, kept(8, drained(server)))
		wantAt(t, r, "SYN on the five-tuple", client(1, wire.SYN), server, "steer")
		wantAt(t, r, "ACK on the five-tuple", client(1, wire.ACK), server, "steer")
		r.At(t, rig.Start+60*time.Second)
		if swept, err := r.Sweep(); err != nil || swept.Kept != 1 {
			t.Errorf("flags %#x: %d entries of a connection opened again, %v", flags, swept.Kept, err)
		}
	}
}

// testKeptDrain: a drained or an added server moves no flow of a server that stays; new flows
// follow the new table; a server that left the pool has none.
func testKeptDrain(t *testing.T, seen rig.Hits) {
	const flows = 60
	r := rig.NewLB(t, seen, kept(8))
	at := map[int]int{}
	for i := range flows {
		at[i] = begin(t, r, i)
	}
	moved := 0
	for _, pool := range [][]topo.Service{{kept(8, drained(3))}, {kept(9, drained(3))}, {kept(12, drained(3, 5))}} {
		r.Reconfigure(t, pool...)
		for i := range flows {
			wantAt(t, r, "data", client(i, wire.ACK), at[i], "steer")
			if list := r.List(t, 0, client(i, wire.ACK).Flow()); list[0] != at[i] {
				moved++ // where hashing alone would have moved it
			}
		}
	}
	if moved == 0 {
		t.Error("no change of the pool touched the bucket of a flow")
	}
	for i := flows; i < 2*flows; i++ {
		if server := begin(t, r, i); server == 3 || server == 5 {
			t.Errorf("a new flow at server %d, which drains", server)
		}
	}
	r.Reconfigure(t, kept(3))
	for i := range flows {
		if at[i] >= 3 {
			p := client(i, wire.ACK)
			wantAt(t, r, "its server left", p, r.List(t, 0, p.Flow())[0], "stale_removed", "recover_presumed", "flow_begun")
			break
		}
	}
}

// testKeptRecovered: data of a flow without an entry goes to the server of the oldest pool in
// the history that is still there; so do the packets after it.
func testKeptRecovered(t *testing.T, seen rig.Hits) {
	before, between := rig.Farm(8), rig.Farm(12)
	r := rig.NewLB(t, seen, kept(10, drained(3), after(between, before)))
	svc := &r.Cfg.Services[0]
	differ := 0
	for i := range 100 {
		p := client(i, wire.ACK)
		owner := rig.Candidates(t, svc, before, p.Flow())[0]
		if today := r.List(t, 0, p.Flow())[0]; today != owner {
			differ++
		}
		wantAt(t, r, "data", p, owner, "recover_presumed", "flow_begun")
		wantAt(t, r, "more data", p, owner, "flow_established", "steer")
	}
	if differ == 0 {
		t.Error("history and today never differ")
	}
	p := client(100, wire.FIN|wire.ACK)
	wantAt(t, r, "a last packet", p, rig.Candidates(t, svc, before, p.Flow())[0], "recover_presumed")
	syn := client(101, wire.SYN)
	wantAt(t, r, "a new flow", syn, r.List(t, 0, syn.Flow())[0], "deliver", "flow_begun")
	if _, known := r.Embryonic(t, p.Flow()); known {
		t.Error("a FIN alone made an entry")
	}
}

// testKeptAsks: with `recovery: agents` the owner is asked for; its signal makes the entry, of
// which the packets go in as. A new flow needs no agent.
func testKeptAsks(t *testing.T, seen rig.Hits) {
	r := rig.NewLB(t, seen, kept(8, drained(3), byAgents, after(rig.Farm(8))))
	begin(t, r, 0)
	differ := 0
	for i := 1; i < 40; i++ {
		p := client(i, wire.ACK)
		union := r.List(t, 0, p.Flow())
		if was := rig.Candidates(t, &r.Cfg.Services[0], rig.Farm(8), p.Flow())[0]; was != union[0] {
			union = append(union, was)
			differ++
		}
		r.Send(t, p.Frame()).Is(t, "data", rig.XDPTX, rig.Recovered(p, union), "recover")
		owner := union[len(union)-1]
		answer := rig.Outward(81, wire.ACK)
		answer.Dst = p.Src
		r.Send(t, rig.SignalFrom(owner, answer, wire.CreateStickiness, 77)).Is(t, "signal", rig.XDPTX, rig.Unwrapped(answer), "stickiness_recovered")
		r.Send(t, p.Frame()).Is(t, "data again", rig.XDPTX, rig.ToOne(p, owner, wire.AckStickiness, 77), "steer")
	}
	if differ == 0 {
		t.Error("history and today never differ")
	}
	r.Reconfigure(t, kept(8))
	answer := rig.Outward(81, wire.SYN|wire.ACK)
	r.Send(t, rig.SignalFrom(1, answer, wire.CreateStickiness, 77)).Is(t, "a signal without agents", rig.XDPDrop, nil, "drop_not_from_vip")
}

// testKeptFull: in a full table the flow goes by hash, and is counted.
func testKeptFull(t *testing.T, seen rig.Hits) {
	r := rig.NewLB(t, seen, kept(8))
	full := 0
	for i := range 4096 {
		for _, flags := range []byte{wire.SYN, wire.ACK} {
			p := client(i, flags)
			out := r.Send(t, p.Frame())
			if slices.Contains(out.Reasons, "table_full") {
				full++
				out.Is(t, "full", rig.XDPTX, rig.ToOne(p, r.List(t, 0, p.Flow())[0], wire.Deliver, 0), out.Reasons...)
			}
		}
	}
	if full < 1000 {
		t.Errorf("%d packets met a full table", full)
	}
}
