package lb_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"proffer/dataplane/objects"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// testCreate: the first server with cs has the flow; a SYN-ACK makes an embryonic entry, anything
// else means that the server's kernel vouches for it.
func testCreate(t *testing.T, seen rig.Hits) {
	r := rig.NewLB(t, seen, rig.Hunting(2, 8, rig.Members))
	answer := rig.SynAck(rig.HuntPort)
	f := answer.Reversed()
	const old, young = 111, 222
	for _, c := range []struct {
		label      string
		server     int
		generation uint16
		why        string
		owner      uint16
		of         uint16
	}{
		{"the first", 3, old, "stickiness_created", 3, old},
		{"the same again", 3, old, "stickiness_repeated", 3, old},
		{"another server, newer connection", 4, young, "stickiness_created", 4, young},
		{"the same again", 4, young, "stickiness_repeated", 4, young},
	} {
		r.Send(t, rig.SignalFrom(c.server, answer, wire.CreateStickiness, c.generation)).Is(t, c.label, rig.XDPTX, rig.Unwrapped(answer), c.why)
		e, known := r.Embryonic(t, f)
		if !known || e.Server != c.owner || e.Generation != c.of || e.Expects != rig.ServerISN+1 {
			t.Errorf("%s: embryonic %+v, known %v", c.label, e, known)
		}
		if _, known := r.Flow(t, f); known {
			t.Errorf("%s: a flow before its client's ACK", c.label)
		}
	}
	answer.Flags = wire.ACK // which is to say that the client has acknowledged that server's
	r.Send(t, rig.SignalFrom(5, answer, wire.CreateStickiness, young)).Is(t, "data", rig.XDPTX, rig.Unwrapped(answer), "stickiness_recovered")
	if e, known := r.Flow(t, f); !known || e.Server != 5 || e.Generation != young {
		t.Errorf("recovered: %+v, %v", e, known)
	}
	if e, known := r.Embryonic(t, f); known {
		t.Errorf("recovered, and still an embryonic entry: %+v", e)
	}
}

// testCreateInserted: the same in the client's own header, (server, lb::cs,
// client), 56 bytes.
func testCreateInserted(t *testing.T, seen rig.Hits) {
	r := rig.NewLB(t, seen, rig.Hunting(2, 8, rig.Inserting, rig.Members))
	answer := rig.SynAck(rig.HuntPort)
	frame := rig.SignalFrom(3, answer, wire.CreateStickiness, 111, rig.Insert)
	if added := len(frame) - len(answer.Frame()); added != 56 {
		t.Fatalf("the test's own header has %d bytes", added)
	}
	r.Send(t, frame).Is(t, "SYN-ACK", rig.XDPTX, rig.Unwrapped(answer), "stickiness_created")
	if e, known := r.Embryonic(t, answer.Reversed()); !known || e.Server != 3 || e.Generation != 111 {
		t.Errorf("embryonic %+v, known %v", e, known)
	}
	answer.Flags = wire.FIN | wire.ACK
	r.Send(t, rig.SignalFrom(3, answer, wire.RemoveStickiness, 111, rig.Insert)).Is(t, "FIN", rig.XDPTX, rig.Unwrapped(answer), "stickiness_removed")
}

// testWrongWire: an inserted packet names its own sender, so a service of `wire: encap` takes
// none, not even of a server that would be believed; nor the other way round. A packet
// that is given back is always encapsulated.
func testWrongWire(t *testing.T, seen rig.Hits) {
	for _, by := range []topo.Wire{topo.Encap, topo.Insert} {
		r := rig.NewLB(t, seen, rig.Hunting(2, 8, rig.Members, func(s *topo.Service) { s.Wire = by }))
		wrong := func(w *rig.Route) { w.Insert = by != topo.Insert }
		p := rig.Inward(rig.HuntPort, wire.SYN)
		generation := wire.Generation(p.Seq)
		for _, stage := range []struct {
			label string
			next  func()
		}{
			{"nothing", func() { r.Accepted(t, 3, p) }},
			{"embryonic", func() { r.Confirm(t, p) }},
			{"flow", nil},
		} {
			before := state(r, t, p.Flow())
			for label, frame := range map[string][]byte{
				"cs":  rig.SignalFrom(3, rig.SynAck(rig.HuntPort), wire.CreateStickiness, generation, wrong),
				"rms": rig.SignalFrom(3, rig.Outward(rig.HuntPort, wire.RST), wire.RemoveStickiness, generation, wrong),
				"rs": wire.Frame(rig.HereMAC, rig.RouterMAC, rig.Route{
					From: rig.LbLocator, Segments: []netip.Addr{rig.SID(rig.LbLocator, wire.RecoverStickiness, 0)}, Hop: 63, Insert: by != topo.Insert,
				}.Around(rig.Inward(rig.HuntPort, wire.ACK))),
				"nm": rig.SignalFrom(3, rig.Inward(rig.HuntPort, wire.ACK), wire.NotMine, generation, rig.Insert),
			} {
				r.Send(t, frame).Is(t, fmt.Sprint(by, ", ", stage.label, ": ", label), rig.XDPDrop, nil, "drop_wrong_wire")
			}
			if after := state(r, t, p.Flow()); after != before {
				t.Errorf("%v, %s: changed\n%sto\n%s", by, stage.label, before, after)
			}
			if stage.next != nil {
				stage.next()
			}
		}
	}
}

