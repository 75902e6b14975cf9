package lb_test

import (
	"encoding/binary"
	"testing"

	"proffer/proof/rig"
	"proffer/wire"
)

// rejected is the RST that must reach a server which took a connection second:
// from the client, at the sequence number that its SYN-ACK acknowledged.
func rejected(answer rig.Packet, server int, generation uint16, change ...func(*rig.Route)) []byte {
	p := answer.Reply(wire.RST)
	p.Seq, p.Ack, p.Hop, p.Class, p.Options, p.Payload = answer.Ack, 0, 64, 0, nil, nil
	sent := rig.Sent(p, rig.HopMAC(server), rig.Ask(wire.Reject, generation, server), change...)
	at := len(sent) - 20
	clear(sent[at+14 : at+18]) // window 0, and the checksum again
	binary.BigEndian.PutUint16(sent[at+16:], (wire.IP{Source: p.Src.Addr(), Destination: p.Dst.Addr()}).Checksum(wire.ProtoTCP, sent[at:]))
	if p.Src.Addr().Is6() { // its flow label is ours
		ip := at - 40
		if sent[20] == 43 && len(sent) == 14+40+56+20 {
			ip = 14
		}
		binary.BigEndian.PutUint32(sent[ip:], 6<<28|wire.FlowLabel(p.Flow()))
		return sent
	}
	rig.Unidentified(sent[at-20 : at])
	return sent
}

// testReject: a second SYN-ACK of one generation, from another server, never
// reaches the client; its request ends by the client's RST in an rj.
func testReject(t *testing.T, seen rig.Hits) {
	r := rig.NewLB(t, seen, rig.Hunting(2, 8, rig.Members))
	p := rig.Inward(rig.HuntPort, wire.SYN)
	generation := wire.Generation(p.Seq)
	second := rig.SynAck(rig.HuntPort)
	second.Options, second.Payload, second.Class = []byte{2, 4, 5, 0xa0}, []byte("fast open"), 0x08
	r.Accepted(t, 5, p)
	r.Send(t, rig.SignalFrom(6, second, wire.CreateStickiness, generation)).
		Is(t, "of an embryonic flow", rig.XDPDrop, nil, "drop_stickiness_conflict", "stickiness_conflict")
	r.Confirm(t, p)
	r.Send(t, rig.SignalFrom(6, second, wire.CreateStickiness, generation)).
		Is(t, "of a flow", rig.XDPTX, rejected(second, 6, generation), "reject", "stickiness_conflict")
	second.Flags = wire.ACK
	r.Send(t, rig.SignalFrom(6, second, wire.CreateStickiness, generation)).
		Is(t, "data", rig.XDPDrop, nil, "drop_stickiness_conflict", "stickiness_conflict")
	if e, _ := r.Flow(t, p.Flow()); e.Server != 5 {
		t.Errorf("the second server has the flow: %+v", e)
	}
	r.Reconfigure(t, rig.Hunting(2, 8, rig.Over4, rig.Members))
	q, second4 := rig.OverIPv4(p), rig.OverIPv4(rig.SynAck(rig.HuntPort))
	r.Accepted(t, 5, q)
	r.Confirm(t, q)
	r.Send(t, rig.SignalFrom(6, second4, wire.CreateStickiness, generation)).
		Is(t, "IPv4", rig.XDPTX, rejected(second4, 6, generation), "reject", "stickiness_conflict")
	r.Reconfigure(t, rig.Hunting(2, 8, rig.Inserting, rig.Members))
	second.Flags = wire.SYN | wire.ACK
	r.Send(t, rig.SignalFrom(6, second, wire.CreateStickiness, generation, rig.Insert)).
		Is(t, "inserted", rig.XDPTX, rejected(second, 6, generation, rig.Insert), "reject", "stickiness_conflict")
}
