package dataplane

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proffer/policy"
	"proffer/topo"
)

// TestAgent runs every test of the agent's programs, then asks whether together
// they met every reason that the programs can count.
func TestAgent(t *testing.T) {
	seen := hits{}
	for _, c := range []struct {
		name string
		test func(*testing.T, hits)
	}{
		{"offer", testOffered},
		{"offer, on the wire", testPassOn},
		{"offer, load", testLoad},
		{"offer, not arrived", testExpected},
		{"offer, full queue", testFullQueue},
		{"offer, reuseport", testReuseport},
		{"offer, no listener", testNoListener},
		{"offer, repeated", testRepeated},
		{"offer, TIME_WAIT", testTimeWait},
		{"offer, table full", testConnsFull},
		{"dynamic", testDynamic},
		{"sockets", testSockets},
		{"steered", testSteered},
		{"steered, adopted", testAdopted},
		{"recover", testRecovered},
		{"request socket", testRequestSocket},
		{"deliver", testDeliver},
		{"congestion", testCongestion},
		{"pass untouched", testAgentUntouched},
		{"malformed", testAgentMalformed},
		{"out", testOut},
		{"out, deferred", testDeferred},
		{"asking", testAsking},
		{"asking, RST", testAskingReset},
		{"sweep", testSweepConns},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, seen) })
	}
	t.Run("every counter", func(t *testing.T) {
		seen.covers(t, newAgentRig(t, hits{}, offering(huntPort)).names, map[string]string{
			"drop_no_headroom": "the agent only ever shortens a packet, and none below its inner headers",
		})
	})
}

// testOffered: who takes what, by place in the list and by load. The last
// segment must be taken, whatever its function.
func testOffered(t *testing.T, seen hits) {
	for _, c := range []struct {
		what      string
		functions []byte
		asking    uint32
		action    uint32
		why       string
	}{
		{"ca, idle", []byte{0xca, 0xcf}, 0, xdpPass, "accept_avail"},
		{"ca, one below the threshold", []byte{0xca, 0xcf}, 3, xdpPass, "accept_avail"},
		{"ca, at the threshold", []byte{0xca, 0xcf}, 4, xdpTX, "pass_on_busy"},
		{"ca, first of four, busy", []byte{0xca, 0xca, 0xca, 0xcf}, 4, xdpTX, "pass_on_busy"},
		{"cf, busy", []byte{0xcf}, 4, xdpPass, "accept_force"},
		{"cf though another follows", []byte{0xcf, 0xcf}, 4, xdpPass, "accept_force"},
		{"ca with nobody behind", []byte{0xca}, 4, xdpPass, "accept_force"},
	} {
		t.Run(c.what, func(t *testing.T) {
			r := newAgentRig(t, seen, offering(huntPort))
			listen(t, huntPort, 128)
			r.setLoad(t, func(l *agentLoad) { l.Asking = c.asking })
			p := inward(huntPort, syn)
			s := to(p, policy.Generation(p.seq), c.functions...)
			if c.action == xdpTX {
				r.send(t, s.frame()).is(t, c.what, xdpTX, s.onward(hopMAC(2)), c.why)
				if _, known := r.conn(t, p.flow()); known {
					t.Error("an offer that was passed on left an entry")
				}
				return
			}
			r.send(t, s.frame()).is(t, c.what, xdpPass, delivered(p), c.why)
			want := agentConn{
				SeenNs: uint64(start), LbBe: locatorBits(lbLocator), Epoch: uint32(start >> epochShift),
				NextIn: clientISN + 1, Flags: connPending, Generation: policy.Generation(clientISN), State: connWait,
			}
			if got := r.mustConn(t, p); got != want {
				t.Errorf("entry %+v, want %+v", got, want)
			}
		})
	}
}

// enum conn_state and conn_flags of types.h.
const (
	connWait    = 1
	connDirect  = 2
	connPending = 2
)

