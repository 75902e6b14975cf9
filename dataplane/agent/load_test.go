package agent_test

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proffer/dataplane/objects"
	"proffer/loadpage"
	"proffer/policy"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// verdictOn offers a new connection that could be passed on and reports whether
// it was taken; it returns the reason too.
func verdictOn(r *rig.Agent, t *testing.T, p *rig.Packet) (taken bool, why string) {
	t.Helper()
	p.Src = netip.AddrPortFrom(p.Src.Addr(), p.Src.Port()+1)
	s := rig.To(*p, wire.Generation(p.Seq), wire.ConnectAvail, wire.ConnectForce)
	out := r.Send(t, s.Frame())
	if len(out.Reasons) != 1 {
		t.Fatalf("one offer, reasons %v", out.Reasons)
	}
	want := rig.Delivered(*p)
	if out.Action == rig.XDPTX {
		want = s.Onward(rig.HopMAC(2))
	}
	out.Is(t, "offer", out.Action, want, out.Reasons...)
	return out.Action == rig.XDPPass, out.Reasons[0]
}

func byHandedPage(o *topo.Offering) {
	o.Measure, o.Cores, o.Page = topo.Page, 0, "unix:/run/proffer/test.sock"
}

// handedPage maps the page of service 0, as a program does.
func handedPage(t *testing.T, r *rig.Agent) []byte {
	t.Helper()
	f, err := r.Page(0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	page, err := unix.Mmap(int(f.Fd()), 0, loadpage.PageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(page) })
	return page
}

// TestHandedPages: a service keeps its page through a reload, has its own beside another's, and its
// load is the number on it; a service without one, at the same number, has no page.
func TestHandedPages(t *testing.T) {
	first, second := rig.Offering(rig.HuntPort, byHandedPage), rig.Offering(rig.HuntPort+1, byHandedPage)
	r := rig.NewAgent(t, rig.Hits{}, first)
	page := handedPage(t, r)
	write := func(page []byte, busy uint32) {
		t.Helper()
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
			t.Fatal(err)
		}
		loadpage.WritePage(page, busy, time.Duration(now.Nano()))
	}
	want := func(label string, service int, busy uint32, known bool) {
		t.Helper()
		if l, err := r.Load(service); err != nil || l.Known != known || known && l.Busy != busy {
			t.Errorf("%s: %+v, %v; want busy %d (%v)", label, l, err, busy, known)
		}
	}
	offer := func(services ...topo.Offering) {
		t.Helper()
		if _, err := r.Offer(services); err != nil {
			t.Fatal(err)
		}
	}
	if string(page[:8]) != loadpage.PageMagic {
		t.Errorf("the page begins with %q", page[:8])
	}
	want("never written", 0, 0, false)
	write(page, 7)
	want("written", 0, 7, true)
	offer(second, first)
	want("another service's", 0, 0, false)
	want("after a reload", 1, 7, true)
	write(handedPage(t, r), 2)
	want("the other's", 0, 2, true)
	want("not the other's", 1, 7, true)
	plain := second
	plain.Page = "/run/proffer/test.load"
	offer(plain, first)
	want("of a file", 0, 0, false)
	if f, err := r.Page(0); err == nil {
		f.Close()
		t.Error("a service with a file has a page to hand over")
	}
	offer(first)
	offer(first, second)
	want("a service that comes again", 1, 0, false)
	write(page, topo.MostBusy+1)
	want("more than the most", 0, 0, false)
}

