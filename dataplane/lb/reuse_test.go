package lb_test

import (
	"testing"
	"time"

	"proffer/dataplane"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// testReuse: a SYN of a flow that is over and was silent for a second, or for ten after a SYN, begins
// another flow, so a server that drains gets none of them. Earlier, or of a flow that lives, it stays.
func testReuse(t *testing.T, seen rig.Hits) {
	for _, of := range []func(int, ...func(*topo.Service)) topo.Service{kept, learned} {
		for _, end := range []byte{wire.FIN | wire.ACK, wire.RST} {
			r := learner(t, seen, of(8))
			now := rig.Start
			serverOf := func(label string, after time.Duration, flags byte, reasons ...string) int {
				t.Helper()
				now += after
				r.At(t, now)
				out := r.Send(t, client(0, flags).Frame())
				out.Is(t, label, rig.XDPTX, nil, reasons...)
				return farmNumber(r, out.Frame)
			}
			server := serverOf("SYN", 0, wire.SYN, "deliver", "flow_begun")
			serverOf("ACK", 0, wire.ACK, "flow_established", "steer")
			r.Reconfigure(t, of(8, drained(server)))
			hopsOf(t, r)
			const at = 1350 * time.Millisecond // more than five ticks
			for _, c := range []struct {
				label string
				after time.Duration
				flags byte
			}{
				{"SYN of a silent flow that lives", at, wire.SYN},
				{"data", 0, wire.ACK | wire.PSH},
				{"end", 0, end},
				{"SYN at once", 500 * time.Millisecond, wire.SYN},
				{"that SYN again", at, wire.SYN},
				{"ACK", 0, wire.ACK},
				{"end of the second connection", 0, end},
				{"data after it", at, wire.ACK | wire.PSH},
				{"end again", 0, end},
				{"end that was sent again", at, end},
				{"SYN after that", 500 * time.Millisecond, wire.SYN},
				{"ACK of the third", 0, wire.ACK},
				{"its end", 0, end},
			} {
				if got := serverOf(c.label, c.after, c.flags, "steer"); got != server {
					t.Errorf("%v: %s: at server %d, not %d", r.Cfg.Services[0].Dispatch, c.label, got, server)
				}
			}
			second := serverOf("SYN after a second", at, wire.SYN, "deliver", "flow_begun")
			if second == server {
				t.Errorf("%v: a new connection on an old five-tuple went to a server that drains", r.Cfg.Services[0].Dispatch)
			}
			serverOf("its ACK", 0, wire.ACK, "flow_established", "steer")
			serverOf("its end", 0, end, "steer")
			r.Reconfigure(t, of(8, drained(server, second)))
			hopsOf(t, r)
			if got := serverOf("SYN without an answer", 0, wire.SYN, "steer"); got != second {
				t.Errorf("%v: a SYN moved a flow that has just ended", r.Cfg.Services[0].Dispatch)
			}
			if got := serverOf("SYN after ten seconds", 11*time.Second, wire.SYN, "deliver", "flow_begun"); got == second {
				t.Errorf("%v: a five-tuple without an answer stayed at a server that drains", r.Cfg.Services[0].Dispatch)
			}
		}
	}
}

// testHealthOfReused: the SYN of a flow that is over is a new connection of its server, which the
// client's next packet shows to be answered; that of a flow that lives is none.
func testHealthOfReused(t *testing.T, seen rig.Hits) {
	for _, svc := range []topo.Service{kept(8), learned(8)} {
		for _, end := range []byte{wire.FIN | wire.ACK, wire.RST} {
			r := learner(t, seen, svc)
			r.Send(t, client(0, wire.SYN).Frame())
			out := r.Send(t, client(0, wire.ACK).Frame())
			server := farmNumber(r, out.Frame)
			want := dataplane.Health{Offered: 1, Answered: 1}
			at := func(label string, flags byte, change func()) {
				change()
				out := r.Send(t, client(0, flags).Frame())
				out.Is(t, label, rig.XDPTX, nil, "steer")
				if farmNumber(r, out.Frame) != server {
					t.Errorf("%v: %s: moved", svc.Dispatch, label)
				}
				wantHealthOf(t, r, server, want)
			}
			for range 2 {
				at("SYN of a flow that lives", wire.SYN, func() {})
				at("end", end, func() {})
				at("SYN", wire.SYN, func() { want.Offered++ })
				at("SYN again", wire.SYN, func() { want.Repeated++ })
				at("ACK", wire.ACK, func() { want.Answered++ })
				at("data", wire.ACK|wire.PSH, func() {})
			}
		}
	}
}
