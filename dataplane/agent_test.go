package dataplane

import (
	"encoding/binary"
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
		{"offer, retried", testPassedOnBefore},
		{"offer, TIME_WAIT", testTimeWait},
		{"offer, no place", testNoPlace},
		{"flood", testFlood},
		{"table full", testConnsFull},
		{"dynamic", testDynamic},
		{"sockets", testSockets},
		{"steered", testSteered},
		{"steered, adopted", testAdopted},
		{"steered, another generation", testOtherGeneration},
		{"steered, not mine", testNotMine},
		{"steered, stale", testStale},
		{"recover", testRecovered},
		{"request socket", testRequestSocket},
		{"cookie", testCookie},
		{"reject", testRejected},
		{"too big", testTooBig},
		{"owner table", testOwnerTable},
		{"owner netns", testOwnerNetns},
		{"udp", testUDP},
		{"IPv4", testIPv4},
		{"insert", testInsert},
		{"domain", testDomain},
		{"tags", testTags},
		{"deliver", testDeliver},
		{"congestion", testCongestion},
		{"pass untouched", testAgentUntouched},
		{"malformed", testAgentMalformed},
		{"out", testOut},
		{"out, both families and wires", testOutWires},
		{"out, deferred", testDeferred},
		{"out, said again", testSaidAgain},
		{"asking", testAsking},
		{"asking, RST", testAskingReset},
		{"sweep", testSweepConns},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, seen) })
	}
	t.Run("every counter", func(t *testing.T) {
		seen.covers(t, newAgentRig(t, hits{}, offering(huntPort)).names, map[string]string{
			"drop_no_headroom": "what the agent puts on a packet is no longer than what it took off",
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
			if _, known := r.settled(t, p.flow()); known {
				t.Error("a flow whose client has proved nothing is among the established")
			}
		})
	}
}

