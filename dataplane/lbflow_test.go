package dataplane

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"proffer/policy"
	"proffer/topo"
)

// testCreate: who says cs first has the flow; a SYN-ACK makes an embryo, anything
// else means that the server's kernel vouches for it.
func testCreate(t *testing.T, seen hits) {
	r := newLBRig(t, seen, hunting(2, 8))
	answer := synAck(huntPort)
	f := answer.reversed()
	const old, young = 111, 222
	for _, c := range []struct {
		what       string
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
		r.send(t, signalFrom(c.server, answer, create, c.generation)).is(t, c.what, xdpTX, unwrapped(answer), c.why)
		e, known := r.embryo(t, f)
		if !known || e.Server != c.owner || e.Generation != c.of || e.Expects != serverISN+1 {
			t.Errorf("%s: embryo %+v, known %v", c.what, e, known)
		}
		if _, known := r.flow(t, f); known {
			t.Errorf("%s: a flow before its client's ACK", c.what)
		}
	}
	answer.flags = ack // which is to say that the client has acknowledged that server's
	r.send(t, signalFrom(5, answer, create, young)).is(t, "data", xdpTX, unwrapped(answer), "stickiness_recovered")
	if e, known := r.flow(t, f); !known || e.Server != 5 || e.Generation != young {
		t.Errorf("recovered: %+v, %v", e, known)
	}
	if e, known := r.embryo(t, f); known {
		t.Errorf("recovered, and still an embryo: %+v", e)
	}
}

// testCreateInserted: the same in the client's own header, (server, lb::cs,
// client), 56 bytes.
func testCreateInserted(t *testing.T, seen hits) {
	r := newLBRig(t, seen, hunting(2, 8, inserting))
	answer := synAck(huntPort)
	frame := signalFrom(3, answer, create, 111, insert)
	if added := len(frame) - len(answer.frame()); added != 56 {
		t.Fatalf("the test's own header has %d bytes", added)
	}
	r.send(t, frame).is(t, "SYN-ACK", xdpTX, unwrapped(answer), "stickiness_created")
	if e, known := r.embryo(t, answer.reversed()); !known || e.Server != 3 || e.Generation != 111 {
		t.Errorf("embryo %+v, known %v", e, known)
	}
	answer.flags = fin | ack
	r.send(t, signalFrom(3, answer, remove, 111, insert)).is(t, "FIN", xdpTX, unwrapped(answer), "stickiness_removed")
}

// testGenerations: every order in which the signals of two connections of one
// five-tuple can arrive. Whatever comes late, the newer one, once confirmed,
// stays; and its own server, a SYN or the old one's end let another in.
func testGenerations(t *testing.T, seen hits) {
	r := newLBRig(t, seen, hunting(2, 8))
	first, second := inward(huntPort, syn), inward(huntPort, syn)
	second.seq += 1 << 20
	g1, g2 := policy.Generation(first.seq), policy.Generation(second.seq)
	late := []struct {
		what  string
		frame []byte
		why   string
	}{
		{"late SYN-ACK", signalFrom(1, synAck(huntPort), create, g1), "create_old_generation"},
		{"late recovery", signalFrom(1, outward(huntPort, ack), create, g1), "create_old_generation"},
		{"late FIN", signalFrom(1, outward(huntPort, fin|ack), remove, g1), "remove_old_generation"},
		{"late RST", signalFrom(1, outward(huntPort, rst), remove, g1), "remove_old_generation"},
	}
	r.learn(t, 1, first.seq)
	r.send(t, signalFrom(2, synAck(huntPort), create, g2)).
		is(t, "another server, unannounced", xdpTX, unwrapped(synAck(huntPort)), "create_old_generation")
	r.send(t, second.frame()) // announces
	r.accepted(t, 2, second)
	r.confirm(t, second)
	permute(len(late), func(order []int) {
		for _, i := range order {
			out := r.send(t, late[i].frame)
			if out.action != xdpTX || len(out.reasons) != 1 || out.reasons[0] != late[i].why {
				t.Errorf("%s in %v: %d for %v", late[i].what, order, out.action, out.reasons)
			}
			if e, _ := r.flow(t, first.flow()); e.Server != 2 || e.Generation != g2 || e.Closed != 0 {
				t.Fatalf("%s in %v: %+v", late[i].what, order, e)
			}
		}
	})
	own := outward(huntPort, ack)
	r.send(t, signalFrom(2, own, create, 99)).is(t, "the same server, on its own", xdpTX, unwrapped(own), "stickiness_recovered")
	r.send(t, signalFrom(2, outward(huntPort, rst), remove, 99))
	r.send(t, signalFrom(6, own, create, 100)).is(t, "after its end", xdpTX, unwrapped(own), "stickiness_recovered")
}