// testLoad: each load measure against the threshold 4.
func testLoad(t *testing.T, seen rig.Hits) {
	const now = uint64(1000 * time.Second)
	type loadCase struct {
		label   string
		measure topo.Measure
		busy    uint32
		written uint64
		why     string
	}
	cases := []loadCase{
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
	}
	for _, m := range topo.Measures() { // of work, TestWork…
		if !m.Work() && !slices.ContainsFunc(cases, func(c loadCase) bool { return c.measure == m }) {
			t.Errorf("no case has the measure %v", m)
		}
	}
	for _, c := range cases {
		t.Run(c.label, func(t *testing.T) {
			r := rig.NewAgent(t, seen, rig.Offering(rig.HuntPort, func(o *topo.Offering) { o.Measure, o.Cores = c.measure, 0 }))
			rig.Listen(t, rig.HuntPort, 128)
			asking, open := uint32(99), uint32(99)
			switch c.measure {
			case topo.Busy:
				asking = c.busy
			case topo.Sockets:
				open = c.busy
			}
			r.SetLoad(t, func(l *objects.AgentLoad) { l.Asking[0] = asking })
			if err := r.Objects().OpenSockets.Put(uint32(0), open); err != nil {
				t.Fatal(err)
			}
			if err := r.Report(0, c.busy, time.Duration(c.written)); err != nil {
				t.Fatal(err)
			}
			p := rig.Inward(rig.HuntPort, wire.SYN)
			if _, why := verdictOn(r, t, &p); why != c.why {
				t.Errorf("%s, want %s", why, c.why)
			}
		})
	}
	for _, c := range []struct {
		label   string
		busy    uint32
		written uint64
		why     string
	}{
		{"fresh and below", 3, now, "accept_avail"},
		{"fresh and at", 4, now, "pass_on_busy"},
		{"a second old", 3, now - 1e9, "accept_avail"},
		{"more than a second old", 3, now - 1e9 - 1, "pass_on_unknown_load"},
		{"a second ahead", 3, now + 1e9, "accept_avail"},
		{"more than a second ahead", 3, now + 1e9 + 1, "pass_on_unknown_load"},
		{"at the clock's end", 3, 1<<64 - 1, "pass_on_unknown_load"},
		{"never written", 3, 0, "pass_on_unknown_load"},
		{"the most", topo.MostBusy, now, "pass_on_busy"},
		{"more than the most", topo.MostBusy + 1, now, "pass_on_unknown_load"},
	} {
		t.Run("handed page, "+c.label, func(t *testing.T) {
			r := rig.NewAgent(t, seen, rig.Offering(rig.HuntPort, byHandedPage))
			rig.Listen(t, rig.HuntPort, 128)
			loadpage.WritePage(handedPage(t, r), c.busy, time.Duration(c.written))
			if err := r.Report(0, 3, time.Duration(now)); err != nil { // which no program wrote
				t.Fatal(err)
			}
			p := rig.Inward(rig.HuntPort, wire.SYN)
			if _, why := verdictOn(r, t, &p); why != c.why {
				t.Errorf("%s, want %s", why, c.why)
			}
		})
	}
	t.Run("page, always", func(t *testing.T) {
		r := rig.NewAgent(t, seen, rig.Offering(rig.HuntPort, func(o *topo.Offering) {
			o.Measure, o.Acceptance = topo.Page, topo.Always
		}))
		rig.Listen(t, rig.HuntPort, 128)
		p := rig.Inward(rig.HuntPort, wire.SYN)
		if taken, why := verdictOn(r, t, &p); !taken {
			t.Error(why, "though the load was not asked for")
		}
	})
	t.Run("page, asked", func(t *testing.T) {
		r := rig.NewAgent(t, seen, rig.Offering(rig.HuntPort, func(o *topo.Offering) { o.Measure = topo.Page }))
		rig.Listen(t, rig.HuntPort, 128)
		p := rig.Inward(rig.HuntPort, wire.SYN)
		for step, want := range []uint32{0, 1, 0, 3} {
			for range want {
				verdictOn(r, t, &p)
				if err := r.Report(0, 3, time.Duration(now)); err != nil {
					t.Fatal(err)
				}
			}
			if asked, err := r.Asked(0); err != nil || asked != want {
				t.Errorf("step %d: asked %d times, %v; want %d", step, asked, err, want)
			}
		}
	})
	t.Run("accept queue", func(t *testing.T) {
		r := rig.NewAgent(t, seen, rig.Offering(rig.HuntPort, func(o *topo.Offering) { o.Cores = 0 }))
		l := rig.Listen(t, rig.HuntPort, 128)
		rig.Queue(t, l, rig.HuntPort, 3)
		p := rig.Inward(rig.HuntPort, wire.SYN)
		if taken, why := verdictOn(r, t, &p); !taken {
			t.Error("3 queued:", why)
		}
		rig.Dial(t, 49999, rig.HuntPort)
		rig.Queued(t, 4, l)
		if _, why := verdictOn(r, t, &p); why != "pass_on_busy" {
			t.Error("4 queued:", why)
		}
	})
}

