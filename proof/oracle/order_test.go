package oracle_test

import (
	"net/netip"
	"testing"

	"proffer/policy"
	"proffer/proof/rig"
	"proffer/wire"
)

// TestAllOrders: docs/failures.md, createStickiness lost, reordered, duplicated: the
// messages of two connections of one five-tuple in all 720 orders. The program
// does as the oracle demands; and nothing of the older connection touches the
// newer one, once that is confirmed. Time stands still, so the first server, which is asked and
// does not answer, keeps its flow: the newer one is confirmed where it comes first.
func TestAllOrders(t *testing.T) {
	j := newLBJudge(t, nil)
	port, confirmed := uint16(0), 0
	rig.Permute(6, func(order []int) {
		port++
		messages := twoConnections(port)
		young := false
		for _, i := range order {
			if err := j.verdict(t, messages[i].bytes); err != nil {
				t.Fatalf("%v, message %d: %v", order, i, err)
			}
			e, known := j.lines.Get(t, messages[0].flow).Flow()
			is := known && e.Generation == wire.Generation(secondISN)
			if young && !is {
				t.Fatalf("%v: message %d replaced the newer connection by %+v", order, i, e)
			}
			young = is
		}
		if young {
			confirmed++
		}
	})
	if port != 720 || confirmed < 40 {
		t.Errorf("%d orders, %d of which confirmed the newer connection", port, confirmed)
	}
}

const secondISN = rig.ClientISN + 1<<20

// message is one of a flow that has two connections.
type message struct {
	flow  policy.Flow
	bytes []byte
}

// twoConnections of one client's port: the first with server 1, the second with 2.
func twoConnections(port uint16) []message {
	client := netip.AddrPortFrom(rig.ClientAddr, port)
	from := func(flags byte, seq, acks uint32) rig.Packet {
		p := rig.Inward(rig.HuntPort, flags)
		p.Src, p.Seq, p.Ack = client, seq, acks
		return p
	}
	answer := func(flags byte, seq, acks uint32) rig.Packet {
		p := from(flags, seq, acks)
		p.Src, p.Dst = p.Dst, p.Src
		return p
	}
	g1, g2 := wire.Generation(rig.ClientISN), wire.Generation(secondISN)
	flow := from(0, 0, 0).Flow()
	return []message{
		{flow, rig.SignalFrom(1, answer(wire.SYN|wire.ACK, rig.ServerISN, rig.ClientISN+1), wire.CreateStickiness, g1)},
		{flow, from(wire.ACK, rig.ClientISN+1, rig.ServerISN+1).Frame()},
		{flow, rig.SignalFrom(1, answer(wire.ACK, rig.ServerISN+1, rig.ClientISN+1), wire.CreateStickiness, g1)},
		{flow, from(wire.SYN, secondISN, 0).Frame()},
		{flow, rig.SignalFrom(2, answer(wire.SYN|wire.ACK, 5, secondISN+1), wire.CreateStickiness, g2)},
		{flow, from(wire.ACK, secondISN+1, 6).Frame()},
	}
}

// TestReusedInAllOrders: of a five-tuple that is used again where the client's packets make the entries and agents are
// asked, the packets and a late signal of the first connection, by each server, in all orders. The signal moves
// no flow for which a SYN came after its end.
func TestReusedInAllOrders(t *testing.T) {
	const kept = 94 // single, recovery: agents
	j := newLBJudge(t, nil)
	port, reused := uint16(0), 0
	for _, end := range []byte{wire.FIN | wire.ACK, wire.RST} {
		for server := range 8 {
			rig.Permute(6, func(order []int) {
				port++
				from := func(flags byte, seq uint32) rig.Packet {
					p := rig.Inward(kept, flags)
					p.Src, p.Seq, p.Ack = netip.AddrPortFrom(rig.ClientAddr, port), seq, rig.ServerISN+1
					return p
				}
				late := from(wire.ACK, rig.ServerISN+1)
				late.Src, late.Dst = late.Dst, late.Src
				messages := [][]byte{
					from(wire.SYN, rig.ClientISN).Frame(), from(wire.ACK, rig.ClientISN+1).Frame(), from(end, rig.ClientISN+1).Frame(),
					from(wire.SYN, secondISN).Frame(), rig.SignalFrom(server, late, wire.CreateStickiness, wire.Generation(rig.ClientISN)),
					from(wire.ACK, secondISN+1).Frame(),
				}
				for n, i := range order {
					if err := j.verdict(t, messages[i]); err != nil {
						t.Fatalf("ended by %#x, server %d, %v, message %d: %v", end, server, order, n, err)
					}
				}
				if e, known := j.lines.Get(t, from(0, 0).Flow()).Flow(); known && e.Closed == 0 {
					reused++
				}
			})
		}
	}
	if reused < 4000 {
		t.Errorf("%d of %d flows live in the end", reused, port)
	}
}