// testGenerations: every order in which the signals of two connections of one
// five-tuple can arrive. Whatever comes late, the newer one, once confirmed,
// stays; and its own server, that server's silence or the old one's end let another in.
func testGenerations(t *testing.T, seen rig.Hits) {
	r := rig.NewLB(t, seen, rig.Hunting(2, 8, rig.Members))
	first, second := rig.Inward(rig.HuntPort, wire.SYN), rig.Inward(rig.HuntPort, wire.SYN)
	second.Seq += 1 << 20
	g1, g2 := wire.Generation(first.Seq), wire.Generation(second.Seq)
	late := []struct {
		label  string
		frame  []byte
		action uint32
		why    string
	}{
		{"late SYN-ACK", rig.SignalFrom(1, rig.SynAck(rig.HuntPort), wire.CreateStickiness, g1), rig.XDPDrop, "drop_not_released"},
		{"late recovery", rig.SignalFrom(1, rig.Outward(rig.HuntPort, wire.ACK), wire.CreateStickiness, g1), rig.XDPTX, "create_old_generation"},
		{"late FIN", rig.SignalFrom(1, rig.Outward(rig.HuntPort, wire.FIN|wire.ACK), wire.RemoveStickiness, g1), rig.XDPTX, "remove_old_generation"},
		{"late RST", rig.SignalFrom(1, rig.Outward(rig.HuntPort, wire.RST), wire.RemoveStickiness, g1), rig.XDPTX, "remove_old_generation"},
	}
	r.Learn(t, 1, first.Seq)
	r.Send(t, rig.SignalFrom(2, rig.SynAck(rig.HuntPort), wire.CreateStickiness, g2)).
		Is(t, "another server, unannounced", rig.XDPDrop, nil, "drop_not_released")
	r.Send(t, second.Frame()) // asks the server
	r.At(t, rig.Start+silence)
	r.Accepted(t, 2, second)
	r.Confirm(t, second)
	rig.Permute(len(late), func(order []int) {
		for _, i := range order {
			out := r.Send(t, late[i].frame)
			if out.Action != late[i].action || len(out.Reasons) != 1 || out.Reasons[0] != late[i].why {
				t.Errorf("%s in %v: %d for %v", late[i].label, order, out.Action, out.Reasons)
			}
			if e, _ := r.Flow(t, first.Flow()); e.Server != 2 || e.Generation != g2 || e.Closed != 0 {
				t.Fatalf("%s in %v: %+v", late[i].label, order, e)
			}
		}
	})
	own := rig.Outward(rig.HuntPort, wire.ACK)
	r.Send(t, rig.SignalFrom(2, own, wire.CreateStickiness, 99)).Is(t, "the same server, on its own", rig.XDPTX, rig.Unwrapped(own), "stickiness_recovered")
	r.Send(t, rig.SignalFrom(2, rig.Outward(rig.HuntPort, wire.RST), wire.RemoveStickiness, 99))
	r.Send(t, rig.SignalFrom(6, own, wire.CreateStickiness, 100)).Is(t, "after its end", rig.XDPTX, rig.Unwrapped(own), "stickiness_recovered")
}

