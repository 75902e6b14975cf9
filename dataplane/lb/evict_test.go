package lb_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"proffer/dataplane/objects"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// twoLines is an LB with a table of two lines, of eight slots, and a way to new flows that
// may be in either line.
type twoLines struct {
	*rig.LB
	client uint16
}

func newTwoLines(t *testing.T, seen rig.Hits, services ...topo.Service) *twoLines {
	t.Helper()
	rig.Enter(t)
	cfg := rig.LBConfig(services...)
	cfg.Flows.Entries = 6
	r := &twoLines{LB: rig.LoadLB(t, seen, cfg), client: rig.ClientPort}
	if r.Lines != 2 {
		t.Fatalf("%d lines", r.Lines)
	}
	return r
}

// next is the first packet of another flow of a service.
func (r *twoLines) next(port uint16, protocol topo.Protocol) rig.Packet {
	for {
		r.client++
		p := rig.Inward(port, wire.SYN)
		if protocol == topo.UDP {
			p = rig.Datagram(port, "datagram")
		}
		p.Src = netip.AddrPortFrom(rig.ClientAddr, r.client)
		if _, lines := r.Table.LinesOf(p.Flow()); lines[0] != lines[1] {
			return p
		}
	}
}

// accepted sends the signal that a server took a flow, and returns the counters.
func (r *twoLines) accepted(t *testing.T, p rig.Packet) []string {
	t.Helper()
	answer := p.Reply(wire.SYN | wire.ACK)
	answer.Seq, answer.Ack = rig.ServerISN, p.Seq+1
	return r.Send(t, rig.SignalFrom(1, answer, wire.CreateStickiness, generationOf(p))).Reasons
}

func generationOf(p rig.Packet) uint16 {
	if p.Protocol == topo.UDP {
		return 1
	}
	return wire.Generation(p.Seq)
}

// begin makes an established flow of a service.
func (r *twoLines) begin(t *testing.T, port uint16, protocol topo.Protocol) rig.Packet {
	t.Helper()
	p := r.next(port, protocol)
	if why := r.accepted(t, p); !slices.Contains(why, "stickiness_created") {
		t.Fatalf("the flow was %v", why)
	}
	r.Confirm(t, p)
	return p
}

// sends is a later packet of the client.
func (r *twoLines) sends(t *testing.T, p rig.Packet, flags byte) {
	t.Helper()
	p.Flags, p.Seq, p.Ack = flags, p.Seq+1, rig.ServerISN+1
	if out := r.Send(t, p.Frame()); !slices.Equal(out.Reasons, []string{"steer"}) {
		t.Fatalf("the flow's packet: %v", out.Reasons)
	}
}

// closes is the server's FIN or RST.
func (r *twoLines) closes(t *testing.T, p rig.Packet, flags byte) {
	t.Helper()
	answer := p.Reply(flags)
	r.Send(t, rig.SignalFrom(1, answer, wire.RemoveStickiness, generationOf(p)))
}

func (r *twoLines) known(t *testing.T, p rig.Packet) bool {
	t.Helper()
	return r.Table.Get(t, p.Flow()).Word != 0
}

// testGivesWay: the order in which entries give way to new flows.
func testGivesWay(t *testing.T, seen rig.Hits) {
	udp := rig.Hunting(2, 2, rig.OverUDP)
	r := newTwoLines(t, seen, rig.Hunting(2, 2), udp)
	now := rig.Start + 200*time.Second
	tcp := func(before time.Duration, live func(rig.Packet)) rig.Packet {
		r.At(t, now-before)
		p := r.begin(t, rig.HuntPort, topo.TCP)
		live(p)
		return p
	}
	nothing := func(rig.Packet) {}
	type entry struct {
		state, counter string
		p              rig.Packet
	}
	var all []entry
	add := func(state, counter string, p rig.Packet) { all = append(all, entry{state, counter, p}) }
	add("closed by both, and its time is up", "evicted_expired", tcp(20*time.Second, func(p rig.Packet) {
		r.sends(t, p, wire.FIN|wire.ACK)
		r.closes(t, p, wire.FIN|wire.ACK)
	}))
	idle := tcp(61*time.Second, nothing)
	half := tcp(31*time.Second, func(p rig.Packet) { r.sends(t, p, wire.FIN|wire.ACK) })
	r.At(t, now-5*time.Second)
	brief := r.begin(t, rig.HuntPort, topo.UDP)
	over := tcp(5*time.Second, func(p rig.Packet) { r.closes(t, p, wire.RST) })
	stays := []rig.Packet{tcp(4*time.Second, func(p rig.Packet) { r.closes(t, p, wire.RST) }), tcp(59*time.Second, nothing)}
	r.At(t, now-time.Second)
	waiting := r.next(rig.HuntPort, topo.TCP)
	r.accepted(t, waiting)
	add("embryonic", "evicted_embryonic", waiting)
	add("reset", "evicted_over", over)
	add("half-closed", "evicted_half_closed", half)
	add("of two datagrams", "evicted_brief", brief)
	add("idle", "evicted_idle", idle)

	r.At(t, now)
	for i, gone := range all {
		p := r.next(rig.HuntPort, topo.TCP)
		if why := r.accepted(t, p); !slices.Equal(why, []string{gone.counter, "stickiness_created"}) {
			t.Errorf("a new flow found %v, want %s", why, gone.counter)
		}
		r.Confirm(t, p)
		for k, e := range all {
			if known := r.known(t, e.p); known != (k > i) {
				t.Errorf("after %s the entry that is %s is there: %v", gone.state, e.state, known)
			}
		}
	}
	if why := r.accepted(t, r.next(rig.HuntPort, topo.TCP)); !slices.Equal(why, []string{"table_full"}) {
		t.Errorf("a flow that must not find room: %v", why)
	}
	for _, p := range stays {
		if !r.known(t, p) {
			t.Errorf("%v gave way", p.Flow())
		}
	}
	r.WellFormed(t)
}

