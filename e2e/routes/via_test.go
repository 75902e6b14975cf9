package routes

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
	"proffer/topo"
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

// letGo closes connections and returns when the bed is quiet.
func letGo(t *testing.T, bed *testbed.Bed, conns []net.Conn) {
	t.Helper()
	for _, c := range conns {
		if err := c.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Fatal(err)
		}
	}
	kit.Settled(t, bed)
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
			bed := kit.Up(t, testbed.Config{Servers: 3, LBs: 2, Transits: c.transits})
			kit.Serve(t, bed)
			s := kit.Carried(kit.Settings(t, c.policy), via(bed.Transits...))
			farm := kit.Start(t, bed, kit.Carried(s, func(svc *topo.Service) { svc.Wire = c.wire }))
			kit.Announce(t, bed, bed.LBs[0])
			capture := kit.Record(t, bed)
			conns := kit.Hold(t, bed, "tcp6", kit.VIP(bed), 10)
			kit.Announce(t, bed, bed.LBs[1])
			kit.AskAll(t, conns)
			letGo(t, bed, conns)
			w := kit.Recorded{Bed: bed, Frames: capture.Stop(t)}
			kit.TakeOut(w.Frames)
			w.WantVia(t, c.policy)
			kit.WantNoStray(t, farm)
			kit.Judge(t, capture.File, 200)
			kit.WantMegabytes(t, bed, kit.URL)
		})
	}
}

// TestViaIsDown: when a transit dies nothing arrives, and the packets do not
// find another way; when it is back, flows go on.
func TestViaIsDown(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 2, Transits: 2})
	kit.Serve(t, bed)
	kit.Start(t, bed, kit.Carried(kit.Settings(t, "hunt:static:1"), via(bed.Transits...)))
	conns := kit.Hold(t, bed, "tcp6", kit.VIP(bed), 5)
	if err := bed.Kill(bed.Transits[1]); err != nil {
		t.Fatal(err)
	}
	if _, err := kit.TryDial(t, bed, 300*time.Millisecond); err == nil {
		t.Error("a connection opens while a transit is down")
	}
	if err := bed.Revive(t.Context(), bed.Transits[1]); err != nil {
		t.Fatal(err)
	}
	kit.AskAll(t, conns)
	if !slices.Contains([]string{"s1", "s2"}, kit.Get(t, kit.Dial(t, bed), "/")) {
		t.Error("no answer through the transit that is back")
	}
}