// permute calls f with every order of n things.
func permute(n int, f func(order []int)) {
	var place func(order []int)
	place = func(order []int) {
		if len(order) == n {
			f(order)
			return
		}
	next:
		for i := range n {
			for _, o := range order {
				if o == i {
					continue next
				}
			}
			place(append(order[:len(order):len(order)], i))
		}
	}
	place(nil)
}

// testEmbryo: only the ACK of what the server said makes a flow. An ACK of
// anything else is of a connection with another server.
func testEmbryo(t *testing.T, seen hits) {
	r := newLBRig(t, seen, hunting(2, 8))
	p := inward(huntPort, syn)
	generation := policy.Generation(p.seq)
	r.accepted(t, 5, p)
	for _, c := range []struct {
		flags byte
		ack   uint32
	}{{ack, serverISN}, {ack, serverISN + 2}, {ack, 0}, {0, serverISN + 1}, {rst, serverISN + 1}, {fin, serverISN + 1}} {
		q := p
		q.flags, q.ack = c.flags, c.ack
		want, why := toOne(q, 5, 0xa5, generation), "steer"
		if c.flags == ack {
			want, why = recovered(q, r.list(t, 0, q.flow())), "recover"
		}
		r.send(t, q.frame()).is(t, fmt.Sprintf("%+v", c), xdpTX, want, why)
		if _, known := r.flow(t, p.flow()); known {
			t.Fatalf("%+v made a flow", c)
		}
	}
	p.flags, p.ack = ack|psh, serverISN+1
	r.send(t, p.frame()).is(t, "the ACK", xdpTX, toOne(p, 5, 0xa5, generation), "flow_established", "steer")
	if e, known := r.flow(t, p.flow()); !known || e.Server != 5 || e.Generation != generation {
		t.Errorf("flow %+v, known %v", e, known)
	}
	if _, known := r.embryo(t, p.flow()); known {
		t.Error("an embryo beside its flow")
	}
	old := inward(huntPort, syn)
	old.src = netip.AddrPortFrom(clientAddr, clientPort+1)
	r.accepted(t, 5, old)
	r.at(t, start+10*time.Second)
	old.flags, old.ack = ack, serverISN+1
	r.send(t, old.frame()).is(t, "ten seconds later", xdpTX, recovered(old, r.list(t, 0, old.flow())), "recover")
}

// testRemove: the server's FIN or RST closes its side, of its own generation
// only; the signal's packet reaches the client in any case.
func testRemove(t *testing.T, seen hits) {
	generation := policy.Generation(clientISN)
	r := newLBRig(t, seen, hunting(2, 8))
	for _, c := range []struct {
		what       string
		flags      byte
		server     int
		generation uint16
		why        string
		closed     uint32
	}{
		{"FIN", fin | ack, 2, generation, "stickiness_removed", 2},
		{"RST", rst, 2, generation, "stickiness_removed", 4},
		{"RST and FIN", rst | fin, 2, generation, "stickiness_removed", 4},
		{"another generation", fin | ack, 2, generation + 1, "remove_old_generation", 0},
		{"another server", rst, 3, generation, "remove_old_generation", 0},
	} {
		p := outward(huntPort, c.flags)
		frame := signalFrom(c.server, p, remove, c.generation)
		r.send(t, frame).is(t, c.what+", unknown flow", xdpTX, unwrapped(p), "remove_unknown")
		r.accepted(t, 2, inward(huntPort, syn))
		if c.closed == 0 {
			r.send(t, frame).is(t, c.what+", of an embryo", xdpTX, unwrapped(p), "remove_unknown")
		}
		r.confirm(t, inward(huntPort, syn))
		r.send(t, frame).is(t, c.what, xdpTX, unwrapped(p), c.why)
		if e, _ := r.flow(t, p.reversed()); e.Closed != c.closed {
			t.Errorf("%s: closed by %d, want %d", c.what, e.Closed, c.closed)
		}
		r.table.put(t, p.reversed(), lbEntry{})
	}
	r.accepted(t, 2, inward(huntPort, syn))
	p := outward(huntPort, rst)
	for _, function := range []byte{remove, create} { // whatever its server waits for
		r.send(t, signalFrom(2, p, function, generation)).is(t, "RST of an embryo", xdpTX, unwrapped(p), "stickiness_removed")
		if _, known := r.embryo(t, p.reversed()); known {
			t.Error("an embryo after its RST")
		}
		r.send(t, signalFrom(2, p, function, generation)).is(t, "RST again", xdpTX, unwrapped(p), "remove_unknown")
		r.accepted(t, 2, inward(huntPort, syn))
	}
}

