package lb_test

import (
	"slices"
	"testing"

	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// TestConnections: established flows count at their server of their service, be they of the agent's making, of
// the client's or with a seat; flows that are embryonic or over count nowhere.
func TestConnections(t *testing.T) {
	by4 := func(port uint16, d topo.Dispatch, change ...func(*topo.Service)) topo.Service {
		svc := rig.Service(port, d, 1, 4)
		for _, c := range append(change, by(topo.ByL2, false)) {
			c(&svc)
		}
		return svc
	}
	udp := func(s *topo.Service) { s.VIP.Protocol = topo.UDP }
	for name, c := range map[string]struct {
		svc   topo.Service
		begin func(r *rig.LB, p rig.Packet) // by a server's answer; nil: by the client's packets alone
	}{
		"hunt": {rig.Hunting(2, 4), func(r *rig.LB, p rig.Packet) {
			r.Accepted(t, 2, p)
		}},
		"single":      {by4(rig.HuntPort, topo.Single), nil},
		"single, UDP": {by4(rig.HuntPort, topo.Single, udp), nil},
		"learned":     {by4(rig.HuntPort, topo.Learned), nil},
	} {
		other := by4(99, topo.Single)
		r := newAgentless(t, rig.Hits{}, c.svc, other)
		var counts []uint32
		want := func(when string, n uint32) {
			t.Helper()
			all, err := r.Connections(r.Cfg.Services)
			if err != nil {
				t.Fatal(err)
			}
			counts = all[0]
			if sum := counts[0] + counts[1] + counts[2] + counts[3]; sum != n || slices.Max(counts) != n || slices.Max(all[1]) != 0 {
				t.Errorf("%s, %s: %v, want %d in one of the first four", name, when, all, n)
			}
		}
		p := rig.Inward(rig.HuntPort, wire.SYN)
		p.Protocol = c.svc.VIP.Protocol
		want("at the start", 0)
		send := func(flags byte) {
			p.Flags, p.Seq, p.Ack = flags, rig.ClientISN+1, rig.ServerISN+1
			r.Send(t, p.Frame())
		}
		if c.begin != nil {
			c.begin(r, p)
		} else {
			r.Send(t, p.Frame())
		}
		want("embryonic", 0)
		send(wire.ACK)
		want("established", 1)
		if name == "hunt" && counts[2] != 1 {
			t.Errorf("%s: %v, want the connection at the server that took it", name, counts)
		}
		if p.Protocol == topo.UDP {
			continue
		}
		send(wire.FIN | wire.ACK)
		if c.begin != nil {
			want("closed by the client alone", 1)
			answer := p.Reply(wire.FIN | wire.ACK)
			r.Send(t, rig.SignalFrom(2, answer, wire.RemoveStickiness, wire.Generation(rig.ClientISN)))
		}
		want("over", 0)
	}
}
