package raw

import (
	"net/netip"
	"testing"

	"proffer/wire"
)

// TestAnswered: a SYN-ACK is found bare and inside of another packet, and nothing else is one.
func TestAnswered(t *testing.T) {
	client, vip := netip.MustParseAddr("2001:db8:c::1"), netip.MustParseAddr("2001:db8:f::1")
	ip := wire.IP{Source: vip, Destination: client, HopLimit: wire.DefaultHopLimit}
	synAck := ip.TCP(wire.TCP{From: 80, To: 1024, Seq: 7, Ack: 101, Flags: wire.SYN | wire.ACK}, nil)
	want := synOf{netip.AddrPortFrom(client, 1024), 100}
	outer := make([]byte, 40)
	outer[6] = 41
	routed := append(append([]byte{}, outer...), 41, 2, 4, 0, 0, 0, 0, 0)
	routed[6] = 43
	routed = append(routed, make([]byte, 16)...)
	for _, p := range [][]byte{synAck, append(outer, synAck...), append(routed, synAck...)} {
		if h, ok := answered(p); !ok || h != want {
			t.Errorf("%+v, %v, want %+v", h, ok, want)
		}
	}
	for _, p := range [][]byte{nil, synAck[:50], ip.TCP(wire.TCP{From: 80, To: 1024, Flags: wire.ACK}, nil), ip.TCP(wire.TCP{From: 80, To: 1024, Flags: wire.SYN}, nil)} {
		if h, ok := answered(p); ok {
			t.Errorf("%x is a SYN-ACK to %+v", p, h)
		}
	}
	s := &SYNACKs{}
	for _, server := range []string{"s1", "s1", "s2"} {
		s.note(want, server)
	}
	s.note(synOf{want.client, 200}, "s3")
	if most := s.Most(); len(most) != 1 || most[want.client] != 2 {
		t.Errorf("%v, want two servers", most)
	}
}
