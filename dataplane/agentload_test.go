package dataplane

import (
	"net/netip"
	"testing"
	"time"

	"proffer/policy"
	"proffer/topo"
)

// verdictOn offers a new connection that could be passed on and tells whether
// it was taken; it returns the reason too.
func (r *agentRig) verdictOn(t *testing.T, p *packet) (taken bool, why string) {
	t.Helper()
	p.src = netip.AddrPortFrom(p.src.Addr(), p.src.Port()+1)
	s := to(*p, policy.Generation(p.seq), 0xca, 0xcf)
	out := r.send(t, s.frame())
	if len(out.reasons) != 1 {
		t.Fatalf("one offer, reasons %v", out.reasons)
	}
	want := delivered(*p)
	if out.action == xdpTX {
		want = s.onward(hopMAC(2))
	}
	out.is(t, "offer", out.action, want, out.reasons...)
	return out.action == xdpPass, out.reasons[0]
}

// testLoad: each signal against the threshold 4.
func testLoad(t *testing.T, seen hits) {
	const now = uint64(1000 * time.Second)
	for _, c := range []struct {
		what    string
		measure topo.Measure
		busy    uint32
		written uint64
		why     string
	}{
		{"busy, below", topo.Busy, 3, 0, "accept_avail"},
		{"busy, at", topo.Busy, 4, 0, "pass_on_busy"},
		{"sockets, below", topo.Sockets, 3, 0, "accept_avail"},
		{"sockets, at", topo.Sockets, 4, 0, "pass_on_busy"},
		{"page, fresh and below", topo.Page, 3, now, "accept_avail"},
		{"page, fresh and at", topo.Page, 4, now, "pass_on_busy"},
		{"page, a second old", topo.Page, 3, now - 1e9, "accept_avail"},
		{"page, more than a second old", topo.Page, 3, now - 1e9 - 1, "pass_on_unknown_load"},
		{"page, written after the clock's tick", topo.Page, 3, now + 4e6, "accept_avail"},
		{"page, never written", topo.Page, 0, 0, "pass_on_unknown_load"},
	} {
		t.Run(c.what, func(t *testing.T) {
			r := newAgentRig(t, seen, offering(huntPort, func(o *topo.Offering) { o.Measure, o.Cores = c.measure, 0 }))
			listen(t, huntPort, 128)
			r.setLoad(t, func(l *agentLoad) {
				switch c.measure {
				case topo.Busy:
					l.Asking, l.Open = c.busy, 99
				case topo.Sockets:
					l.Open, l.Asking = c.busy, 99
				default:
					l.Open, l.Asking = 99, 99
				}
			})
			if err := r.Report(0, c.busy, time.Duration(c.written)); err != nil {
				t.Fatal(err)
			}
			p := inward(huntPort, syn)
			if _, why := r.verdictOn(t, &p); why != c.why {
				t.Errorf("%s, want %s", why, c.why)
			}
		})
	}
	t.Run("page, always", func(t *testing.T) {
		r := newAgentRig(t, seen, offering(huntPort, func(o *topo.Offering) {
			o.Measure, o.Acceptance = topo.Page, topo.Always
		}))
		listen(t, huntPort, 128)
		p := inward(huntPort, syn)
		if taken, why := r.verdictOn(t, &p); !taken {
			t.Error(why, "though nobody asked for the load")
		}
	})
	t.Run("accept queue", func(t *testing.T) {
		r := newAgentRig(t, seen, offering(huntPort, func(o *topo.Offering) { o.Cores = 0 }))
		l := listen(t, huntPort, 128)
		queue(t, l, huntPort, 3)
		p := inward(huntPort, syn)
		if taken, why := r.verdictOn(t, &p); !taken {
			t.Error("3 queued:", why)
		}
		dial(t, 49999, huntPort)
		queued(t, 4, l)
		if _, why := r.verdictOn(t, &p); why != "pass_on_busy" {
			t.Error("4 queued:", why)
		}
	})
}

// testExpected: what was accepted and has not arrived is load for a second, at
// most as much as there are cores.
func testExpected(t *testing.T, seen hits) {
	r := newAgentRig(t, seen, offering(huntPort, byTable, func(o *topo.Offering) { o.Threshold, o.Cores = 2, 3 }))
	p := inward(huntPort, syn)
	offer := func(what, want string) {
		t.Helper()
		if _, why := r.verdictOn(t, &p); why != want {
			t.Errorf("%s: %s, want %s", what, why, want)
		}
	}
	offer("none expected", "accept_avail")
	first := p
	offer("one expected", "accept_avail")
	offer("two expected", "pass_on_busy")
	arrived := first
	arrived.flags, arrived.seq = ack, first.seq+1
	r.send(t, to(arrived, policy.Generation(first.seq), 0xa5).frame()).is(t, "arrival", xdpPass, delivered(arrived), "established", "acknowledged", "steered")
	offer("one arrived", "accept_avail")
	r.at(t, start+7<<epochShift)
	offer("still expected", "pass_on_busy")
	r.at(t, start+8<<epochShift)
	offer("expired", "accept_avail")

	r = newAgentRig(t, seen, offering(huntPort, func(o *topo.Offering) { o.Threshold, o.Cores = 2, 1 }))
	listen(t, huntPort, 128)
	for range 5 {
		offer("capped by one core", "accept_avail")
	}
}

// testDynamic: the program moves its threshold as its Go twin does, over the
// offers that could be passed on and over no others.
func testDynamic(t *testing.T, seen hits) {
	const window = 10
	r := newAgentRigOf(t, seen, 4096, offering(huntPort, func(o *topo.Offering) {
		o.Acceptance, o.Threshold, o.Window, o.Cores = topo.Dynamic, 1, window, 0
	}))
	listen(t, huntPort, 128)
	twin := policy.Acceptor{Acceptance: topo.Dynamic, Threshold: 1, Window: window, Epsilon: 0.1, Workers: 32}
	rng := random(t)
	p := inward(huntPort, syn)
	for i := range 2000 {
		busy := rng.Uint32N(12)
		r.setLoad(t, func(l *agentLoad) { l.Asking = busy })
		taken, _ := r.verdictOn(t, &p)
		if want := twin.Offer(busy); taken != want {
			t.Fatalf("offer %d, busy %d: taken %v, want %v", i, busy, taken, want)
		}
		forced := p
		forced.src = netip.AddrPortFrom(netip.MustParseAddr("2001:db8:c::8"), uint16(i))
		r.send(t, to(forced, 1, 0xcf).frame()).is(t, "forced", xdpPass, delivered(forced), "accept_force")
		if l, err := r.Load(0); err != nil || l.Threshold != twin.Threshold {
			t.Fatalf("offer %d: threshold %d, want %d (%v)", i, l.Threshold, twin.Threshold, err)
		}
	}
}
