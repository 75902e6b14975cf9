package agent_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"proffer/dataplane/objects"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// fullTable is an agent with a table of two lines, full of flows of one kind.
type fullTable struct {
	*rig.Agent
	t    *testing.T
	all  []rig.Packet
	port uint16
}

// flow is the first packet of another flow that may be in either line.
func (r *fullTable) flow(protocol topo.Protocol) rig.Packet {
	for {
		r.port++
		p := rig.Inward(rig.HuntPort, wire.SYN)
		if protocol == topo.UDP {
			p = rig.Datagram(rig.HuntPort, "datagram")
		}
		p.Src = netip.AddrPortFrom(rig.ClientAddr, r.port)
		if lines, _ := rig.ConnsOf(r.t, r.Agent.Agent).Lines(p.Flow()); lines[0] != lines[1] {
			return p
		}
	}
}

func innerOf(p rig.Packet) rig.Inner {
	if p.Protocol == topo.UDP {
		return rig.InnerUDP(p)
	}
	return rig.InnerTCP(p)
}

// offered is an offer that the agent must take, and the counters.
func (r *fullTable) offered(p rig.Packet) []string {
	return r.Send(r.t, rig.ToWith(innerOf(p), wire.Generation(p.Seq), wire.ConnectForce).Frame()).Reasons
}

// sends is a later packet of a flow.
func (r *fullTable) sends(p rig.Packet, flags byte) {
	generation := r.MustConn(r.t, p).Generation
	p.Flags, p.Seq = flags, p.Seq+1
	r.Send(r.t, rig.ToWith(innerOf(p), generation, wire.AckStickiness).Frame())
}

// answers is a packet of the server.
func (r *fullTable) answers(p rig.Packet, flags byte) {
	if p.Protocol == topo.UDP {
		outUDP(r.Agent, r.t, p)
		return
	}
	answer := p.Reply(flags)
	answer.Ack = p.Seq + 2
	answerOut(r.Agent, r.t, answer, 0)
}

// testConnsGiveWay: which established flows give way to a new one, and after how long.
func testConnsGiveWay(t *testing.T, seen rig.Hits) {
	fin := func(r *fullTable, p rig.Packet) { r.sends(p, wire.FIN|wire.ACK) }
	for _, c := range []struct {
		label    string
		protocol topo.Protocol
		live     func(*fullTable, rig.Packet)
		after    time.Duration
		gives    bool
	}{
		{"over", topo.TCP, func(r *fullTable, p rig.Packet) { fin(r, p); r.answers(p, wire.FIN|wire.ACK) }, 4 * time.Second, true},
		{"over a moment ago", topo.TCP, func(r *fullTable, p rig.Packet) { fin(r, p); r.answers(p, wire.FIN|wire.ACK) }, 3 * time.Second, false},
		{"half-closed", topo.TCP, fin, 30 * time.Second, true},
		{"half-closed a while ago", topo.TCP, fin, 29 * time.Second, false},
		{"sockets out of sight", topo.TCP, func(*fullTable, rig.Packet) {}, 5*time.Minute - 2*rig.ConnUnit, false},
		{"sockets out of sight, idle", topo.TCP, func(*fullTable, rig.Packet) {}, 5*time.Minute + rig.ConnUnit, true},
		{"two datagrams", topo.UDP, func(*fullTable, rig.Packet) {}, 4 * time.Second, true},
		{"two datagrams a moment ago", topo.UDP, func(*fullTable, rig.Packet) {}, 3 * time.Second, false},
		{"three datagrams", topo.UDP, func(r *fullTable, p rig.Packet) { r.sends(p, 0) }, 59 * time.Second, false},
		{"three datagrams, idle", topo.UDP, func(r *fullTable, p rig.Packet) { r.sends(p, 0) }, 60 * time.Second, true},
	} {
		t.Run(c.label, func(t *testing.T) {
			rig.NewAgent(t, seen, rig.Offering(rig.HuntPort)) // for its namespace
			cfg := rig.AgentConfig(1, rig.Offering(rig.HuntPort, rig.ByTable, func(o *topo.Offering) {
				o.Acceptance, o.VIP.Protocol = topo.Always, c.protocol
			}))
			cfg.Flows.Embryonic = 2*objects.LineSlots - 2
			r := &fullTable{Agent: rig.LoadAgent(t, seen, cfg, rig.InVirtualTime), t: t, port: rig.ClientPort}
			for len(r.all) < 2*objects.LineSlots {
				p := r.flow(c.protocol)
				r.offered(p)
				r.answers(p, wire.SYN|wire.ACK)
				r.sends(p, wire.ACK)
				if _, known := r.Settled(t, p.Flow()); !known {
					t.Fatalf("flow %d has no entry", len(r.all))
				}
				c.live(r, p)
				r.all = append(r.all, p)
			}
			r.At(t, rig.Start+c.after+rig.ConnUnit)
			why := r.offered(r.flow(c.protocol))
			if gave := slices.Contains(why, "evicted"); gave != c.gives || slices.Contains(why, "table_full") == c.gives {
				t.Errorf("a new flow met %v", why)
			}
			left := 0
			for _, p := range r.all {
				if _, known := r.Settled(t, p.Flow()); known {
					left++
				}
			}
			if want := len(r.all) - len(slices.DeleteFunc(slices.Clone(why), func(s string) bool { return s != "evicted" })); left != want {
				t.Errorf("%d flows are left, want %d", left, want)
			}
			if n, most := r.Asking(t), uint32(left); n > most {
				t.Errorf("%d requests in progress of %d flows", n, most)
			}
		})
	}
}