// testFlowsFull: with no place left flows still reach their servers, and those
// that have a place keep it.
func testFlowsFull(t *testing.T, seen hits) {
	const entries = 64
	enter(t)
	cfg := lbConfig(hunting(2, 8))
	cfg.Flows.Entries = entries
	r := lbRigOf(t, seen, cfg)
	client := func(i int, flags byte) packet {
		p := inward(huntPort, flags)
		p.src, p.ack = netip.AddrPortFrom(clientAddr, uint16(clientPort+i)), serverISN+1
		return p
	}
	generation, full := policy.Generation(clientISN), 0
	for i := range 4 * entries {
		answer := client(i, syn).reply(syn | ack)
		answer.seq, answer.ack = serverISN, clientISN+1
		frame := signalFrom(i%8, answer, create, generation)
		p := client(i, ack)
		if r.send(t, frame).reasons[0] == "table_full" {
			full++
			continue
		}
		r.send(t, p.frame()).is(t, fmt.Sprint("flow ", i), xdpTX, toOne(p, i%8, 0xa5, generation), "steer", "flow_established")
	}
	places := int(r.lines) * lineEntries
	if all, _ := r.table.count(t); all != places || full != 4*entries-places || places < entries {
		t.Errorf("%d flows of %d found the table of %d full, which has %d entries of %d", full, 4*entries, entries, all, places)
	}
	for i := range 4 * entries {
		p := client(i, ack)
		if e, known := r.flow(t, p.flow()); known {
			if int(e.Server) != i%8 || e.Generation != generation {
				t.Errorf("flow %d became %+v", i, e)
			}
			r.send(t, p.frame()).is(t, "with entry", xdpTX, toOne(p, i%8, 0xa5, generation), "steer")
			continue
		}
		r.send(t, p.frame()).is(t, "without entry", xdpTX, recovered(p, r.list(t, 0, p.flow())), "recover")
		back := outward(huntPort, ack)
		back.dst = p.src
		r.send(t, signalFrom(i%8, back, create, generation)).is(t, "recovered without a place", xdpTX, unwrapped(back), "table_full")
	}
}

// testEmbryoFlood: FAILURES.md, SYN flood: 200,000 accepted SYNs that nobody confirms
// leave every established flow where it is.
func testEmbryoFlood(t *testing.T, seen hits) {
	const live, flood = 200, 200_000
	r := newLBRig(t, seen, hunting(2, 8))
	client := func(i int) packet {
		p := inward(huntPort, syn)
		p.src = netip.AddrPortFrom(clientAddr, uint16(clientPort+i))
		return p
	}
	for i := range live {
		r.accepted(t, i%8, client(i))
		r.confirm(t, client(i))
	}
	hops := topo.NextHops{netip.MustParsePrefix("::/0"): routerMAC}
	for i := range 8 {
		hops[serverLocator(i)] = hopMAC(i)
	}
	if err := r.SetNextHops(hops); err != nil {
		t.Fatal(err)
	}
	frame := signalFrom(1, synAck(huntPort), create, 77)
	const client4 = atUpper + 24 + 4 // somewhere in the client's address
	for i := range uint32(flood) {   // checksums are not the LB's business
		binary.BigEndian.PutUint32(frame[client4:], i)
		if i%(flood/8) == 0 { // in eight units of the table's clock: some are older than others
			r.at(t, start+time.Duration(i/(flood/8))*unit)
		}
		if got := r.run(t, frame); got.action != xdpTX {
			t.Fatalf("SYN-ACK %d: action %d", i, got.action)
		}
	}
	r.wellFormed(t)
	if _, n := r.table.count(t); n < 512 {
		t.Fatalf("the flood left %d embryos: it was none", n)
	}
	for i := range live {
		p := client(i)
		if e, known := r.flow(t, p.flow()); !known || int(e.Server) != i%8 {
			t.Fatalf("flow %d after the flood: %+v, %v", i, e, known)
		}
		p.flags = ack
		r.send(t, p.frame()).is(t, "after the flood", xdpTX, toOne(p, i%8, 0xa5, policy.Generation(clientISN)), "steer")
	}
	r.accepted(t, 3, client(live)) // the oldest make room
	r.confirm(t, client(live))
}