// testPassOn: from the second of three to the third; only the destination, the
// segments left, the hop limit and the link addresses change.
func testPassOn(t *testing.T, seen hits) {
	r := newAgentRig(t, seen, offering(huntPort, func(o *topo.Offering) { o.Threshold = 0 }))
	listen(t, huntPort, 128)
	p := inward(huntPort, syn)
	p.class = 0xba
	s := to(p, policy.Generation(p.seq), 0xca, 0xca, 0xcf)
	for i := range s.segments { // we are the second, not the first
		s.segments[i] = sid(serverLocator([]int{2, here, 3}[i]), []byte{0xca, 0xca, 0xcf}[i], policy.Generation(p.seq))
	}
	s.at = 1
	r.send(t, s.frame()).is(t, "second of three", xdpTX, s.onward(hopMAC(3)), "pass_on_busy")
	s.class = 0x03 // congestion met on the way stays in the outer header
	r.send(t, s.frame()).is(t, "congestion on the way", xdpTX, s.onward(hopMAC(3)), "pass_on_busy")
	tlv := append(srh(41, 1, 0, s.segments[2]), 4, 6, 0, 0, 0, 0, 0, 0) // PadN, RFC 8754 §2.1.1.2
	tlv[1]++
	s.at, s.segments = 0, []netip.Addr{s.segments[1]}
	frame := withSRH(s.frame(), tlv)
	want := slices.Clone(frame)
	copy(want[0:6], hopMACBytes(3))
	copy(want[6:12], hereMAC[:])
	want[atHop]--
	copy(want[atDst:], tlv[8:24])
	want[atUpper+3] = 0
	r.send(t, frame).is(t, "with a TLV", xdpTX, want, "pass_on_busy")
	for _, hop := range []byte{0, 1} {
		s := to(p, policy.Generation(p.seq), 0xca, 0xcf)
		s.hop = hop
		r.send(t, s.frame()).is(t, fmt.Sprint("hop limit ", hop), xdpDrop, nil, "drop_hop_limit")
	}
	far := to(p, policy.Generation(p.seq), 0xca, 0xcf)
	far.segments[1] = sid(serverLocator(77), 0xcf, policy.Generation(p.seq))
	r.send(t, far.frame()).is(t, "no neighbour", xdpDrop, nil, "drop_no_next_hop")
	if addr, err := r.Unresolved(); err != nil || addr != far.segments[1] {
		t.Errorf("unresolved %v, %v", addr, err)
	}
}

func hopMACBytes(i int) []byte { m := hopMAC(i); return m[:] }

// testFullQueue: an accept queue that the kernel would refuse at is no place
// for an offer; the last candidate answers in the kernel's stead.
func testFullQueue(t *testing.T, seen hits) {
	const full = 2 // the kernel lets backlog + 1 wait
	for _, onFull := range []topo.OnFull{topo.Reset, topo.Drop} {
		t.Run(onFull.String(), func(t *testing.T) {
			r := newAgentRig(t, seen, offering(huntPort, func(o *topo.Offering) { o.OnFull = onFull }))
			l := listen(t, huntPort, full-1)
			p := inward(huntPort, syn)
			first := to(p, policy.Generation(p.seq), 0xca, 0xcf)
			last := to(p, policy.Generation(p.seq), 0xcf)
			r.send(t, first.frame()).is(t, "empty", xdpPass, delivered(p), "accept_avail")
			queue(t, l, huntPort, full-1)
			p.seq++ // another connection
			first.p, last.p = p, p
			r.send(t, first.frame()).is(t, "room for one", xdpPass, delivered(p), "accept_avail")
			dial(t, 60000, huntPort)
			queued(t, full, l)
			p.seq++
			first.p, last.p = p, p
			r.send(t, first.frame()).is(t, "may be passed on", xdpTX, first.onward(hopMAC(2)), "pass_on_full")
			if onFull == topo.Drop {
				r.send(t, last.frame()).is(t, "last", xdpDrop, nil, "refuse_full_drop")
				return
			}
			checkResets(t, r, p, 0)
			p.src = netip.AddrPortFrom(netip.MustParseAddr("2001:db8:dead::1"), clientPort)
			last.p = p
			r.send(t, last.frame()).is(t, "no neighbour", xdpDrop, nil, "drop_no_next_hop")
		})
	}
}

// testReuseport: the queues of all listeners of a group count as load.
func testReuseport(t *testing.T, seen hits) {
	r := newAgentRig(t, seen, offering(huntPort, func(o *topo.Offering) { o.Cores = 0 }))
	group := []int{
		listen(t, huntPort, 128, unix.SO_REUSEPORT),
		listen(t, huntPort, 128, unix.SO_REUSEPORT),
		listen(t, huntPort, 128, unix.SO_REUSEPORT),
	}
	p := inward(huntPort, syn)
	for i := range 6 {
		queued(t, i, group...)
		s := to(p, policy.Generation(p.seq), 0xca, 0xcf)
		if i < 4 {
			r.send(t, s.frame()).is(t, fmt.Sprint(i, " queued"), xdpPass, delivered(p), "accept_avail")
		} else {
			r.send(t, s.frame()).is(t, fmt.Sprint(i, " queued"), xdpTX, s.onward(hopMAC(2)), "pass_on_busy")
		}
		p.seq += 1000
		dial(t, uint16(50000+i), huntPort)
	}
}

