package dataplane

import (
	"net/netip"
	"testing"

	"proffer/policy"
)

// TestAllOrders: FAILURES.md, createStickiness lost, reordered, duplicated: the
// messages of two connections of one five-tuple in all 720 orders. The program
// does what the oracle says; and nothing of the older connection touches the
// newer one, once that is confirmed.
func TestAllOrders(t *testing.T) {
	j := newLBJudge(t, nil)
	port, confirmed := uint16(0), 0
	permute(6, func(order []int) {
		port++
		messages := twoConnections(port)
		young := false
		for _, i := range order {
			if err := j.verdict(t, messages[i].bytes); err != nil {
				t.Fatalf("%v, message %d: %v", order, i, err)
			}
			e, known := j.lines.get(t, messages[0].flow).flow()
			is := known && e.Generation == policy.Generation(secondISN)
			if young && !is {
				t.Fatalf("%v: message %d replaced the newer connection by %+v", order, i, e)
			}
			young = is
		}
		if young {
			confirmed++
		}
	})
	if port != 720 || confirmed < 100 {
		t.Errorf("%d orders, %d of which confirmed the newer connection", port, confirmed)
	}
}

const secondISN = clientISN + 1<<20

// message is one of a flow that has two connections.
type message struct {
	flow  policy.Flow
	bytes []byte
}

// twoConnections of one client's port: the first with server 1, the second with 2.
func twoConnections(port uint16) []message {
	client := netip.AddrPortFrom(clientAddr, port)
	from := func(flags byte, seq, acks uint32) packet {
		p := inward(huntPort, flags)
		p.src, p.seq, p.ack = client, seq, acks
		return p
	}
	answer := func(flags byte, seq, acks uint32) packet {
		p := from(flags, seq, acks)
		p.src, p.dst = p.dst, p.src
		return p
	}
	g1, g2 := policy.Generation(clientISN), policy.Generation(secondISN)
	flow := from(0, 0, 0).flow()
	return []message{
		{flow, signalFrom(1, answer(syn|ack, serverISN, clientISN+1), create, g1)},
		{flow, from(ack, clientISN+1, serverISN+1).frame()},
		{flow, signalFrom(1, answer(ack, serverISN+1, clientISN+1), create, g1)},
		{flow, from(syn, secondISN, 0).frame()},
		{flow, signalFrom(2, answer(syn|ack, 5, secondISN+1), create, g2)},
		{flow, from(ack, secondISN+1, 6).frame()},
	}
}
