package dataplane

import (
	"encoding/binary"
	"testing"

	"proffer/policy"
)

// rejected is the RST that must reach a server which took a connection second:
// from the client, at the sequence number that its SYN-ACK acknowledged.
func rejected(answer packet, server int, generation uint16, change ...func(*route)) []byte {
	p := answer.reply(rst)
	p.seq, p.ack, p.hop, p.class, p.options, p.payload = answer.ack, 0, 64, 0, nil, nil
	sent := sent(p, hopMAC(server), ask(0x4e, generation, server), change...)
	at := len(sent) - 20
	clear(sent[at+14 : at+18]) // window 0, and the checksum anew
	binary.BigEndian.PutUint16(sent[at+16:], checksum(p.src.Addr(), p.dst.Addr(), 6, sent[at:]))
	if p.src.Addr().Is6() { // its flow label is ours
		ip := at - 40
		if sent[20] == 43 && len(sent) == 14+40+56+20 {
			ip = 14
		}
		binary.BigEndian.PutUint32(sent[ip:], 6<<28|policy.FlowLabel(p.flow()))
		return sent
	}
	clear(sent[at-20+4 : at-20+8]) // no identification, may be fragmented
	clear(sent[at-20+10 : at-20+12])
	binary.BigEndian.PutUint16(sent[at-20+10:], ^sum(sent[at-20:at]))
	return sent
}

// testReject: a second SYN-ACK of one generation, from another server, never
// reaches the client; its request ends by the client's RST in an rj.
func testReject(t *testing.T, seen hits) {
	r := newLBRig(t, seen, hunting(2, 8))
	p := inward(huntPort, syn)
	generation := policy.Generation(p.seq)
	second := synAck(huntPort)
	second.options, second.payload, second.class = []byte{2, 4, 5, 0xa0}, []byte("fast open"), 0x08
	r.accepted(t, 5, p)
	r.send(t, signalFrom(6, second, create, generation)).
		is(t, "of an embryo", xdpDrop, nil, "drop_stickiness_conflict", "stickiness_conflict")
	r.confirm(t, p)
	r.send(t, signalFrom(6, second, create, generation)).
		is(t, "of a flow", xdpTX, rejected(second, 6, generation), "reject", "stickiness_conflict")
	second.flags = ack
	r.send(t, signalFrom(6, second, create, generation)).
		is(t, "data", xdpDrop, nil, "drop_stickiness_conflict", "stickiness_conflict")
	if e, _ := r.flow(t, p.flow()); e.Server != 5 {
		t.Errorf("the second server has the flow: %+v", e)
	}
	r.apply(t, hunting(2, 8, over4))
	q, second4 := overIPv4(p), overIPv4(synAck(huntPort))
	r.accepted(t, 5, q)
	r.confirm(t, q)
	r.send(t, signalFrom(6, second4, create, generation)).
		is(t, "IPv4", xdpTX, rejected(second4, 6, generation), "reject", "stickiness_conflict")
	r.apply(t, hunting(2, 8, inserting))
	second.flags = syn | ack
	r.send(t, signalFrom(6, second, create, generation, insert)).
		is(t, "inserted", xdpTX, rejected(second, 6, generation, insert), "reject", "stickiness_conflict")
}