// testEmbryonic: only the ACK of the server's SYN-ACK establishes a flow. An ACK of
// anything else is of a connection with another server.
func testEmbryonic(t *testing.T, seen rig.Hits) {
	r := rig.NewLB(t, seen, rig.Hunting(2, 7, rig.Members))
	p := rig.Inward(rig.HuntPort, wire.SYN)
	generation := wire.Generation(p.Seq)
	r.Accepted(t, 5, p)
	for _, c := range []struct {
		flags byte
		ack   uint32
	}{{wire.ACK, rig.ServerISN}, {wire.ACK, rig.ServerISN + 2}, {wire.ACK, 0}, {0, rig.ServerISN + 1}, {wire.RST, rig.ServerISN + 1}, {wire.FIN, rig.ServerISN + 1}} {
		q := p
		q.Flags, q.Ack = c.flags, c.ack
		want, why := rig.ToOne(q, 5, wire.AckStickiness, generation), "steer"
		if c.flags == wire.ACK {
			want, why = rig.Recovered(q, r.Union(t, 0, q.Flow())), "recover"
		}
		r.Send(t, q.Frame()).Is(t, fmt.Sprintf("%+v", c), rig.XDPTX, want, why)
		if _, known := r.Flow(t, p.Flow()); known {
			t.Fatalf("%+v made a flow", c)
		}
	}
	p.Flags, p.Ack = wire.ACK|wire.PSH, rig.ServerISN+1
	r.Send(t, p.Frame()).Is(t, "the ACK", rig.XDPTX, rig.ToOne(p, 5, wire.AckStickiness, generation), "flow_established", "steer")
	if e, known := r.Flow(t, p.Flow()); !known || e.Server != 5 || e.Generation != generation {
		t.Errorf("flow %+v, known %v", e, known)
	}
	if _, known := r.Embryonic(t, p.Flow()); known {
		t.Error("an embryonic entry beside its flow")
	}
	old := rig.Inward(rig.HuntPort, wire.SYN)
	old.Src = netip.AddrPortFrom(rig.ClientAddr, rig.ClientPort+1)
	r.Accepted(t, 5, old)
	r.At(t, rig.Start+10*time.Second)
	old.Flags, old.Ack = wire.ACK, rig.ServerISN+1
	r.Send(t, old.Frame()).Is(t, "ten seconds later", rig.XDPTX, rig.Recovered(old, r.Union(t, 0, old.Flow())), "recover")
}

// testRemove: the server's FIN or RST closes its side, of its own generation
// only; the signal's packet reaches the client in any case.
func testRemove(t *testing.T, seen rig.Hits) {
	generation := wire.Generation(rig.ClientISN)
	r := rig.NewLB(t, seen, rig.Hunting(2, 8, rig.Members))
	for _, c := range []struct {
		label      string
		flags      byte
		server     int
		generation uint16
		why        string
		closed     uint32
	}{
		{"FIN", wire.FIN | wire.ACK, 2, generation, "stickiness_removed", 2},
		{"RST", wire.RST, 2, generation, "stickiness_removed", 4},
		{"RST and FIN", wire.RST | wire.FIN, 2, generation, "stickiness_removed", 4},
		{"another generation", wire.FIN | wire.ACK, 2, generation + 1, "remove_old_generation", 0},
		{"another server", wire.RST, 3, generation, "remove_old_generation", 0},
	} {
		p := rig.Outward(rig.HuntPort, c.flags)
		frame := rig.SignalFrom(c.server, p, wire.RemoveStickiness, c.generation)
		r.Send(t, frame).Is(t, c.label+", unknown flow", rig.XDPTX, rig.Unwrapped(p), "stickiness_removed")
		if e, known := r.Flow(t, p.Reversed()); !known || int(e.Server) != c.server || e.Closed == 0 {
			t.Errorf("%s, unknown flow: %+v, %v", c.label, e, known)
		}
		r.Table.Put(t, p.Reversed(), rig.Entry{})
		r.Accepted(t, 2, rig.Inward(rig.HuntPort, wire.SYN))
		if c.closed == 0 {
			r.Send(t, frame).Is(t, c.label+", of an embryonic flow", rig.XDPTX, rig.Unwrapped(p), "remove_unknown")
		}
		r.Confirm(t, rig.Inward(rig.HuntPort, wire.SYN))
		r.Send(t, frame).Is(t, c.label, rig.XDPTX, rig.Unwrapped(p), c.why)
		if e, _ := r.Flow(t, p.Reversed()); e.Closed != c.closed {
			t.Errorf("%s: closed by %d, want %d", c.label, e.Closed, c.closed)
		}
		r.Table.Put(t, p.Reversed(), rig.Entry{})
	}
	p := rig.Outward(rig.HuntPort, wire.RST)
	for _, function := range []wire.Function{wire.RemoveStickiness, wire.CreateStickiness} { // whatever its server waits for
		r.Accepted(t, 2, rig.Inward(rig.HuntPort, wire.SYN))
		for _, label := range []string{"RST of an embryonic flow", "RST again"} {
			r.Send(t, rig.SignalFrom(2, p, function, generation)).Is(t, label, rig.XDPTX, rig.Unwrapped(p), "stickiness_removed")
			if e, known := r.Flow(t, p.Reversed()); !known || e.Closed != 4 {
				t.Errorf("%s: %+v, %v", label, e, known)
			}
		}
		r.Table.Put(t, p.Reversed(), rig.Entry{})
	}
}

