package lb_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// mtuIn is the length in a packet too big, or in a fragmentation needed.
func mtuIn(frame []byte) int {
	if frame[12] == 8 {
		return int(binary.BigEndian.Uint16(frame[34+6:]))
	}
	return int(binary.BigEndian.Uint32(frame[54+4:]))
}

// testAgentlessTooBig: a router's packet too big about VXLAN over IPv6 becomes one about the
// client's packet.
func testAgentlessTooBig(t *testing.T, seen rig.Hits) {
	c := deliveryCase{by: topo.ByVXLAN}
	r := newAgentless(t, seen, c.services()...)
	p := rig.Sized(c.packet(82, wire.ACK), rig.MTU-70)
	sent := r.Send(t, p.Frame())
	out := r.Send(t, rig.AboutOurs(sent.Frame, 1400, 600))
	out.Is(t, "about VXLAN", rig.XDPTX, nil, "too_big_translated")
	if got := mtuIn(out.Frame); got != 1400-70 {
		t.Errorf("the report has %d bytes, want %d", got, 1400-70)
	}
}

// testAgentlessLong: packets that are too long for XDP: a joined packet leaves as segments that fit
// with the delivery's headers, IPv4 without DF as two fragments.
func testAgentlessLong(t *testing.T, seen rig.Hits) {
	for _, c := range deliveryCases() {
		r := newAgentless(t, seen, c.services()...)
		p := c.packet(82, wire.ACK)
		long := rig.Sized(p, 9000).Frame()
		r.Send(t, long).Is(t, fmt.Sprintf("%v, a super-packet", c), rig.XDPPass, leftToStack(slices.Clone(long)), "pass_long")
		l := goLive(t, r)
		l.sendJoined(t, rig.Sized(p, 9000), 1440)
		l.wantJoined(t, c, rig.Sized(p, 9000))
		l.counted(t, seen, "sent_in_segments")
		l.counted(t, seen, c.counter)
		if !c.vip4 || c.header == 0 {
			continue
		}
		for _, length := range []int{rig.MTU - c.header + 1, rig.MTU} {
			frame := rig.Divisible(c.packet(82, wire.ACK), length)
			r.Send(t, slices.Clone(frame)).Is(t, fmt.Sprintf("%v without DF, %d bytes", c, length), rig.XDPPass, nil, "pass_long")
			l.send(t, frame, 0)
			wantPieces(t, frame[14:], l.inside(t, c, 2))
		}
		l.counted(t, seen, "sent_in_fragments")
	}
}

// sendJoined sends a packet of segments of mss bytes, of which the link completes the checksum.
func (l live) sendJoined(t *testing.T, p rig.Packet, mss int) {
	t.Helper()
	frame := p.Frame()
	at := len(frame) - len(p.Payload) - wire.TCPBytes
	h := wire.IP{Source: p.Src.Addr(), Destination: p.Dst.Addr()}
	binary.BigEndian.PutUint16(frame[at+16:], ^h.Checksum(wire.ProtoTCP, make([]byte, len(frame)-at)))
	l.send(t, frame, mss)
}

// wantJoined demands the payload of a packet in segments that fit, with right checksums.
func (l live) wantJoined(t *testing.T, c deliveryCase, p rig.Packet) {
	t.Helper()
	h := wire.IP{Source: p.Src.Addr(), Destination: p.Dst.Addr()}
	var joined []byte
	for len(joined) < len(p.Payload) {
		b := l.inside(t, c, 1)[0]
		tcp := b[len(p.Frame())-14-len(p.Payload)-wire.TCPBytes:]
		if seq := binary.BigEndian.Uint32(tcp[4:]); seq != p.Seq+uint32(len(joined)) || h.Checksum(wire.ProtoTCP, tcp) != 0 {
			t.Fatalf("%v: a segment has number %d and checksum %x", c, seq-p.Seq, tcp[16:18])
		}
		joined = append(joined, tcp[wire.TCPBytes:]...)
	}
	if string(joined) != string(p.Payload) {
		t.Errorf("%v: %d bytes arrived as %d others", c, len(p.Payload), len(joined))
	}
}

// inside returns the packets inside the next frames for servers.
func (l live) inside(t *testing.T, c deliveryCase, n int) (inner [][]byte) {
	t.Helper()
	for buffer := make([]byte, 1<<16); len(inner) < n; {
		got, err := unix.Read(l.fd, buffer)
		if err != nil {
			t.Fatalf("%v: packet %d of %d: %v", c, len(inner)+1, n, err)
		}
		b := slices.Clone(buffer[virtioBytes:got])
		if len(b) < 34 || b[0] != 2 || b[4] != 1 { // to no server
			continue
		}
		if len(b) > 14+rig.MTU {
			t.Fatalf("%v: a frame of %d bytes", c, len(b))
		}
		if buffer[0]&needsChecksum != 0 {
			start := binary.NativeEndian.Uint16(buffer[6:])
			at := start + binary.NativeEndian.Uint16(buffer[8:])
			binary.BigEndian.PutUint16(b[at:], wire.Checksum(b[start:]))
		}
		if ip, v4 := b[14:], b[12] == 8; c.by.Tunnel() {
			outer, length := 40, int(binary.BigEndian.Uint16(ip[4:]))
			if v4 {
				outer, length = 20, int(binary.BigEndian.Uint16(ip[2:]))-20
			}
			udp := ip[outer:]
			if length != len(udp) || int(binary.BigEndian.Uint16(udp[4:])) != len(udp) || v4 && wire.Checksum(ip[:20]) != 0 {
				t.Fatalf("%v: headers %x of %d bytes", c, ip[:outer+16], len(ip))
			}
			if string(udp[8:16]) != "\x08\x00\x00\x00\x12\x34\x56\x00" || topo.MAC(udp[16:22]) != deviceMAC {
				t.Fatalf("%v: VXLAN %x", c, udp[8:30])
			}
			inner = append(inner, udp[30:])
			continue
		}
		inner = append(inner, b[14+c.header:])
	}
	return inner
}
