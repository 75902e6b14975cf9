package e2e

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/wire"
)

// recorded is a capture with what a test of the wire format looks up in it.
type recorded struct {
	bed    *testbed.Bed
	frames []frame
}

// listen runs the policy, makes the connections and returns what was on the
// links, and the capture's file.
func listen(t *testing.T, servers int, s farmrun.Settings) (recorded, string) {
	t.Helper()
	bed := up(t, testbed.Config{Servers: servers})
	serve(t, bed)
	start(t, bed, s)
	c := record(t, bed)
	exchange(t, bed)
	settled(t, bed)
	return recorded{bed, c.stop(t)}, c.file
}

// on returns the frames with TCP on a node's link in one direction.
func (w *recorded) on(n *testbed.Node, toNode bool) []*frame {
	var found []*frame
	for i := range w.frames {
		f := &w.frames[i]
		if f.link == n.Link && f.toNode == toNode && f.tcp != nil && f.tcp.from.Port() != checkPort {
			found = append(found, f)
		}
	}
	return found
}

// forwarded pairs every packet that the LB encapsulated with the one it got.
// All that came in for the VIP must have gone out, once, unchanged but for the
// hop limit, and nothing else.
func (w *recorded) forwarded(t *testing.T) []pair {
	t.Helper()
	lb := w.bed.LBs[0]
	waiting := map[string][]*frame{}
	for _, f := range w.on(lb, true) {
		if !f.encapsulated() {
			waiting[f.packet()] = append(waiting[f.packet()], f)
		}
	}
	var pairs []pair
	for _, f := range w.on(lb, false) {
		if !f.encapsulated() {
			continue
		}
		came := waiting[f.packet()]
		if len(came) == 0 {
			t.Fatalf("the LB sent a packet that it did not get: %v to %v", f.tcp, f.way())
		}
		pairs = append(pairs, pair{came[0], f})
		waiting[f.packet()] = came[1:]
	}
	for _, left := range waiting {
		for _, f := range left {
			t.Errorf("the LB got a packet that it did not send on: %v", f.tcp)
		}
	}
	return pairs
}

// pair is a packet as it came to the LB and as it left.
type pair struct{ in, out *frame }

// TestWire reads, for every policy and length of list, what the issue promises
// of the packets from what was on the links.
func TestWire(t *testing.T) {
	for _, c := range []struct {
		policy           string
		choices, servers int
		list             int // candidates an offer names; 0: no offer is made
	}{
		{"hunt:static:4", 2, 4, 2},
		{"hunt:static:0", 2, 4, 2}, // everything is passed on
		{"hunt:static:0", 3, 4, 3},
		{"hunt:static:4", 4, 5, 4},
		{"hunt:static:0", 4, 5, 4},
		{"hunt:static:0", 2, 1, 1}, // fewer servers than choices
		{"hunt:static:0", 4, 2, 2},
		{"single", 0, 4, 0},
	} {
		t.Run(fmt.Sprintf("%s,%d of %d", c.policy, c.choices, c.servers), func(t *testing.T) {
			s := settings(t, c.policy)
			s.Choices = c.choices
			w, file := listen(t, c.servers, s)
			w.wantPlainClient(t, connections)
			pairs := w.forwarded(t)
			if len(pairs) < connections {
				t.Fatalf("%d packets through the LB for %d connections", len(pairs), connections)
			}
			w.wantSizes(t, pairs, c.list)
			w.wantOuterHeaders(t, pairs)
			w.wantLabels(t)
			w.wantReplies(t, c.list > 0)
			if c.policy == "hunt:static:0" {
				w.wantPassedOn(t, pairs, c.list)
			}
			judge(t, file, len(pairs))
		})
	}
}

// wantPlainClient: the client never sees an SRH, an encapsulation or a locator.
func (w *recorded) wantPlainClient(t *testing.T, connections int) {
	t.Helper()
	sids := netip.MustParsePrefix("5f00::/16") // RFC 9602
	seen := 0
	for _, f := range w.frames {
		if f.link != w.bed.Client.Link {
			continue
		}
		seen++
		if f.encapsulated() || f.ip.next == routing || f.ip.next == wire.ProtoIPv6 {
			t.Errorf("the client's link carries an encapsulated packet: %v by %v", f.ip, f.list)
		}
		if sids.Contains(f.ip.source) || sids.Contains(f.ip.destination) {
			t.Errorf("the client's link carries a SID: %v", f.ip)
		}
		for _, n := range slices.Concat(w.bed.LBs, w.bed.Servers) {
			if where := n.Locator.Addr().As16(); bytes.Contains(f.bytes, where[:8]) {
				t.Errorf("the client's link carries the locator of %s inside a packet: % x", n.Name, f.bytes)
			}
		}
	}
	if seen < 8*connections { // SYN, SYN-ACK, ACK, request, answer, FINs at the least
		t.Errorf("%d frames on the client's link for %d connections", seen, connections)
	}
}