// testFlowsFull: with no place left flows still reach their servers, and those
// that have a place keep it.
func testFlowsFull(t *testing.T, seen rig.Hits) {
	const entries = 64
	rig.Enter(t)
	cfg := rig.LBConfig(rig.Hunting(2, 7, rig.Members))
	cfg.Flows.Entries = entries
	r := rig.LoadLB(t, seen, cfg)
	client := func(i int, flags byte) rig.Packet {
		p := rig.Inward(rig.HuntPort, flags)
		p.Src, p.Ack = netip.AddrPortFrom(rig.ClientAddr, uint16(rig.ClientPort+i)), rig.ServerISN+1
		return p
	}
	generation, full := wire.Generation(rig.ClientISN), 0
	for i := range 4 * entries {
		answer := client(i, wire.SYN).Reply(wire.SYN | wire.ACK)
		answer.Seq, answer.Ack = rig.ServerISN, rig.ClientISN+1
		frame := rig.SignalFrom(i%7, answer, wire.CreateStickiness, generation)
		p := client(i, wire.ACK)
		if r.Send(t, frame).Reasons[0] == "table_full" {
			full++
			continue
		}
		r.Send(t, p.Frame()).Is(t, fmt.Sprint("flow ", i), rig.XDPTX, rig.ToOne(p, i%7, wire.AckStickiness, generation), "steer", "flow_established")
	}
	places := int(r.Lines) * objects.LineEntries
	if all, _ := r.Table.Count(t); all != places || full != 4*entries-places || places < entries {
		t.Errorf("%d flows of %d found the table of %d full, which has %d entries of %d", full, 4*entries, entries, all, places)
	}
	for i := range 4 * entries {
		p := client(i, wire.ACK)
		if e, known := r.Flow(t, p.Flow()); known {
			if int(e.Server) != i%7 || e.Generation != generation {
				t.Errorf("flow %d became %+v", i, e)
			}
			r.Send(t, p.Frame()).Is(t, "with entry", rig.XDPTX, rig.ToOne(p, i%7, wire.AckStickiness, generation), "steer")
			continue
		}
		r.Send(t, p.Frame()).Is(t, "without entry", rig.XDPTX, rig.Recovered(p, r.Union(t, 0, p.Flow())), "recover")
		back := rig.Outward(rig.HuntPort, wire.ACK)
		back.Dst = p.Src
		r.Send(t, rig.SignalFrom(i%7, back, wire.CreateStickiness, generation)).Is(t, "recovered without a place", rig.XDPTX, rig.Unwrapped(back), "table_full")
	}
}

// testEmbryonicFlood: docs/failures.md, SYN flood: 200,000 accepted SYNs without an ACK
// leave every established flow where it is.
func testEmbryonicFlood(t *testing.T, seen rig.Hits) {
	const live, flood = 200, 200_000
	r := rig.NewLB(t, seen, rig.Hunting(2, 8, rig.Members))
	client := func(i int) rig.Packet {
		p := rig.Inward(rig.HuntPort, wire.SYN)
		p.Src = netip.AddrPortFrom(rig.ClientAddr, uint16(rig.ClientPort+i))
		return p
	}
	for i := range live {
		r.Accepted(t, i%8, client(i))
		r.Confirm(t, client(i))
	}
	hops := topo.NextHops{netip.MustParsePrefix("::/0"): rig.RouterMAC}
	for i := range 8 {
		hops[rig.ServerLocator(i)] = rig.HopMAC(i)
	}
	if err := r.SetNextHops(hops); err != nil {
		t.Fatal(err)
	}
	frame := rig.SignalFrom(1, rig.SynAck(rig.HuntPort), wire.CreateStickiness, 77)
	const client4 = rig.AtUpper + 24 + 4 // somewhere in the client's address
	for i := range uint32(flood) {       // checksums are not the LB's business
		binary.BigEndian.PutUint32(frame[client4:], i)
		if i%(flood/8) == 0 { // in eight units of the table's clock: some are older than others
			r.At(t, rig.Start+time.Duration(i/(flood/8))*rig.Unit)
		}
		if got := r.Run(t, frame); got.Action != rig.XDPTX {
			t.Fatalf("SYN-ACK %d: action %d", i, got.Action)
		}
	}
	r.WellFormed(t)
	if _, n := r.Table.Count(t); n < 512 {
		t.Fatalf("the flood left %d embryonic entries: it was none", n)
	}
	for i := range live {
		p := client(i)
		if e, known := r.Flow(t, p.Flow()); !known || int(e.Server) != i%8 {
			t.Fatalf("flow %d after the flood: %+v, %v", i, e, known)
		}
		p.Flags = wire.ACK
		r.Send(t, p.Frame()).Is(t, "after the flood", rig.XDPTX, rig.ToOne(p, i%8, wire.AckStickiness, wire.Generation(rig.ClientISN)), "steer")
	}
	r.Accepted(t, 3, client(live)) // the oldest make room
	r.Confirm(t, client(live))
}
