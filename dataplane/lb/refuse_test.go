package lb_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// answered is the frame with a packet of the VIP's to the sender of p, by the router that p came
// from; build gets the header.
func answered(p rig.Packet, build func(h wire.IP) []byte) []byte {
	h := wire.IP{Source: p.Dst.Addr(), Destination: p.Src.Addr(), HopLimit: 64, Label: wire.FlowLabel(p.Flow())}
	packet := build(h)
	if p.Src.Addr().Is4() {
		rig.Unidentified(packet[:wire.IPv4Bytes])
	}
	return wire.Frame(p.From, p.To, packet)
}

// reset is the RST that refuses p (RFC 9293 §3.10.7.1).
func reset(p rig.Packet, flags byte, seq, ack uint32) []byte {
	frame := answered(p, func(h wire.IP) []byte {
		return h.TCP(wire.TCP{From: p.Dst.Port(), To: p.Src.Port(), Seq: seq, Ack: ack, Flags: flags}, nil)
	})
	clear(frame[len(frame)-6 : len(frame)-4]) // no window; to the checksum 0 is as 0xffff
	return frame
}

// unreachable is the port unreachable for datagram p, which quotes its headers.
func unreachable(p rig.Packet) []byte {
	return answered(p, func(h wire.IP) []byte {
		if p.Src.Addr().Is4() {
			return h.ICMP(3, 3, 0, p.Ip()[:28])
		}
		return h.ICMP(1, 4, 0, p.Ip()[:48])
	})
}

// testRefusePort: a packet for a VIP's port that no service has never reaches a kernel that
// might forward it: TCP gets a RST, UDP a port unreachable, and all else nothing.
func testRefusePort(t *testing.T, seen rig.Hits) {
	r := rig.NewLB(t, seen, rig.Hunting(2, 4), rig.Hunting(2, 4, rig.Over4))
	syn, datagram := rig.Inward(8080, wire.SYN), rig.Datagram(rig.HuntPort, "datagram")
	for _, p := range []rig.Packet{syn, rig.OverIPv4(syn)} {
		label := fmt.Sprint(p.Dst)
		r.Send(t, p.Frame()).Is(t, label+": SYN", rig.XDPTX, reset(p, wire.RST|wire.ACK, 0, p.Seq+1), "refuse_port")
		p.Payload = make([]byte, 100)
		r.Send(t, p.Frame()).Is(t, label+": SYN with data", rig.XDPTX, reset(p, wire.RST|wire.ACK, 0, p.Seq+101), "refuse_port")
		p.Flags, p.Ack = wire.ACK|wire.FIN, 77
		r.Send(t, p.Frame()).Is(t, label+": FIN", rig.XDPTX, reset(p, wire.RST, 77, 0), "refuse_port")
		p.Flags = wire.RST
		r.Send(t, p.Frame()).Is(t, label+": RST", rig.XDPDrop, nil, "drop_unserved")
		r.Send(t, p.Frame()[:len(p.Frame())-1]).Is(t, label+": cut short", rig.XDPDrop, nil, "drop_truncated")
	}
	long := datagram
	long.Payload = make([]byte, 1400)
	empty := datagram
	empty.Payload = nil
	for _, p := range []rig.Packet{datagram, long, empty, rig.OverIPv4(datagram), rig.OverIPv4(empty)} {
		r.Send(t, p.Frame()).Is(t, fmt.Sprintf("%v: %d bytes", p.Dst, len(p.Payload)), rig.XDPTX, unreachable(p), "refuse_port")
	}
	for _, from := range []string{"[ff02::1]:9", "[::1]:9", "[::]:9", "224.0.0.1:9", "127.0.0.1:9", "0.0.0.1:9"} {
		p := datagram
		p.Src = netip.MustParseAddrPort(from)
		if p.Src.Addr().Is4() {
			p.Dst = netip.AddrPortFrom(rig.Vip4, p.Dst.Port())
		}
		kind := byte(128)
		if p.Src.Addr().Is4() {
			kind = 8
		}
		r.Send(t, p.Frame()).Is(t, "from "+from, rig.XDPDrop, nil, "drop_unserved")
		r.Send(t, rig.Echo(p, kind, nil)).Is(t, "echo from "+from, rig.XDPDrop, nil, "drop_unserved")
	}
	solicitation := rig.Inward(0, 0)
	solicitation.Hop = 255
	probe := rig.Echo(solicitation, 135, make([]byte, 16))
	r.Send(t, probe).Is(t, "a neighbour's probe", rig.XDPPass, probe, "pass_not_service")
	solicitation.Hop = 254
	about := rig.TooBig(rig.Outward(8080, wire.ACK), 1400)
	const quotedSource = rig.AtUpper + 8 + 8
	stranger := rig.Altered(about.Frame(), quotedSource, 0x21)
	about.Dst = netip.MustParseAddrPort("[2001:db8:b::1]:0")
	r.Send(t, about.Frame()).Is(t, "too big, to the host", rig.XDPPass, about.Frame(), "pass_not_service")
	for label, frame := range map[string][]byte{
		"too big about a stranger's": stranger,
		"a probe from afar":          rig.Echo(solicitation, 135, make([]byte, 16)),
		"an echo reply":              rig.Echo(rig.Inward(0, 0), 129, nil),
		"no next header":             rig.Altered(syn.Frame(), rig.AtNext, 59),
		"too big about no service":   rig.TooBig(rig.Outward(8080, wire.ACK), 1400).Frame(),
	} {
		r.Send(t, frame).Is(t, label, rig.XDPDrop, nil, "drop_unserved")
	}
}

// testOtherHost: a frame that is not for our link address is not ours, whatever it carries.
func testOtherHost(t *testing.T, seen rig.Hits) {
	r := rig.NewLB(t, seen, rig.Hunting(2, 4))
	for _, to := range []topo.MAC{{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, {0x33, 0x33, 0, 0, 0, 1}, rig.RouterMAC} {
		for label, frame := range map[string][]byte{
			"SYN":             rig.Inward(rig.HuntPort, wire.SYN).Frame(),
			"unserved port":   rig.Inward(8080, wire.SYN).Frame(),
			"IPv4":            rig.OverIPv4(rig.Inward(rig.HuntPort, wire.SYN)).Frame(),
			"a server's word": rig.SignalFrom(1, rig.SynAck(rig.HuntPort), wire.CreateStickiness, 5),
		} {
			frame = slices.Clone(frame)
			copy(frame, to[:])
			r.Send(t, frame).Is(t, fmt.Sprint(label, " to ", to), rig.XDPPass, frame, "pass_other_host")
		}
	}
	for i := range rig.HereMAC {
		frame := rig.Altered(rig.Inward(rig.HuntPort, wire.SYN).Frame(), i, rig.HereMAC[i]^0x10)
		r.Send(t, frame).Is(t, fmt.Sprint("another byte ", i), rig.XDPPass, frame, "pass_other_host")
	}
}
