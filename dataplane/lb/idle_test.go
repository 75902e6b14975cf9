package lb_test

import (
	"net/netip"
	"testing"
	"time"

	"proffer/dataplane"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// testIdleKept: an open TCP connection that no agent is asked for keeps its entry for 2 h 4 min without
// packets, however short `idle` is, and for `idle` if that is longer. A UDP flow, and a connection that
// its client closed, keep theirs for `idle` or `linger`.
func testIdleKept(t *testing.T, seen rig.Hits) {
	const idle, long, linger = 4 * time.Second, 2*time.Hour + 4*time.Minute, 2 * time.Second
	for _, c := range []struct {
		label string
		svc   topo.Service
		flags []byte
		idle  time.Duration
		age   time.Duration
	}{
		{"single", kept(4), []byte{wire.SYN, wire.ACK}, idle, long},
		{"single, IPv4", kept(4, rig.Over4), []byte{wire.SYN, wire.ACK}, idle, long},
		{"single, a longer idle", kept(4), []byte{wire.SYN, wire.ACK}, 3 * time.Hour, 3 * time.Hour},
		{"single, data of a flow without an entry", kept(4), []byte{wire.ACK, wire.ACK}, idle, long},
		{"single, UDP", kept(4, rig.OverUDP), []byte{0, 0, 0}, idle, idle},
		{"single, closed", kept(4), []byte{wire.SYN, wire.ACK, wire.FIN | wire.ACK}, idle, linger},
		{"learned", learned(4), []byte{wire.SYN, wire.ACK}, idle, long},
		{"learned, UDP", learned(4, rig.OverUDP), []byte{0, 0, 0}, idle, idle},
		{"learned, closed by the client", learned(4), []byte{wire.SYN, wire.ACK, wire.FIN | wire.ACK}, idle, idle},
	} {
		t.Run(c.label, func(t *testing.T) {
			rig.Enter(t)
			cfg := rig.LBConfig(c.svc)
			cfg.Flows.Idle, cfg.Flows.Linger = c.idle, linger
			r := rig.LoadLB(t, seen, cfg)
			hopsOf(t, r)
			for _, flags := range c.flags {
				p := client(0, flags)
				switch {
				case flags == 0:
					p = rig.Datagram(81, "some")
				case c.svc.VIP.Addr == rig.Vip4:
					p.Src, p.Dst = netip.AddrPortFrom(rig.Client4, rig.ClientPort), netip.AddrPortFrom(rig.Vip4, 81)
				}
				r.Send(t, p.Frame())
			}
			for _, s := range []struct {
				after time.Duration
				want  dataplane.Swept
			}{{c.age, dataplane.Swept{Kept: 1}}, {c.age + 2*rig.Unit, dataplane.Swept{Removed: 1}}} {
				r.At(t, rig.Start+s.after)
				if got, err := r.Sweep(); err != nil || got != s.want {
					t.Errorf("after %v: %+v, %v, want %+v", s.after, got, err, s.want)
				}
			}
		})
	}
}