// wantSizes: an offer to n candidates is 40 + 8 + 16 (n − 1) bytes longer than
// the client's SYN, or 40 for one; everything else 40.
func (w *recorded) wantSizes(t *testing.T, pairs []pair, list int) {
	t.Helper()
	offers := 0
	for _, p := range pairs {
		want := ipv6
		switch way := p.out.way(); function(way[0]) {
		case wire.ConnectAvail, wire.ConnectForce:
			offers++
			if list > 1 {
				want = ipv6 + 8 + 16*(list-1)
			}
			w.wantList(t, way, list)
			wantSRH(t, p.out, list)
			if !p.in.tcp.has(wire.SYN) || p.in.tcp.has(wire.ACK) {
				t.Errorf("%v is offered", p.in.tcp)
			}
		case wire.AckStickiness:
			if list == 0 || p.in.tcp.has(wire.SYN) {
				t.Errorf("%v is steered", p.in.tcp)
			}
		case wire.Deliver:
			if list > 0 {
				t.Errorf("%v goes to a server by hash alone", p.in.tcp)
			}
		default:
			t.Errorf("%v goes by %v", p.in.tcp, way)
		}
		if got := len(p.out.bytes) - len(p.in.bytes); got != want || p.out.overhead() != want {
			t.Errorf("%v by %v: %d bytes longer, want %d", p.in.tcp, p.out.way(), got, want)
		}
	}
	if list > 0 && offers < connections {
		t.Errorf("%d offers for %d connections", offers, connections)
	}
}

// wantSRH: RFC 8754 §2 with the reduced list of RFC 8986 §5.2.
func wantSRH(t *testing.T, f *frame, list int) {
	t.Helper()
	if list == 1 {
		if f.ip.next != wire.ProtoIPv6 {
			t.Errorf("an offer to one server has a next header %d", f.ip.next)
		}
		return
	}
	const srhType = 4
	want := []byte{wire.ProtoIPv6, byte(2 * (list - 1)), srhType, byte(list - 1), byte(list - 2), 0, 0, 0}
	if got := f.bytes[ethernet+ipv6:][:8]; f.ip.next != routing || !bytes.Equal(got, want) {
		t.Errorf("an offer to %d servers has the SRH % x after next header %d, want % x", list, got, f.ip.next, want)
	}
}

// wantList: every candidate once, the last one must take it.
func (w *recorded) wantList(t *testing.T, way []netip.Addr, length int) {
	t.Helper()
	if len(way) != length {
		t.Errorf("an offer to %v, want %d candidates", way, length)
	}
	seen := map[netip.Prefix]bool{}
	for i, sid := range way {
		if seen[locator(sid)] {
			t.Errorf("an offer to %v names a server twice", way)
		}
		seen[locator(sid)] = true
		if !slices.ContainsFunc(w.bed.Servers, func(n *testbed.Node) bool { return n.Locator == locator(sid) }) {
			t.Errorf("an offer to %v, which is no server", sid)
		}
		want := wire.ConnectAvail
		if i == len(way)-1 {
			want = wire.ConnectForce
		}
		if function(sid) != want {
			t.Errorf("candidate %d of %v has function %s, want %s", i, way, function(sid), want)
		}
	}
}

// wantPassedOn: with no willing server, every offer visits every candidate in the
// order of its list and stays with the last, unchanged.
func (w *recorded) wantPassedOn(t *testing.T, pairs []pair, list int) {
	t.Helper()
	visits := map[flow][]netip.Prefix{}
	last := map[flow]netip.Prefix{}
	for _, n := range w.bed.Servers {
		for _, f := range w.on(n, true) {
			if !f.encapsulated() || f.tcp.flags&(wire.SYN|wire.ACK) != wire.SYN {
				continue
			}
			visits[f.tcp.flow(w.bed.VIP)] = append(visits[f.tcp.flow(w.bed.VIP)], n.Locator)
			if function(f.ip.destination) == wire.ConnectForce {
				last[f.tcp.flow(w.bed.VIP)] = n.Locator
			}
		}
	}
	for _, p := range pairs {
		if way := p.out.way(); p.in.tcp.has(wire.SYN) {
			k := p.in.tcp.flow(w.bed.VIP)
			if len(visits[k])%list != 0 || len(visits[k]) == 0 || last[k] != locator(way[list-1]) {
				t.Errorf("an offer to %v visited %v and stayed with %v", way, visits[k], last[k])
			}
		}
	}
}

// checkPort is the client's port in the LBs' own checks of quiet servers, which come at any time.
const checkPort = 9
