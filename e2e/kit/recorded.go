package kit

import (
	"bytes"
	"net/netip"
	"slices"
	"testing"

	"proffer/lab/testbed"
	"proffer/wire"
)

// Recorded is a capture with what a test of the wire format looks up in it.
type Recorded struct {
	Bed    *testbed.Bed
	Frames []Frame
}

// On returns the frames with TCP on a node's link in one direction.
func (w *Recorded) On(n *testbed.Node, toNode bool) []*Frame {
	var found []*Frame
	for i := range w.Frames {
		f := &w.Frames[i]
		if f.Link == n.Link && f.ToNode == toNode && f.TCP != nil && f.TCP.From.Port() != checkPort {
			found = append(found, f)
		}
	}
	return found
}

// Forwarded pairs every packet that the LB encapsulated with the one it got.
// All that came in for the VIP must have gone out, once, unchanged but for the
// hop limit, and nothing else.
func (w *Recorded) Forwarded(t *testing.T) []pair {
	t.Helper()
	lb := w.Bed.LBs[0]
	waiting := map[string][]*Frame{}
	for _, f := range w.On(lb, true) {
		if !f.Encapsulated() {
			waiting[f.packet()] = append(waiting[f.packet()], f)
		}
	}
	var pairs []pair
	for _, f := range w.On(lb, false) {
		if !f.Encapsulated() {
			continue
		}
		came := waiting[f.packet()]
		if len(came) == 0 {
			t.Fatalf("the LB sent a packet that it did not get: %v to %v", f.TCP, f.way())
		}
		pairs = append(pairs, pair{came[0], f})
		waiting[f.packet()] = came[1:]
	}
	for _, left := range waiting {
		for _, f := range left {
			t.Errorf("the LB got a packet that it did not send on: %v", f.TCP)
		}
	}
	return pairs
}

// pair is a packet as it came to the LB and as it left.
type pair struct{ In, Out *Frame }

// wantPlainClient: the client never sees an SRH, an encapsulation or a locator.
func (w *Recorded) WantPlainClient(t *testing.T, connections int) {
	t.Helper()
	sids := netip.MustParsePrefix("5f00::/16") // RFC 9602
	seen := 0
	for _, f := range w.Frames {
		if f.Link != w.Bed.Client.Link {
			continue
		}
		seen++
		if f.Encapsulated() || f.Ip.Next == Routing || f.Ip.Next == wire.ProtoIPv6 {
			t.Errorf("the client's link carries an encapsulated packet: %v by %v", f.Ip, f.List)
		}
		if sids.Contains(f.Ip.source) || sids.Contains(f.Ip.Destination) {
			t.Errorf("the client's link carries a SID: %v", f.Ip)
		}
		for _, n := range slices.Concat(w.Bed.LBs, w.Bed.Servers) {
			if where := n.Locator.Addr().As16(); bytes.Contains(f.Bytes, where[:8]) {
				t.Errorf("the client's link carries the locator of %s inside a packet: % x", n.Name, f.Bytes)
			}
		}
	}
	if seen < 8*connections { // SYN, SYN-ACK, ACK, request, answer, FINs at the least
		t.Errorf("%d frames on the client's link for %d connections", seen, connections)
	}
}

// wantSizes: an offer to n candidates is 40 + 8 + 16 (n − 1) bytes longer than
// the client's SYN, or 40 for one; everything else 40.
func (w *Recorded) WantSizes(t *testing.T, pairs []pair, list int) {
	t.Helper()
	offers := 0
	for _, p := range pairs {
		want := IPv6
		switch way := p.Out.way(); Function(way[0]) {
		case wire.ConnectAvail, wire.ConnectForce:
			offers++
			if list > 1 {
				want = IPv6 + 8 + 16*(list-1)
			}
			w.wantList(t, way, list)
			wantSRH(t, p.Out, list)
			if !p.In.TCP.Has(wire.SYN) || p.In.TCP.Has(wire.ACK) {
				t.Errorf("%v is offered", p.In.TCP)
			}
		case wire.AckStickiness:
			if list == 0 || p.In.TCP.Has(wire.SYN) {
				t.Errorf("%v is steered", p.In.TCP)
			}
		case wire.Deliver:
			if list > 0 {
				t.Errorf("%v goes to a server by hash alone", p.In.TCP)
			}
		default:
			t.Errorf("%v goes by %v", p.In.TCP, way)
		}
		if got := len(p.Out.Bytes) - len(p.In.Bytes); got != want || p.Out.overhead() != want {
			t.Errorf("%v by %v: %d bytes longer, want %d", p.In.TCP, p.Out.way(), got, want)
		}
	}
	if list > 0 && offers < Connections {
		t.Errorf("%d offers for %d connections", offers, Connections)
	}
}

