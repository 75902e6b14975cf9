package dataplane

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"proffer/policy"
)

// testCreate: who says cs first has the flow, until another generation comes.
func testCreate(t *testing.T, seen hits) {
	r := newLBRig(t, seen, hunting(2, 8))
	answer := outward(huntPort, syn|ack)
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
		{"another server", 4, old, "drop_stickiness_conflict", 3, old},
		{"another server, newer connection", 4, young, "stickiness_created", 4, young},
		{"a late duplicate of the first", 4, young, "stickiness_repeated", 4, young},
	} {
		action, want := uint32(xdpTX), unwrapped(answer)
		if c.why == "drop_stickiness_conflict" {
			action, want = xdpDrop, nil
		}
		r.send(t, signalFrom(c.server, answer, create, c.generation)).is(t, c.what, action, want, c.why)
		e, known := r.flow(t, f)
		if !known || e.Server != c.owner || e.Generation != c.of || e.State != 1 {
			t.Errorf("%s: entry %+v, known %v", c.what, e, known)
		}
	}
}

// testRemove: the server's FIN or RST closes its side, of its own generation
// only; the signal's packet reaches the client in any case.
func testRemove(t *testing.T, seen hits) {
	generation := policy.Generation(clientISN)
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
		t.Run(c.what, func(t *testing.T) {
			r := newLBRig(t, seen, hunting(2, 8))
			p := outward(huntPort, c.flags)
			frame := signalFrom(c.server, p, remove, c.generation)
			r.send(t, frame).is(t, "unknown flow", xdpTX, unwrapped(p), "remove_unknown")
			r.learn(t, 2, clientISN)
			r.send(t, frame).is(t, c.what, xdpTX, unwrapped(p), c.why)
			if e, _ := r.flow(t, p.reversed()); e.Closed != c.closed {
				t.Errorf("closed by %d, want %d", e.Closed, c.closed)
			}
		})
	}
}

// life is what happens to a flow before it is left alone.
type life struct {
	what string
	live func(*testing.T, *lbRig)
	age  time.Duration // the longest that its entry may be silent
}

func say(flags byte) func(*testing.T, *lbRig) {
	return func(t *testing.T, r *lbRig) { r.send(t, inward(huntPort, flags).frame()) }
}

func told(flags byte) func(*testing.T, *lbRig) {
	return func(t *testing.T, r *lbRig) {
		r.send(t, signalFrom(1, outward(huntPort, flags), remove, policy.Generation(clientISN)))
	}
}

func all(steps ...func(*testing.T, *lbRig)) func(*testing.T, *lbRig) {
	return func(t *testing.T, r *lbRig) {
		for _, step := range steps {
			step(t, r)
		}
	}
}

// testSweepFlows: an entry goes when its time has run out, not before: the
// lingering after both sides closed or the server reset, the embryonic one
// before the client's first packet, the idle one otherwise.
func testSweepFlows(t *testing.T, seen hits) {
	const idle, linger = 5 * time.Minute, 10 * time.Second
	for _, c := range []life{
		{"embryonic", all(), embryonic},
		{"embryonic, SYN again", say(syn), embryonic},
		{"embryonic, RST without ACK", say(rst), embryonic},
		{"established", say(ack), idle},
		{"client closed", all(say(ack), say(fin|ack)), idle},
		{"server closed", all(say(ack), told(fin|ack)), idle},
		{"both closed", all(say(ack), say(fin|ack), told(fin|ack)), linger},
		{"both closed, server first", all(told(fin|ack), say(fin|ack)), linger},
		{"reset by the server", all(say(ack), told(rst)), linger},
		{"forged client RST", all(say(ack), say(rst|ack)), idle},
		{"closed, then a new connection", all(told(rst), func(t *testing.T, r *lbRig) { r.learn(t, 2, clientISN+99) }), embryonic},
	} {
		t.Run(c.what, func(t *testing.T) {
			r := newLBRig(t, seen, hunting(2, 4))
			r.learn(t, 1, clientISN)
			c.live(t, r)
			for _, s := range []struct {
				after time.Duration
				want  Swept
			}{{-time.Second, Swept{Kept: 1}}, {c.age, Swept{Kept: 1}}, {c.age + 1, Swept{Removed: 1}}, {c.age + 2, Swept{}}} {
				got, err := r.sweepAt(start + s.after)
				if err != nil || got != s.want {
					t.Errorf("after %v: %+v, %v, want %+v", s.after, got, err, s.want)
				}
			}
		})
	}
	t.Run("touched", func(t *testing.T) { testTouch(t, seen) })
}

// testTouch: a packet renews its entry, though not more often than every 100 ms.
func testTouch(t *testing.T, seen hits) {
	r := newLBRig(t, seen, hunting(2, 4))
	r.learn(t, 1, clientISN)
	for _, c := range []struct{ now, seen time.Duration }{
		{start + 99*time.Millisecond, start},
		{start + 100*time.Millisecond, start + 100*time.Millisecond},
		{start + time.Hour, start + time.Hour},
	} {
		r.at(t, c.now)
		r.send(t, inward(huntPort, ack).frame())
		if e, _ := r.flow(t, inward(huntPort, ack).flow()); e.SeenNs != uint64(c.seen) {
			t.Errorf("at %v seen at %d, want %v", c.now, e.SeenNs, c.seen)
		}
	}
}

// testFlowsFull: with no place left new flows still get their answers, and
// those that have a place keep it.
func testFlowsFull(t *testing.T, seen hits) {
	const entries = 64
	r := newLBRigOf(t, seen, entries, hunting(2, 8))
	client := func(i int, flags byte) packet {
		p := inward(huntPort, flags)
		p.src = netip.AddrPortFrom(clientAddr, uint16(clientPort+i))
		return p
	}
	answered := func(i int) packet {
		p := client(i, syn|ack)
		p.src, p.dst = p.dst, p.src
		return p
	}
	full := 0
	for i := range 4 * entries {
		out := r.send(t, signalFrom(i%8, answered(i), create, uint16(1+i)))
		why := "stickiness_created"
		if out.reasons[0] == "table_full" {
			why, full = "table_full", full+1
		}
		out.is(t, fmt.Sprint("flow ", i), xdpTX, unwrapped(answered(i)), why)
	}
	if full != 3*entries {
		t.Errorf("%d flows of %d found the table of %d full", full, 4*entries, entries)
	}
	for i := range 4 * entries {
		p := client(i, ack)
		e, known := r.flow(t, p.flow())
		if !known {
			r.send(t, p.frame()).is(t, "without entry", xdpTX, recovered(p, r.list(0, p.flow())), "recover")
			continue
		}
		if int(e.Server) != i%8 || int(e.Generation) != 1+i {
			t.Errorf("flow %d became %+v", i, e)
		}
		r.send(t, p.frame()).is(t, "with entry", xdpTX, toOne(p, i%8, 0xa5, uint16(1+i)), "steer", "flow_acknowledged")
	}
}