// testNoListener: nobody to take it here; the last one's stack refuses.
func testNoListener(t *testing.T, seen hits) {
	r := newAgentRig(t, seen, offering(huntPort))
	p := inward(huntPort, syn)
	s := to(p, policy.Generation(p.seq), 0xca, 0xcf)
	r.send(t, s.frame()).is(t, "may be passed on", xdpTX, s.onward(hopMAC(2)), "pass_on_no_listener")
	r.send(t, to(p, policy.Generation(p.seq), 0xcf).frame()).is(t, "last", xdpPass, delivered(p), "refuse_no_listener")
	if _, known := r.conn(t, p.flow()); known {
		t.Error("a connection that nobody takes has an entry")
	}
}

// testRepeated: an offer for a connection that is here already.
func testRepeated(t *testing.T, seen hits) {
	r := newAgentRig(t, seen, offering(huntPort))
	p := inward(huntPort, syn)
	alive := inward(huntPort, syn)
	alive.src = netip.AddrPortFrom(clientAddr, clientPort+1)
	established(t, alive, clientISN)
	listen(t, huntPort, 128)
	r.accept(t, p)
	r.accept(t, alive)
	r.setLoad(t, func(l *agentLoad) { l.Asking = 100 })
	again := to(p, policy.Generation(p.seq), 0xca, 0xcf)
	r.at(t, start+time.Second)
	r.send(t, again.frame()).is(t, "its SYN again", xdpPass, delivered(p), "accept_repeated")

	alive.seq += 5555
	s := to(alive, policy.Generation(alive.seq), 0xca, 0xcf)
	r.send(t, s.frame()).is(t, "SYN into a live connection", xdpPass, delivered(alive), "accept_challenged")
	if c := r.mustConn(t, alive); c.Generation != policy.Generation(clientISN) {
		t.Errorf("a stray SYN changed the generation: %+v", c)
	}
	p.seq += 5555
	s = to(p, policy.Generation(p.seq), 0xca, 0xcf)
	r.send(t, s.frame()).is(t, "new connection of a dead one's ports", xdpTX, s.onward(hopMAC(2)), "pass_on_busy")
}

// testTimeWait: a flow's own TIME_WAIT hides neither the listener nor its load.
func testTimeWait(t *testing.T, seen hits) {
	r := newAgentRig(t, seen, offering(huntPort))
	l := listen(t, huntPort, 1)
	p := inward(huntPort, syn)
	timeWait(t, l, p)
	r.send(t, to(p, policy.Generation(p.seq), 0xca, 0xcf).frame()).is(t, "over TIME_WAIT", xdpPass, delivered(p), "accept_avail")
	queue(t, l, huntPort, 2)
	p.seq++
	s := to(p, policy.Generation(p.seq), 0xca, 0xcf)
	r.send(t, s.frame()).is(t, "over TIME_WAIT, full", xdpTX, s.onward(hopMAC(2)), "pass_on_full")
	p.flags = ack
	r.send(t, to(p, 0, 0xe5, 0xe5).frame()).is(t, "is TIME_WAIT mine?", xdpPass, delivered(p), "recovered")
}

// testConnsFull: without a place for its state an offer is passed on, and
// taken without state by the last.
func testConnsFull(t *testing.T, seen hits) {
	const entries = 64
	r := newAgentRigOf(t, seen, entries, offering(huntPort, func(o *topo.Offering) { o.Acceptance = topo.Always }))
	listen(t, huntPort, 128)
	p := inward(huntPort, syn)
	for i := range 2 * entries {
		p.src = netip.AddrPortFrom(clientAddr, uint16(clientPort+i))
		s := to(p, policy.Generation(p.seq), 0xca, 0xcf)
		if i < entries {
			r.send(t, s.frame()).is(t, fmt.Sprint("flow ", i), xdpPass, delivered(p), "accept_avail")
			continue
		}
		r.send(t, s.frame()).is(t, fmt.Sprint("flow ", i), xdpTX, s.onward(hopMAC(2)), "pass_on_table_full")
		r.send(t, to(p, policy.Generation(p.seq), 0xcf).frame()).is(t, "last", xdpPass, delivered(p), "table_full")
	}
}