// wantSRH: RFC 8754 §2 with the reduced list of RFC 8986 §5.2.
func wantSRH(t *testing.T, f *Frame, list int) {
	t.Helper()
	if list == 1 {
		if f.Ip.Next != wire.ProtoIPv6 {
			t.Errorf("an offer to one server has a next header %d", f.Ip.Next)
		}
		return
	}
	const srhType = 4
	want := []byte{wire.ProtoIPv6, byte(2 * (list - 1)), srhType, byte(list - 1), byte(list - 2), 0, 0, 0}
	if got := f.Bytes[Ethernet+IPv6:][:8]; f.Ip.Next != Routing || !bytes.Equal(got, want) {
		t.Errorf("an offer to %d servers has the SRH % x after next header %d, want % x", list, got, f.Ip.Next, want)
	}
}

// wantList: every candidate once, the last one must take it.
func (w *Recorded) wantList(t *testing.T, way []netip.Addr, length int) {
	t.Helper()
	if len(way) != length {
		t.Errorf("an offer to %v, want %d candidates", way, length)
	}
	seen := map[netip.Prefix]bool{}
	for i, sid := range way {
		if seen[Locator(sid)] {
			t.Errorf("an offer to %v names a server twice", way)
		}
		seen[Locator(sid)] = true
		if !slices.ContainsFunc(w.Bed.Servers, func(n *testbed.Node) bool { return n.Locator == Locator(sid) }) {
			t.Errorf("an offer to %v, which is no server", sid)
		}
		want := wire.ConnectAvail
		if i == len(way)-1 {
			want = wire.ConnectForce
		}
		if Function(sid) != want {
			t.Errorf("candidate %d of %v has function %s, want %s", i, way, Function(sid), want)
		}
	}
}

// wantPassedOn: with no willing server, every offer visits every candidate in the
// order of its list and stays with the last, unchanged.
func (w *Recorded) WantPassedOn(t *testing.T, pairs []pair, list int) {
	t.Helper()
	visits := map[flow][]netip.Prefix{}
	last := map[flow]netip.Prefix{}
	for _, n := range w.Bed.Servers {
		for _, f := range w.On(n, true) {
			if !f.Encapsulated() || f.TCP.flags&(wire.SYN|wire.ACK) != wire.SYN {
				continue
			}
			visits[f.TCP.flow(w.Bed.VIP)] = append(visits[f.TCP.flow(w.Bed.VIP)], n.Locator)
			if Function(f.Ip.Destination) == wire.ConnectForce {
				last[f.TCP.flow(w.Bed.VIP)] = n.Locator
			}
		}
	}
	for _, p := range pairs {
		if way := p.Out.way(); p.In.TCP.Has(wire.SYN) {
			k := p.In.TCP.flow(w.Bed.VIP)
			if len(visits[k])%list != 0 || len(visits[k]) == 0 || last[k] != Locator(way[list-1]) {
				t.Errorf("an offer to %v visited %v and stayed with %v", way, visits[k], last[k])
			}
		}
	}
}

// checkPort is the client's port in the LBs' own checks of quiet servers, which come at any time.
const checkPort = 9

// Agentless ends the agent of a server and lets its kernel do the action.
func Agentless(t *testing.T, bed *testbed.Bed, stop func() error, n *testbed.Node, action testbed.Action) {
	t.Helper()
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if err := bed.Agentless(n, action); err != nil {
		t.Fatal(err)
	}
}

// wantOneSegmentLists: the kernel did send an SRH that names one segment alone.
func (w *Recorded) WantOneSegmentLists(t *testing.T, n *testbed.Node) {
	t.Helper()
	alone := 0
	for _, f := range w.On(n, true) {
		if f.Ip.Next == Routing && len(f.List) == 1 && f.Left() == 0 && f.overhead() == IPv6+8+16 {
			alone++
		}
	}
	if alone == 0 {
		t.Error("no packet came with an SRH of one segment")
	}
}
