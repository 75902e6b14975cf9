package nf_test

import (
	"testing"
	"time"

	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// plain is a segment without flow label, DF and window, which a RST of ours may have otherwise.
func plain(segment []byte) []byte {
	at := wire.IPv6Bytes
	if segment[0]>>4 == 6 {
		copy(segment, []byte{0x60, 0, 0, 0})
	} else {
		at = wire.IPv4Bytes
		segment[6], segment[10], segment[11] = 0, 0, 0
	}
	segment[at+14], segment[at+15] = 0, 0
	return segment
}

// testRefused: a client's segment for a connection that a stateful function does not know is answered
// with a RST by the LB, as the server would (RFC 9293 §3.10.7.1), within limits.
func testRefused(t *testing.T, seen rig.Hits) {
	rules := topo.Firewall{Rules: []topo.Rule{{Allow: true}}}
	for _, functions := range [][]topo.Function{
		{rules}, {topo.SourceNAT{Public4: public4, Public6: public6, First: first, Ports: ports}, topo.Cost{Each: 1}},
	} {
		b := newBench(t, seen, chained(functions...))
		for _, family := range []int{4, 6} {
			f := outward("tcp", family, 1)
			ip := wire.IP{Source: f.from.Addr(), Destination: f.to.Addr(), HopLimit: 50}
			back := wire.IP{Source: f.to.Addr(), Destination: f.from.Addr(), HopLimit: wire.DefaultHopLimit}
			for _, c := range []struct{ segment, rst wire.TCP }{
				{wire.TCP{Seq: 7, Ack: 99, Flags: wire.ACK}, wire.TCP{Seq: 99, Flags: wire.RST}},
				{wire.TCP{Seq: 7, Flags: wire.FIN}, wire.TCP{Ack: 7 + 4 + 1, Flags: wire.RST | wire.ACK}},
			} {
				c.segment.From, c.segment.To, c.rst.From, c.rst.To = f.from.Port(), f.to.Port(), f.to.Port(), f.from.Port()
				out := b.run(t, around(to(1, costly), ip.TCP(c.segment, []byte("data"))))
				out.Is(t, "segment", redirect, nil, "refused", "returned")
				tunnel, rst, err := wire.ParseTunnel(out.Frame)
				must(t, err)
				if family == 4 && wire.Checksum(rst[:wire.IPv4Bytes]) != 0 {
					t.Error("the header's checksum is wrong")
				}
				if want := plain(back.TCP(c.rst, nil)); string(plain(rst)) != string(want) || !tunnel.Instance.Update || tunnel.To != lbAddr {
					t.Errorf("%+v is answered\n%x\nwant\n%x", c.segment, rst, want)
				}
			}
			b.owner(t, "refused", f.packet(), 0, 0)
		}
		rig.Spend(t, b.Objects().Limits, b.now)
		b.run(t, around(to(1, costly), outward("tcp", 4, 1).later().packet())).Is(t, "above the limit", rig.XDPDrop, nil, "drop_limit_refusal")
	}
}

// testUnbound: a packet of the world to a port without a binding goes back to the LB as it came, within
// limits, unless a function before NAT changed it.
func testUnbound(t *testing.T, seen rig.Hits) {
	nat := topo.SourceNAT{Public4: public4, Public6: public6, First: first, Ports: ports}
	b := newBench(t, seen, chained(topo.Cost{Each: 1}, nat))
	for _, family := range []int{4, 6} {
		for _, kind := range []string{"tcp", "udp", "echo"} {
			stray := outward(kind, family, 1).after(first + 5).reversed().later()
			there := to(1, costly)
			want := rig.Back(there)
			want.Message, want.Instance = wire.MessageUnbound, wire.Instance{Server: server}
			b.run(t, around(there, stray.packet())).Is(t, kind, redirect, around(want, stray.packet()), "unbound")
			b.owner(t, kind, stray.packet(), 0, 0)
		}
	}
	stray := outward("tcp", 4, 1).after(first + 5).reversed().later()
	rig.Spend(t, b.Objects().Limits, b.now)
	b.run(t, around(to(1, costly), stray.packet())).Is(t, "above the limit", rig.XDPDrop, nil, "drop_limit_refusal")
	b.at(t, b.now+time.Second)
	must(t, b.SetNextHop(0, topo.MAC{}))
	b.run(t, around(to(1, costly), stray.packet())).Is(t, "no LB", rig.XDPDrop, nil, "drop_no_lb")

	b = newBench(t, seen, chained(nat, topo.Rewriter{From: "payl", To: "PAYL"}))
	rewritten := outward("udp", 4, 1).after(first + 5).reversed().later()
	b.run(t, around(to(1, costly), rewritten.packet())).Is(t, "changed before", rig.XDPDrop, nil, "drop_nat_unknown")
}
