package agent_test

import (
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"proffer/dataplane/objects"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// completeness reads whether the programs trust their table.
func completeness(t *testing.T, r *rig.Agent) (is uint32) {
	t.Helper()
	if err := r.Objects().ConnsCompleteness.Get(&is); err != nil {
		t.Fatal(err)
	}
	return is
}

func complete(t *testing.T, r *rig.Agent) {
	t.Helper()
	if err := r.Complete(); err != nil {
		t.Fatal(err)
	}
	if is := completeness(t, r); is != objects.ConnsComplete {
		t.Fatalf("after a look at all sockets the table is %d", is)
	}
}

// isComplete compares, step by step.
func isComplete(t *testing.T, r *rig.Agent, label string, want bool) {
	t.Helper()
	if is := completeness(t, r); is == objects.ConnsComplete != want {
		t.Errorf("%s: complete is %v", label, !want)
	}
}

// challenged offers a SYN of another connection of a live flow.
func challenged(t *testing.T, r *rig.Agent, label string, p rig.Packet) {
	t.Helper()
	p.Flags, p.Seq = wire.SYN, p.Seq+77_777
	s := rig.To(p, wire.Generation(p.Seq), wire.ConnectAvail, wire.ConnectForce)
	r.Send(t, s.Frame()).Is(t, label, rig.XDPPass, rig.Delivered(p), "accept_challenged")
}

// TestComplete: live connections that an agent finds at its start are in its table, so that a SYN
// into them is challenged without a look at the kernel's sockets; their LB is that of the next
// packet.
func TestComplete(t *testing.T) {
	r := rig.NewAgent(t, rig.Hits{}, rig.Offering(rig.HuntPort))
	p := rig.Inward(rig.HuntPort, wire.ACK)
	fd := rig.Established(t, p, rig.ClientISN)
	isComplete(t, r, "at the start", false)
	challenged(t, r, "without an entry", p)
	complete(t, r)
	c, settled := r.Settled(t, p.Flow())
	if !settled || c.LbBe != 0 || c.State != objects.ConnDirect || c.NextIn != rig.ClientISN+1 {
		t.Errorf("adopted %v, as %+v", settled, c)
	}
	challenged(t, r, "with an entry", p)
	if out := answerOut(r, t, p.Reply(wire.ACK|wire.FIN), 0); !slices.Equal(out.Reasons, []string{"out_direct"}) {
		t.Errorf("a FIN for no LB: %v", out.Reasons)
	}
	p.Seq = rig.ClientISN + 1
	r.Send(t, rig.To(p, wire.Generation(rig.ClientISN), wire.AckStickiness).Frame()).Is(t, "the LB's next", rig.XDPPass, rig.Delivered(p), "steered_adopted")
	if c = r.MustConn(t, p); c.LbBe != objects.LocatorBits(rig.LbLocator) || c.Generation != wire.Generation(rig.ClientISN) || c.State != objects.ConnDirect {
		t.Errorf("after a packet of the LB: %+v", c)
	}
	rig.Reset(t, fd)
	isComplete(t, r, "all along", true)
}

// TestCompleteHalfClosed: a half of a connection that is closed stays closed.
func TestCompleteHalfClosed(t *testing.T) {
	r := rig.NewAgent(t, rig.Hits{}, rig.Offering(rig.HuntPort))
	l := rig.Listen(t, rig.HuntPort, 128)
	client := rig.Dial(t, rig.ClientPort, rig.HuntPort)
	rig.Queued(t, 1, l)
	shut(t, client)
	p := rig.Inward(rig.HuntPort, wire.ACK)
	rig.Eventually(t, "the client's FIN", func() bool {
		complete(t, r)
		c, _ := r.Settled(t, p.Flow())
		forget(r, t, p)
		return c.Flags == objects.ConnClientFin
	})
}

// TestCompleteIPv4: so do those of the other family.
func TestCompleteIPv4(t *testing.T) {
	r := rig.NewAgent(t, rig.Hits{}, rig.Offering(rig.HuntPort, func(o *topo.Offering) { o.VIP.Addr = rig.Vip4 }))
	l := listen4(t, rig.HuntPort)
	dial4(t, 50000)
	rig.Queued(t, 1, l)
	complete(t, r)
	p := rig.Inward(rig.HuntPort, wire.SYN)
	p.Src, p.Dst = netip.AddrPortFrom(rig.Client4, 50000), netip.AddrPortFrom(rig.Vip4, rig.HuntPort)
	if _, settled := r.Settled(t, p.Flow()); !settled {
		t.Error("no entry")
	}
	challenged(t, r, "IPv4", p)
}

// TestIncomplete: events that may leave a live connection without an entry make the table
// incomplete, and its flow is challenged nevertheless.
func TestIncomplete(t *testing.T) {
	for _, c := range []struct {
		label string
		cause func(t *testing.T, r *rig.Agent, live rig.Packet)
	}{
		{"evicted", func(t *testing.T, r *rig.Agent, live rig.Packet) {
			r.At(t, rig.Start+time.Minute+rig.ConnUnit)
			evict(t, r, live)
		}},
		{"no room", func(t *testing.T, r *rig.Agent, live rig.Packet) {
			forget(r, t, live)
			full := objects.AgentConnLine{}
			for i := range full.Fingerprint {
				full.Fingerprint[i] = ^uint64(0) &^ objects.NoDigest
			}
			for at := range r.Lines {
				rig.ConnsOf(t, r.Agent).Write(t, at, &full)
			}
			live.Flags = wire.ACK
			r.Send(t, rig.To(live, wire.Generation(live.Seq-1), wire.AckStickiness).Frame()).Is(t, "no room", rig.XDPPass, rig.Delivered(live), "table_full", "steered")
		}},
		{"dt", func(t *testing.T, r *rig.Agent, live rig.Packet) {
			forget(r, t, live)
			live.Flags = wire.SYN
			r.Send(t, rig.To(live, 0, wire.Deliver).Frame()).Is(t, "dt", rig.XDPPass, rig.Delivered(live), "deliver")
		}},
		{"a packet that the stack decides on", func(t *testing.T, r *rig.Agent, live rig.Packet) {
			other := live
			other.Src, other.Flags = netip.AddrPortFrom(rig.ClientAddr, rig.ClientPort+1), wire.SYN
			r.Accept(t, other)
			forget(r, t, live)
			other.Flags = wire.ACK
			r.Send(t, rig.To(other, wire.Generation(other.Seq), wire.AckStickiness).Frame()).Is(t, "ack", rig.XDPPass, rig.Delivered(other), "steered_embryonic")
		}},
		{"other services", func(t *testing.T, r *rig.Agent, live rig.Packet) {
			if _, err := r.Offer([]topo.Offering{rig.Offering(83)}); err != nil {
				t.Fatal(err)
			}
			if _, known := r.Conn(t, live.Flow()); known {
				t.Error("an entry of a service that is gone")
			}
			if err := r.Doubt(); err != nil {
				t.Fatal(err)
			}
			if _, err := r.Offer([]topo.Offering{rig.Offering(rig.HuntPort)}); err != nil {
				t.Fatal(err)
			}
			if _, settled := r.Settled(t, live.Flow()); !settled {
				t.Error("a service that is offered again has no entries")
			}
			if err := r.Doubt(); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(c.label, func(t *testing.T) {
			rig.NewAgent(t, rig.Hits{}, rig.Offering(rig.HuntPort)) // for its namespace
			cfg := rig.AgentConfig(1, rig.Offering(rig.HuntPort, func(o *topo.Offering) { o.Acceptance = topo.Always }))
			cfg.Flows.Embryonic = 2*objects.LineSlots - 2
			r := rig.LoadAgent(t, rig.Hits{}, cfg, rig.InVirtualTime)
			live, stranger := rig.Inward(rig.HuntPort, wire.ACK), rig.Inward(rig.HuntPort, wire.SYN)
			rig.Established(t, live, rig.ClientISN)
			rig.Listen(t, rig.HuntPort, 128)
			complete(t, r)
			c.cause(t, r, live)
			isComplete(t, r, "afterwards", false)
			stranger.Src = netip.AddrPortFrom(rig.ClientAddr, 60000) // its offer finds the listener
			r.Run(t, rig.To(stranger, 0, wire.ConnectForce).Frame())
			challenged(t, r, c.label, live)
			rig.ConnsOf(t, r.Agent).Empty(t)
			for _, want := range []uint32{objects.ConnsSought, objects.ConnsComplete} {
				if err := r.KeepComplete(); err != nil {
					t.Fatal(err)
				}
				if is := completeness(t, r); is != want {
					t.Errorf("a sweep leaves %d, want %d", is, want)
				}
			}
			if _, settled := r.Settled(t, live.Flow()); !settled {
				t.Error("no entry after all")
			}
			challenged(t, r, "complete again", live)
		})
	}
}

// evict makes a live flow's entry give way to new ones.
func evict(t *testing.T, r *rig.Agent, live rig.Packet) {
	t.Helper()
	p := live
	p.Flags = wire.SYN
	for port := rig.ClientPort + 1; ; port++ {
		if _, known := r.Conn(t, live.Flow()); !known {
			return
		}
		if port > rig.ClientPort+1000 {
			t.Fatal("the entry never gives way")
		}
		p.Src = netip.AddrPortFrom(rig.ClientAddr, uint16(port))
		r.Run(t, rig.To(p, wire.Generation(p.Seq), wire.ConnectForce).Frame())
		table := rig.ConnsOf(t, r.Agent)
		if e := table.Get(t, p.Flow()); e.Known {
			e.Established = true
			e.Conn.Seen = rig.Seen(rig.Start + time.Minute)
			table.Put(t, p.Flow(), e)
		}
	}
}

// TestIncompleteMeanwhile: an event that makes the table incomplete while the sockets are looked at
// counts, and so does a socket without room for an entry.
func TestIncompleteMeanwhile(t *testing.T) {
	r := rig.NewAgent(t, rig.Hits{}, rig.Offering(rig.HuntPort))
	if err := r.KeepComplete(); err != nil {
		t.Fatal(err)
	}
	if is := completeness(t, r); is != objects.ConnsSought {
		t.Fatalf("the first sweep leaves %d", is)
	}
	p := rig.Inward(rig.HuntPort, wire.SYN)
	r.Send(t, rig.To(p, 0, wire.Deliver).Frame()).Is(t, "dt", rig.XDPPass, rig.Delivered(p), "deliver")
	if err := r.AdoptConns(); err != nil {
		t.Fatal(err)
	}
	isComplete(t, r, "a reason meanwhile", false)
	complete(t, r)

	rig.Established(t, p, rig.ClientISN)
	full := objects.AgentConnLine{}
	for i := range full.Fingerprint {
		full.Fingerprint[i] = ^uint64(0) &^ objects.NoDigest
	}
	for at := range r.Lines {
		rig.ConnsOf(t, r.Agent).Write(t, at, &full)
	}
	if err := r.Complete(); err != nil {
		t.Fatal(err)
	}
	isComplete(t, r, "no room", false)
}

// TestOpenedPastUs: a connection that packets past the agent opened is found within a minute.
func TestOpenedPastUs(t *testing.T) {
	r := rig.NewAgent(t, rig.Hits{}, rig.Offering(rig.HuntPort))
	complete(t, r)
	p := rig.Inward(rig.HuntPort, wire.ACK)
	rig.Established(t, p, rig.ClientISN)
	for range 12 { // sweeps of the whole table, 5 s each
		if err := r.KeepComplete(); err != nil {
			t.Fatal(err)
		}
	}
	if _, settled := r.Settled(t, p.Flow()); !settled {
		t.Error("no entry")
	}
	challenged(t, r, "found", p)
}

// TestIdleOutlives: the entry of an idle connection stays as long as the kernel has its socket, and
// that of a connection that both ends closed does not.
func TestIdleOutlives(t *testing.T) {
	r := rig.NewAgent(t, rig.Hits{}, rig.Offering(rig.HuntPort))
	opening := rig.Inward(rig.HuntPort, wire.SYN)
	fd := r.Begin(t, opening)
	r.Acknowledge(t, opening)
	over := opening
	over.Src = netip.AddrPortFrom(rig.ClientAddr, rig.ClientPort+1)
	r.Begin(t, over)
	r.Acknowledge(t, over)
	table := rig.ConnsOf(t, r.Agent)
	e := table.Get(t, over.Flow())
	e.Conn.Flags |= objects.ConnClosed
	table.Put(t, over.Flow(), e)
	complete(t, r)
	sweep := func(after time.Duration, kept uint64) {
		t.Helper()
		r.At(t, rig.Start+after)
		swept, err := r.SweepAt(rig.Start + after)
		if err != nil || swept.Kept != kept {
			t.Errorf("after %v: %+v, %v, want %d kept", after, swept, err, kept)
		}
	}
	sweep(11*time.Second, 1)
	sweep(5*time.Minute+time.Second, 1)
	sweep(10*time.Minute, 1)
	isComplete(t, r, "swept", true)
	challenged(t, r, "idle", opening)
	rig.Reset(t, fd)
	sweep(15*time.Minute+2*time.Second, 0)
	isComplete(t, r, "swept", true)
}

// TestIncompleteCookie: the stack takes any server's SYN cookie, so a packet with one that is left
// to it may begin a connection.
func TestIncompleteCookie(t *testing.T) {
	r := rig.NewAgent(t, rig.Hits{}, rig.Offering(rig.HuntPort))
	if err := os.WriteFile("/proc/sys/net/ipv4/tcp_syncookies", []byte("2"), 0o644); err != nil {
		t.Fatal(err)
	}
	rig.Listen(t, rig.HuntPort, 128)
	p := rig.Inward(rig.HuntPort, wire.SYN)
	p.Src = netip.MustParseAddrPort("[2001:db8:c::9]:40000")
	p.Ack = handshake(t, p) + 1
	complete(t, r)
	p.Flags, p.Seq = wire.ACK, p.Seq+1
	wrong := p
	wrong.Ack += 1000
	r.Send(t, rig.To(wrong, 0, wire.RecoverStickiness).Frame()).Is(t, "no cookie", rig.XDPPass, rig.Delivered(wrong), "unowned")
	isComplete(t, r, "no cookie", true)
	r.Send(t, rig.To(p, 0, wire.RecoverStickiness).Frame()).Is(t, "a cookie", rig.XDPPass, rig.Delivered(p), "unowned")
	isComplete(t, r, "a cookie", false)
}
