package e2e

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/topo"
	"proffer/wire"
)

// With `via` everything that an LB sends to a service's servers passes other
// SRv6 endpoints first, here nodes with nothing but the kernel's End.

// via are the SIDs of transits, for a service.
func via(transits ...*testbed.Node) func(*topo.Service) {
	return func(svc *topo.Service) {
		for _, n := range transits {
			svc.Via = append(svc.Via, n.SID)
		}
	}
}

func announce(t *testing.T, bed *testbed.Bed, lbs ...*testbed.Node) {
	t.Helper()
	if err := bed.Announce(lbs...); err != nil {
		t.Fatal(err)
	}
}

// hold opens HTTP connections to the service, which end with the test, and makes
// a request on each.
func hold(t *testing.T, bed *testbed.Bed, network string, to netip.AddrPort, n int) []net.Conn {
	t.Helper()
	var conns []net.Conn
	for range n {
		c, err := bed.Client.DialContext(t.Context(), network, to.String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		conns = append(conns, c)
	}
	askAll(t, conns)
	return conns
}

// askAll makes one more request on each connection.
func askAll(t *testing.T, conns []net.Conn) {
	t.Helper()
	for _, c := range conns {
		get(t, c, "/bytes/1000")
	}
}

// letGo closes connections and returns when the bed is quiet.
func letGo(t *testing.T, bed *testbed.Bed, conns []net.Conn) {
	t.Helper()
	for _, c := range conns {
		if err := c.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Fatal(err)
		}
	}
	settled(t, bed)
}

// wantNoStray: no packet reached a stack that had to reset it.
func wantNoStray(t *testing.T, farm *farmrun.Farm) {
	t.Helper()
	for _, name := range []string{"unowned", "give_back_not_mine"} {
		if n := counter(t, farm, name, farm.Bed.Servers...); n > 0 {
			t.Errorf("%d packets %s", n, name)
		}
	}
}

// TestVia: offers, steered packets, questions and deliveries all pass the
// transits in their order, by either wire and from either LB.
func TestVia(t *testing.T) {
	for _, c := range []struct {
		policy   string
		wire     topo.Wire
		transits int
	}{
		{"hunt:static:0", topo.Encap, 1},
		{"hunt:static:0", topo.Encap, 2},
		{"hunt:static:0", topo.Insert, 1},
		{"hunt:static:0", topo.Insert, 2},
		{"single", topo.Encap, 1},
		{"single", topo.Encap, 2},
	} {
		t.Run(fmt.Sprintf("%s, %s, %d", c.policy, c.wire, c.transits), func(t *testing.T) {
			bed := up(t, testbed.Config{Servers: 3, LBs: 2, Transits: c.transits})
			serve(t, bed)
			s := carried(settings(t, c.policy), via(bed.Transits...))
			farm := start(t, bed, carried(s, func(svc *topo.Service) { svc.Wire = c.wire }))
			announce(t, bed, bed.LBs[0])
			capture := record(t, bed)
			conns := hold(t, bed, "tcp6", vip(bed), 10)
			announce(t, bed, bed.LBs[1])
			askAll(t, conns)
			letGo(t, bed, conns)
			w := recorded{bed, capture.stop(t)}
			takeOut(w.frames)
			w.wantVia(t, c.policy)
			wantNoStray(t, farm)
			judge(t, capture.file, 200)
			wantMegabytes(t, bed, url)
		})
	}
}

// wantVia follows every packet from the LBs through all transits to a server.
func (w *recorded) wantVia(t *testing.T, policy string) {
	t.Helper()
	functions, packets := map[wire.Function]int{}, 0
	for _, lb := range w.bed.LBs {
		for _, f := range w.on(lb, false) {
			if !f.encapsulated() {
				continue
			}
			packets++
			way := f.visits()
			for i, n := range w.bed.Transits {
				if len(way) <= len(w.bed.Transits) || way[i] != n.SID {
					t.Fatalf("%v left %s by %v", f.tcp, lb.Name, way)
				}
			}
			functions[function(way[len(w.bed.Transits)])]++
		}
	}
	for i, n := range w.bed.Transits {
		came, left := w.on(n, true), w.on(n, false)
		if len(came) != packets || len(left) != packets {
			t.Errorf("of %d packets %d came to %s and %d left it", packets, len(came), n.Name, len(left))
		}
		for _, f := range left {
			if i+1 < len(w.bed.Transits) && f.ip.destination != w.bed.Transits[i+1].SID {
				t.Errorf("%v left %s for %v", f.tcp, n.Name, f.ip.destination)
			}
		}
	}
	w.wantServed(t, packets)
	want := []wire.Function{wire.ConnectAvail, wire.AckStickiness, wire.RecoverStickiness}
	if policy == "single" {
		want = []wire.Function{wire.Deliver}
	}
	for _, fn := range want {
		if functions[fn] == 0 {
			t.Errorf("nothing went by %s: %v", fn, functions)
		}
	}
	if len(functions) != len(want) {
		t.Errorf("functions %v, want %v", functions, want)
	}
}

// wantServed: what comes to servers left a transit or another server; nothing
// came straight from an LB.
func (w *recorded) wantServed(t *testing.T, packets int) {
	t.Helper()
	taken := 0
	for _, n := range w.bed.Servers {
		in, on := 0, 0
		for _, f := range w.on(n, true) {
			if f.encapsulated() {
				in++
			}
		}
		for _, f := range w.on(n, false) {
			if f.encapsulated() && f.tcp.to.Addr() == w.bed.VIP {
				on++
			}
		}
		taken += in - on
	}
	if taken != packets {
		t.Errorf("servers kept %d packets of %d", taken, packets)
	}
}

// visits are the segments of a packet as it leaves an LB, without what an
// inserted list has more: the sender and the packet's own destination.
func (f *frame) visits() []netip.Addr {
	if f.isInserted() {
		return f.list[1 : len(f.list)-1]
	}
	return f.way()
}

// TestViaIsDown: when a transit dies nothing arrives, and the packets do not
// find another way; when it is back, flows go on.
func TestViaIsDown(t *testing.T) {
	bed := up(t, testbed.Config{Servers: 2, Transits: 2})
	serve(t, bed)
	start(t, bed, carried(settings(t, "hunt:static:1"), via(bed.Transits...)))
	conns := hold(t, bed, "tcp6", vip(bed), 5)
	if err := bed.Kill(bed.Transits[1]); err != nil {
		t.Fatal(err)
	}
	if _, err := tryDial(t, bed, 300*time.Millisecond); err == nil {
		t.Error("a connection opens while a transit is down")
	}
	if err := bed.Revive(t.Context(), bed.Transits[1]); err != nil {
		t.Fatal(err)
	}
	askAll(t, conns)
	if !slices.Contains([]string{"s1", "s2"}, get(t, dial(t, bed), "/")) {
		t.Error("no answer through the transit that is back")
	}
}