// testConversation: a UDP flow of three datagrams is idle after a minute, not after 4 s.
func testConversation(t *testing.T, seen rig.Hits) {
	r := newTwoLines(t, seen, rig.Hunting(2, 2, rig.OverUDP))
	var all []rig.Packet
	for range 8 {
		p := r.begin(t, rig.HuntPort, topo.UDP)
		r.sends(t, p, 0)
		all = append(all, p)
	}
	another := r.next(rig.HuntPort, topo.UDP)
	r.At(t, rig.Start+5*time.Second)
	if why := r.accepted(t, another); !slices.Equal(why, []string{"table_full"}) {
		t.Errorf("5 s after all datagrams: %v", why)
	}
	for _, p := range all {
		if !r.known(t, p) {
			t.Errorf("%v gave way", p.Flow())
		}
	}
	r.At(t, rig.Start+61*time.Second)
	if why := r.accepted(t, another); !slices.Equal(why, []string{"evicted_idle", "stickiness_created"}) {
		t.Errorf("61 s after all datagrams: %v", why)
	}
}

// fill gives all slots to flows of these services in turn, that were seen now.
func (r *twoLines) fill(t *testing.T, vips ...topo.VIP) (all []rig.Packet) {
	t.Helper()
	for i := range 2 * objects.LineEntries {
		v := vips[i%len(vips)]
		p := r.begin(t, v.Port, v.Protocol)
		r.sends(t, p, wire.ACK) // a third datagram
		all = append(all, p)
	}
	return all
}

// testShares: a service may fill the table, but not against another: that one gets half of
// the slots, and no flow that sent a packet within 4 s gives way. The services of UDP count
// together.
func testShares(t *testing.T, seen rig.Hits) {
	web, other := topo.VIP{Port: rig.HuntPort}, topo.VIP{Port: 81}
	services := []topo.Service{rig.Hunting(2, 2), rig.Hunting(2, 2, rig.At81)}
	var datagrams []topo.VIP
	for i := range 2 * objects.LineEntries {
		v := topo.VIP{Port: uint16(1000 + i), Protocol: topo.UDP}
		datagrams = append(datagrams, v)
		services = append(services, rig.Hunting(2, 2, func(s *topo.Service) { s.VIP.Port, s.VIP.Protocol = v.Port, v.Protocol }))
	}
	for _, c := range []struct {
		label  string
		filled []topo.VIP
		after  time.Duration
		comes  topo.VIP
		want   int // flows that find room
	}{
		{"alone", []topo.VIP{web}, 5 * time.Second, web, 0},
		{"against another service", []topo.VIP{other}, 5 * time.Second, web, 4},
		{"against one that just sent", []topo.VIP{other}, 4 * time.Second, web, 0},
		{"against a service of half the slots", []topo.VIP{web, other}, 5 * time.Second, web, 0},
		{"against eight services of UDP", datagrams, 5 * time.Second, web, 4},
	} {
		t.Run(c.label, func(t *testing.T) {
			r := newTwoLines(t, seen, services...)
			all := r.fill(t, c.filled...)
			r.At(t, rig.Start+c.after)
			for i := range 8 {
				p := r.next(c.comes.Port, c.comes.Protocol)
				why := r.accepted(t, p)
				want := []string{"evicted_excess", "stickiness_created"}
				if i >= c.want {
					want = []string{"table_full"}
				} else {
					r.Confirm(t, p)
				}
				if !slices.Equal(why, want) {
					t.Errorf("flow %d: %v, want %v", i, why, want)
				}
			}
			left := 0
			for _, p := range all {
				if r.known(t, p) {
					left++
				}
			}
			if left != len(all)-c.want {
				t.Errorf("%d of %d flows are left, want %d", left, len(all), len(all)-c.want)
			}
			r.WellFormed(t)
		})
	}
}

// testIdleShares: where a service has no more slots than another, its idle entries stay.
func testIdleShares(t *testing.T, seen rig.Hits) {
	web, other := topo.VIP{Port: rig.HuntPort}, topo.VIP{Port: 81}
	r := newTwoLines(t, seen, rig.Hunting(2, 2), rig.Hunting(2, 2, rig.At81))
	all := r.fill(t, web, other)
	r.At(t, rig.Start+61*time.Second)
	for i := range 4 { // of its own service
		p := r.next(rig.HuntPort, topo.TCP)
		if why := r.accepted(t, p); !slices.Equal(why, []string{"evicted_idle", "stickiness_created"}) {
			t.Errorf("flow %d: %v", i, why)
		}
		r.Confirm(t, p)
	}
	for i, p := range all {
		if known := r.known(t, p); known != (i%2 == 1) {
			t.Errorf("flow %d is there: %v", i, known)
		}
	}
	if why := r.accepted(t, r.next(rig.HuntPort, topo.TCP)); !slices.Equal(why, []string{"table_full"}) {
		t.Errorf("a fifth: %v", fmt.Sprint(why))
	}
}
