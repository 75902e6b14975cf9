package nf_test

import (
	"net/netip"
	"testing"
	"time"

	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// question asks whether the node has a packet's flow.
func question() wire.Tunnel {
	q := to(0, 0)
	q.Message = wire.MessageRecover
	return q
}

// answers is the answer of core 0 or 1 for a service, or without a service that the flow is not here.
func answers(core, service int) wire.Tunnel {
	a := rig.Back(question())
	a.Instance = wire.Instance{Server: server, Core: core, Service: service}
	a.Message = wire.MessageNotMine
	if service != 0 {
		a.Message = wire.MessageOwned
	}
	return a
}

// owner asks the node for the owner of a packet and checks its answer: the packet as it came.
func (b *bench) owner(t *testing.T, label string, packet []byte, core, service int) {
	t.Helper()
	reason := "not_mine"
	if service != 0 {
		reason = "owned"
	}
	b.run(t, around(question(), packet)).Is(t, label, redirect, around(answers(core, service), packet), reason)
}

// testOwner: the node owns the flows that passed a chain, by the tuple before and the tuple
// after, in both directions; not those that a function gave back, nor others.
func testOwner(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen)
	for _, family := range []int{4, 6} {
		for i, kind := range []string{"tcp", "udp", "echo"} {
			f := outward(kind, family, 1000+i)
			b.owner(t, kind+" before", f.packet(), 0, 0)
			after := f.after(portOf(t, kind, b.run(t, around(to(1, natted), f.packet())), kind))
			for _, p := range []flow{f, f.reversed(), after, after.reversed()} {
				b.owner(t, kind, p.packet(), 1, natted)
			}
		}
	}
	f := outward("udp", 4, 2000)
	b.run(t, around(to(0, costly), f.packet())).Is(t, "unchanged", redirect, nil, "direct")
	b.owner(t, "unchanged", f.reversed().packet(), 0, costly)
	tooBig := rig.TooBig(rig.Packet{Protocol: topo.UDP, Src: f.from, Dst: f.to, Hop: 9}, 1000)
	b.owner(t, "error about the flow", tooBig.Ip(), 0, costly)
	b.run(t, around(to(1, costly), f.packet())).Is(t, "at another core", redirect, nil, "direct", "flow_moved")
	b.owner(t, "at another core", f.packet(), 1, costly)
	stray := flow{"tcp", netip.AddrPortFrom(remote4, 80), netip.AddrPortFrom(public4, first), wire.ACK}
	b.run(t, around(to(0, natted), stray.packet())).Is(t, "unbound", redirect, nil, "unbound")
	b.owner(t, "unbound", stray.packet(), 0, 0)
	other := rig.TooBig(rig.Packet{Protocol: topo.UDP, Src: outward("udp", 4, 2001).from, Dst: f.to, Hop: 9}, 1000)
	b.run(t, around(to(0, costly), other.Ip())).Is(t, "error about another", redirect, nil, "direct")
	b.owner(t, "error about another", other.Ip(), 0, 0)
}

// testOwnerAged: the node forgets a flow after `idle` without packets of either direction.
func testOwnerAged(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen)
	f := outward("udp", 4, 1)
	after := f.after(portOf(t, "begin", b.run(t, around(to(0, natted), f.packet())), "udp"))
	for range 3 {
		b.at(t, b.now+9*time.Second)
		b.run(t, around(to(0, natted), after.reversed().packet())).Is(t, "an answer", redirect, nil, "returned")
		_, err := b.SweepTurn()
		must(t, err)
		b.owner(t, "after 9 s", f.packet(), 0, natted)
		b.owner(t, "after 9 s", after.packet(), 0, natted)
	}
	b.at(t, b.now+11*time.Second)
	_, err := b.SweepTurn()
	must(t, err)
	b.owner(t, "after 11 s", f.packet(), 0, 0)
	b.owner(t, "after 11 s", after.packet(), 0, 0)
}

// testBadQuestions: a question that names an instance, another node or no packet of a flow is dropped.
func testBadQuestions(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen)
	packet := outward("tcp", 4, 1).packet()
	for _, change := range []func(*wire.Tunnel){
		func(q *wire.Tunnel) { q.Instance.Server++ },
		func(q *wire.Tunnel) { q.Instance.Core = 1 },
		func(q *wire.Tunnel) { q.Instance.Service = costly },
		func(q *wire.Tunnel) { q.Instance.Update = true },
		func(q *wire.Tunnel) { q.Message = wire.MessageOwned },
		func(q *wire.Tunnel) { q.Message = wire.MessageNotMine },
		func(q *wire.Tunnel) { q.Message = wire.MessageAlive },
	} {
		q := question()
		change(&q)
		b.run(t, around(q, packet)).Is(t, "bad question", rig.XDPDrop, nil, "drop_impossible_id")
	}
	q := question()
	q.From = netip.MustParseAddr("192.0.2.66")
	b.run(t, around(q, packet)).Is(t, "stranger", rig.XDPDrop, nil, "drop_stranger")
	b.run(t, around(question(), packet[:30])).Is(t, "cut short", rig.XDPDrop, nil, "drop_malformed")
}

// testProbe: a probe, as the LB's daemon sends it, is answered.
func testProbe(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen)
	ip := wire.IP{Source: lbAddr, Destination: nodeAddr, HopLimit: 64}
	probe := wire.Frame(here, lbMAC, ip.UDP(40000, wire.VXLANPort, wire.Probe(server)))
	out := b.run(t, probe)
	out.Is(t, "probe", redirect, nil, "alive")
	const atVXLAN = wire.EthernetBytes + wire.IPv4Bytes + wire.UDPBytes
	answer, _, err := wire.ParseTunnel(append(out.Frame[:len(out.Frame):len(out.Frame)], 0))
	must(t, err)
	if answer.Message != wire.MessageAlive || answer.Instance != (wire.Instance{Server: server}) || answer.To != lbAddr || answer.From != nodeAddr || answer.LinkTo != lbMAC {
		t.Errorf("the answer is %+v", answer)
	}
	if sum := wire.Checksum(out.Frame[wire.EthernetBytes : wire.EthernetBytes+wire.IPv4Bytes]); sum != 0 {
		t.Errorf("the header's checksum is off by %x", sum)
	}
	if out.Frame[atVXLAN-2]|out.Frame[atVXLAN-1] != 0 {
		t.Error("the answer has a UDP checksum of the probe's")
	}
	b.run(t, wire.Frame(here, lbMAC, ip.UDP(40000, wire.VXLANPort, wire.Probe(server+1)))).Is(t, "another node's", rig.XDPDrop, nil, "drop_impossible_id")
}
