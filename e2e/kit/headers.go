package kit

import (
	"bufio"
	"encoding/binary"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"proffer/config"
	"proffer/lab/testbed"
	"proffer/policy"
	"proffer/wire"
)

// Settled returns when every connection of the bed is closed: nothing is on its
// way any more.
func Settled(t *testing.T, bed *testbed.Bed) {
	t.Helper()
	for _, n := range bed.Nodes() {
		Eventually(t, "all connections of "+n.Name+" are closed", func() bool { return !busy(t, n) })
	}
}

// busy reports whether a node has a TCP socket that may still send or expects to
// receive (/proc/net/tcp6: all but TIME_WAIT, CLOSE and LISTEN).
func busy(t *testing.T, n *testbed.Node) (found bool) {
	t.Helper()
	err := n.Do(func() error {
		table, err := os.ReadFile("/proc/thread-self/net/tcp6")
		lines := bufio.NewScanner(strings.NewReader(string(table)))
		for lines.Scan() {
			if f := strings.Fields(lines.Text()); len(f) > 3 && f[0] != "sl" && !strings.Contains("06 07 0A", f[3]) {
				found = true
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// wantOuterHeaders: traffic class copied, the hop limit inside one less, the
// one outside whole, the LB as source.
func (w *Recorded) WantOuterHeaders(t *testing.T, pairs []pair) {
	t.Helper()
	marked := map[uint8]int{}
	for _, p := range pairs {
		was, outer, inner := p.In.Ip, p.Out.Ip, p.Out.TCP.Header
		marked[was.Class]++
		if outer.Class != was.Class {
			t.Errorf("traffic class %#x became %#x outside", was.Class, outer.Class)
		}
		if inner.hops != was.hops-1 || outer.hops != 64 {
			t.Errorf("hop limit %d became %d inside and %d outside, want %d and 64", was.hops, inner.hops, outer.hops, was.hops-1)
		}
		if want := w.signedSource(t, p); outer.source != want {
			t.Errorf("the outer source is %v, want %v", outer.source, want)
		}
	}
	const capable = 2 // ECT(0), RFC 3168
	for _, c := range []uint8{0, Class, capable, Class | capable} {
		if marked[c] == 0 {
			t.Errorf("no packet of traffic class %#x was sent: nothing shown about it; sent: %v", c, marked)
		}
	}
}

// wantLabels: the outer flow label is the flow's, on every link that an
// encapsulated packet takes, so that the fabric keeps a flow on one path.
func (w *Recorded) WantLabels(t *testing.T) {
	t.Helper()
	label := map[flow]uint32{}
	flows := map[uint32]int{}
	for _, f := range w.Frames {
		if !f.Encapsulated() || f.TCP == nil || f.TCP.From.Port() == checkPort {
			continue
		}
		k := f.TCP.flow(w.Bed.VIP)
		was, known := label[k]
		if !known {
			label[k] = f.Ip.label
			flows[f.Ip.label]++
			continue
		}
		if f.Ip.label != was {
			t.Errorf("flow %v has the labels %#x and, on %s, %#x", k, was, f.Link, f.Ip.label)
		}
	}
	if flows[0] > 0 {
		t.Errorf("%d of %d flows have no label", flows[0], len(label))
	}
	// 200 draws of 20 bits meet once in 53 times; ten meetings never come.
	if len(label) != Connections || len(flows) < len(label)-10 {
		t.Errorf("%d labels for %d flows of %d", len(flows), len(label), Connections)
	}
}

// wantReplies: nothing that a server sends to a client crosses the LB but what
// signals to the LB: SYN-ACKs, FINs and RSTs, and each connection's do.
// signals is false where nothing is to be signalled.
func (w *Recorded) WantReplies(t *testing.T, signals bool) {
	t.Helper()
	direct, late := w.direct(t)
	if direct < Connections {
		t.Errorf("%d packets with data went directly from servers to the client, for %d connections", direct, Connections)
	}
	opened, closed := map[flow]int{}, map[flow]int{}
	for _, f := range w.On(w.Bed.LBs[0], false) {
		if f.Encapsulated() {
			continue
		}
		k := f.TCP.flow(w.Bed.VIP)
		switch {
		case f.TCP.From.Addr() != w.Bed.VIP:
			t.Errorf("the LB sent %v", f.TCP)
		case !signals:
			t.Errorf("%v crossed the LB", f.TCP)
		case f.TCP.Has(wire.SYN | wire.ACK):
			opened[k]++
		case f.TCP.Has(wire.FIN), f.TCP.Has(wire.RST), late[k]:
			closed[k]++
		default:
			t.Errorf("%v crossed the LB, and signals nothing", f.TCP)
		}
		if f.TCP.payload > 0 && !f.TCP.Has(wire.FIN) {
			t.Errorf("data crossed the LB: %v", f.TCP)
		}
	}
	if signals && (len(opened) != Connections || len(closed) != Connections) {
		t.Errorf("the LB saw %d connections open and %d close, of %d", len(opened), len(closed), Connections)
	}
	if signals {
		w.wantUnwrapped(t)
	}
}

// direct counts the packets with data that servers sent to the client without
// the LB, and finds the flows whose FIN did: with data it may have no room for
// the outer header, and the next packet signals to the LB instead (agent.bpf.c, wrap).
func (w *Recorded) direct(t *testing.T) (data int, late map[flow]bool) {
	t.Helper()
	late = map[flow]bool{}
	for _, n := range w.Bed.Servers {
		for _, f := range w.On(n, false) {
			if f.Encapsulated() || f.TCP.From.Addr() != w.Bed.VIP {
				continue
			}
			if f.TCP.payload > 0 {
				data++
			}
			if f.TCP.Has(wire.FIN) {
				late[f.TCP.flow(w.Bed.VIP)] = true
			}
		}
	}
	return data, late
}

// wantUnwrapped: what servers send to the LB is one header longer than what the
// LB sends on to the client, and otherwise the same but for the hop limit.
func (w *Recorded) wantUnwrapped(t *testing.T) {
	t.Helper()
	lb := w.Bed.LBs[0]
	wrapped := map[string][]*Frame{}
	for _, f := range w.On(lb, true) {
		if !f.Encapsulated() {
			continue
		}
		fn := Function(f.Ip.Destination)
		if f.overhead() != IPv6 || fn != wire.CreateStickiness && fn != wire.RemoveStickiness || f.Ip.Class != f.TCP.Header.Class {
			t.Errorf("a server signalled %v to the LB in %v", f.TCP, f.Ip)
		}
		if (fn == wire.CreateStickiness) != f.TCP.Has(wire.SYN|wire.ACK) {
			t.Errorf("a server signalled %s to the LB with %v", fn, f.TCP)
		}
		wrapped[f.packet()] = append(wrapped[f.packet()], f)
	}
	for _, f := range w.On(lb, false) {
		if f.Encapsulated() {
			continue
		}
		came := wrapped[f.packet()]
		if len(came) == 0 {
			t.Errorf("the LB sent %v, which no server signalled", f.TCP)
			continue
		}
		if got, want := f.Ip.hops, came[0].TCP.Header.hops-1; got != want {
			t.Errorf("%v left the LB with hop limit %d, want %d", f.TCP, got, want)
		}
		wrapped[f.packet()] = came[1:]
	}
	for _, left := range wrapped {
		for _, f := range left {
			t.Errorf("the LB kept %v", f.TCP)
		}
	}
}

// signedSource is the LB's address that a packet must come from: with its label where
// nothing changes a state, else the tag of what the packet shows (docs/design/wire.md).
func (w *Recorded) signedSource(t *testing.T, p pair) netip.Addr {
	t.Helper()
	lb, way := w.Bed.LBs[0], p.Out.way()
	if fn := Function(way[0]); fn == wire.AckStickiness || fn == wire.Deliver {
		a := lb.Locator.Addr().As16()
		// of an inserted packet the label is the client's, the address has the LB's
		binary.BigEndian.PutUint32(a[12:], wire.FlowLabel(policy.Flow{Client: p.In.TCP.From, VIP: p.In.TCP.To}))
		return netip.AddrFrom16(a)
	}
	file := filepath.Join(w.Bed.Dir, lb.Name+".keys")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := config.ParseLBKeys(file, text)
	if err != nil {
		t.Fatal(err)
	}
	shown := slices.Clone(way)
	if len(shown) > 1 {
		shown = shown[1:] // a reduced SRH lacks the first
	}
	slices.Reverse(shown)
	tag := wire.Tag(keys[0].Farm, policy.Flow{Client: p.In.TCP.From, VIP: p.In.TCP.To}, lb.Locator, shown)
	return wire.Tagged(lb.Locator, tag)
}