// testUnknown: a load measure or an acceptance policy that the programs do not know makes
// an offer go on, and is never taken for another; the last candidate accepts.
func testUnknown(t *testing.T, seen rig.Hits) {
	for why, change := range map[string]func(*objects.AgentOffering){
		"pass_on_unknown_load":   func(o *objects.AgentOffering) { o.Measure = uint8(len(topo.Measures())) },
		"pass_on_unknown_policy": func(o *objects.AgentOffering) { o.Acceptance = uint8(len(topo.Acceptances())) },
	} {
		s := rig.Offering(rig.HuntPort)
		r, key := rig.NewAgent(t, seen, s), objects.ServiceKey(s.VIP)
		rig.Listen(t, rig.HuntPort, 128)
		var number uint32
		var o objects.AgentOffering
		if err := errors.Join(r.Objects().Offerings.Lookup(key, &number), r.Objects().Offered.Lookup(number, &o)); err != nil {
			t.Fatal(err)
		}
		change(&o)
		if err := r.Objects().Offered.Put(number, o); err != nil {
			t.Fatal(err)
		}
		p := rig.Inward(rig.HuntPort, wire.SYN)
		if taken, got := verdictOn(r, t, &p); taken || got != why {
			t.Errorf("taken %v, %s, want %s", taken, got, why)
		}
		last := rig.To(p, wire.Generation(p.Seq), wire.ConnectForce)
		r.Send(t, last.Frame()).Is(t, "the last candidate", rig.XDPPass, rig.Delivered(p), "accept_force")
	}
}

// testExpected: a connection accepted and not arrived is load for a second, at
// most as much as there are cores.
func testExpected(t *testing.T, seen rig.Hits) {
	r := rig.NewAgent(t, seen, rig.Offering(rig.HuntPort, rig.ByTable, func(o *topo.Offering) { o.Threshold, o.Cores = 2, 3 }))
	p := rig.Inward(rig.HuntPort, wire.SYN)
	offer := func(label, want string) {
		t.Helper()
		if _, why := verdictOn(r, t, &p); why != want {
			t.Errorf("%s: %s, want %s", label, why, want)
		}
	}
	offer("none expected", "accept_avail")
	first := p
	offer("one expected", "accept_avail")
	offer("two expected", "pass_on_busy")
	arrived := first
	arrived.Flags, arrived.Seq = wire.ACK, first.Seq+1
	r.Send(t, rig.To(arrived, wire.Generation(first.Seq), wire.AckStickiness).Frame()).Is(t, "arrival", rig.XDPPass, rig.Delivered(arrived), "established", "acknowledged", "steered")
	offer("one arrived", "accept_avail")
	r.At(t, rig.Start+7<<objects.EpochShift)
	offer("still expected", "pass_on_busy")
	r.At(t, rig.Start+8<<objects.EpochShift)
	offer("expired", "accept_avail")

	r = rig.NewAgent(t, seen, rig.Offering(rig.HuntPort, func(o *topo.Offering) { o.Threshold, o.Cores = 2, 1 }))
	rig.Listen(t, rig.HuntPort, 128)
	for range 5 {
		offer("capped by one core", "accept_avail")
	}
}

// testDynamic: the program moves its threshold as its Go twin does, over the
// offers that could be passed on and over no others.
func testDynamic(t *testing.T, seen rig.Hits) {
	const window = 10
	r := rig.NewAgentOf(t, seen, 4096, rig.Offering(rig.HuntPort, func(o *topo.Offering) {
		o.Acceptance, o.Threshold, o.Window, o.Cores = topo.Dynamic, 1, window, 0
	}))
	rig.Listen(t, rig.HuntPort, 128)
	twin := policy.Acceptor{Acceptance: topo.Dynamic, Threshold: 1, Window: window, Epsilon: 0.1, Workers: 32}
	rng := rig.Random(t)
	p := rig.Inward(rig.HuntPort, wire.SYN)
	for i := range 2000 {
		busy := rng.Uint32N(12)
		r.SetLoad(t, func(l *objects.AgentLoad) { l.Asking[0] = busy })
		taken, _ := verdictOn(r, t, &p)
		if want := twin.Offer(busy); taken != want {
			t.Fatalf("offer %d, busy %d: taken %v, want %v", i, busy, taken, want)
		}
		forced := p
		forced.Src = netip.AddrPortFrom(netip.MustParseAddr("2001:db8:c::8"), uint16(i))
		r.Send(t, rig.To(forced, 1, wire.ConnectForce).Frame()).Is(t, "forced", rig.XDPPass, rig.Delivered(forced), "accept_force")
		if l, err := r.Load(0); err != nil || l.Threshold != twin.Threshold {
			t.Fatalf("offer %d: threshold %d, want %d (%v)", i, l.Threshold, twin.Threshold, err)
		}
	}
}