// enum conn_state and conn_flags of types.h.
const (
	connWait    = 1
	connDirect  = 2
	connAsking  = 1
	connPending = 2
	connInsert  = 32
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
			r.send(t, first.frame()).is(t, "empty", xdpPass, delivered(p), "accept_avail")
			queue(t, l, huntPort, full-1)
			p.seq++ // another connection
			first = to(p, policy.Generation(p.seq), 0xca, 0xcf)
			r.send(t, first.frame()).is(t, "room for one", xdpPass, delivered(p), "accept_avail")
			dial(t, 60000, huntPort)
			queued(t, full, l)
			p.seq++
			first = to(p, policy.Generation(p.seq), 0xca, 0xcf)
			last := to(p, policy.Generation(p.seq), 0xcf)
			forced := to(p, policy.Generation(p.seq), 0xcf, 0xcf)
			r.send(t, forced.frame()).is(t, "cf, but not the last", xdpTX, forced.onward(hopMAC(2)), "pass_on_full")
			r.send(t, first.frame()).is(t, "may be passed on", xdpTX, first.onward(hopMAC(2)), "pass_on_full")
			if onFull == topo.Drop {
				r.send(t, last.frame()).is(t, "last", xdpDrop, nil, "refuse_full_drop")
				return
			}
			checkResets(t, r, p, 0)
			p.src = netip.AddrPortFrom(netip.MustParseAddr("2001:db8:dead::1"), clientPort)
			last = to(p, policy.Generation(p.seq), 0xcf)
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

// testNoListener: nobody to take it here; only the LB knows whether all others
// have been asked, and then our stack refuses.
func testNoListener(t *testing.T, seen hits) {
	r := newAgentRig(t, seen, offering(huntPort))
	p := inward(huntPort, syn)
	for _, functions := range [][]byte{{0xca, 0xcf}, {0xcf, 0xcf}} {
		s := to(p, policy.Generation(p.seq), functions...)
		r.send(t, s.frame()).is(t, "may be passed on", xdpTX, s.onward(hopMAC(2)), "pass_on_no_listener")
	}
	back := to(p, policy.Generation(p.seq), 0xca, 0xe5)
	back.segments[1] = sid(lbLocator, 0xe5, policy.Generation(p.seq))
	r.send(t, back.frame()).is(t, "the list goes on at the LB", xdpTX, back.onward(hopMAC(0xb)), "pass_on_no_listener")
	for _, f := range []byte{0xca, 0xcf} {
		last := to(p, policy.Generation(p.seq), f)
		r.send(t, last.frame()).is(t, "last", xdpTX, last.returned(), "give_back_no_listener")
		r.send(t, last.flagged(sidFinal).frame()).is(t, "last of all", xdpPass, delivered(p), "refuse_no_listener")
	}
	lost := to(p, policy.Generation(p.seq), 0xcf)
	lost.lb = netip.MustParsePrefix("fd00:0:0:dead::/64")
	r.send(t, lost.frame()).is(t, "no way back", xdpDrop, nil, "drop_no_next_hop")
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
	r.begin(t, alive)
	listen(t, huntPort, 128)
	r.accept(t, p)
	r.setLoad(t, func(l *agentLoad) { l.Asking = 100 })
	again := to(p, policy.Generation(p.seq), 0xca, 0xcf)
	again.lb = otherLB
	r.at(t, start+time.Second)
	r.send(t, again.frame()).is(t, "its SYN again", xdpPass, delivered(p), "accept_repeated")
	if c := r.mustConn(t, p); c.LbBe != locatorBits(otherLB) || c.SeenNs != uint64(start+time.Second) {
		t.Errorf("its SYN by another LB left %+v", c)
	}

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

// testPassedOnBefore: a retransmitted SYN goes past an agent that passed it on, for a
// minute: someone further on may have taken it.
func testPassedOnBefore(t *testing.T, seen hits) {
	r := newAgentRig(t, seen, offering(huntPort, func(o *topo.Offering) { o.Cores = 0 }))
	listen(t, huntPort, 128)
	p := inward(huntPort, syn)
	first := to(p, policy.Generation(p.seq), 0xca, 0xcf)
	r.setLoad(t, func(l *agentLoad) { l.Asking = 4 })
	r.send(t, first.frame()).is(t, "passed on", xdpTX, first.onward(hopMAC(2)), "pass_on_busy")
	r.setLoad(t, func(l *agentLoad) { l.Asking = 0 })
	retry := first.flagged(sidRetry)
	r.at(t, start+59*time.Second)
	r.send(t, retry.frame()).is(t, "again", xdpTX, retry.onward(hopMAC(2)), "pass_on_again")
	forced := to(p, policy.Generation(p.seq), 0xcf, 0xcf).flagged(sidRetry)
	r.send(t, forced.frame()).is(t, "again, by force", xdpTX, forced.onward(hopMAC(2)), "pass_on_again")
	other := p
	other.seq++
	s := to(other, policy.Generation(other.seq), 0xca, 0xcf).flagged(sidRetry)
	r.send(t, s.frame()).is(t, "the retry of another", xdpPass, delivered(other), "accept_avail")
	other.src = netip.AddrPortFrom(clientAddr, clientPort+1)
	s = to(other, policy.Generation(other.seq), 0xca, 0xcf).flagged(sidRetry)
	r.send(t, s.frame()).is(t, "of another client", xdpPass, delivered(other), "accept_avail")
	neighbour := p // in the table
	for neighbour.seq++; passedOnHash(neighbour)%65536 != passedOnHash(p)%65536; neighbour.seq++ {
		continue
	}
	s = to(neighbour, policy.Generation(neighbour.seq), 0xca, 0xcf).flagged(sidRetry)
	r.send(t, s.frame()).is(t, "of one with the same place", xdpPass, delivered(neighbour), "accept_avail")
	r.at(t, start+60*time.Second)
	r.send(t, retry.frame()).is(t, "a minute later", xdpPass, delivered(p), "accept_avail")

	p.src = netip.AddrPortFrom(clientAddr, clientPort+2)
	first = to(p, policy.Generation(p.seq), 0xca, 0xcf)
	r.setLoad(t, func(l *agentLoad) { l.Asking = 4 })
	r.send(t, first.frame()).is(t, "passed on", xdpTX, first.onward(hopMAC(2)), "pass_on_busy")
	last := to(p, policy.Generation(p.seq), 0xcf).flagged(sidRetry)
	r.send(t, last.frame()).is(t, "again, and the last", xdpPass, delivered(p), "accept_force")
}

// passedOnHash is the hash by which bpf/agent/passed_on.h finds the slot of p's offer.
func passedOnHash(p packet) uint64 {
	h, b := uint64(p.seq), slices.Concat(p.src.Addr().AsSlice(), p.dst.Addr().AsSlice())
	b = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, p.src.Port()), p.dst.Port())
	for b = append(b, 6, 0, 0, 0); len(b) > 0; b = b[8:] {
		h = policy.Mix(h ^ binary.LittleEndian.Uint64(b))
	}
	return h
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
	p.flags = ack // of something else: the five-tuple may live elsewhere
	s = to(p, 0, 0xe5, 0xe5)
	r.send(t, s.frame()).is(t, "is TIME_WAIT mine?", xdpTX, s.onward(hopMAC(2)), "pass_on_not_mine")
	p.flags = rst
	r.send(t, to(p, 0, 0xe5, 0xe5).frame()).is(t, "a RST in TIME_WAIT", xdpPass, delivered(p), "recovered")
}
