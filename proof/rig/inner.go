package rig

import (
	"net/netip"

	"proffer/policy"
	"proffer/topo"
	"proffer/wire"
)

// Inner is a packet of either family and any protocol, as it travels in segments.
type Inner struct {
	Flow  policy.Flow // as the client sends it
	Class byte
	Ip    []byte
}

// InnerTCP is p, whatever it is of.
func InnerTCP(p Packet) Inner {
	p.Protocol = topo.TCP
	return Inner{Flow: p.Flow(), Class: p.Class, Ip: p.Ip()}
}

// InnerUDP is a datagram of p's addresses and payload.
func InnerUDP(p Packet) Inner {
	p.Protocol = topo.UDP
	return Inner{Flow: p.Flow(), Class: p.Class, Ip: p.Ip()}
}

// InnerTooBig reports that a packet of the flow was too big for a link on its way to
// the client.
func InnerTooBig(in Inner, p Packet) Inner {
	back := p
	back.Src, back.Dst = p.Dst, p.Src
	quoted := InnerTCP(back).Ip
	if in.Flow.Protocol == topo.UDP {
		quoted = InnerUDP(back).Ip
	}
	p.Class = 0
	return Inner{Flow: in.Flow, Ip: p.header().TooBig(1400, quoted)}
}

// Frame is the packet by itself.
func (in Inner) Frame(to, from topo.MAC) []byte { return wire.Frame(to, from, in.Ip) }

// Route is a way for the packet from an address.
func (in Inner) Route(from netip.Addr, class, hop byte, segments ...netip.Addr) wire.Route {
	return wire.Route{From: from, Segments: segments, Class: class, Label: wire.FlowLabel(in.Flow), HopLimit: hop}
}

// OverIPv4 gives a packet of the test's client the addresses of IPv4.
func OverIPv4(p Packet) Packet {
	for _, a := range []*netip.AddrPort{&p.Src, &p.Dst} {
		switch a.Addr() {
		case ClientAddr:
			*a = netip.AddrPortFrom(Client4, a.Port())
		case VipAddr:
			*a = netip.AddrPortFrom(Vip4, a.Port())
		}
	}
	return p
}

var (
	Client4 = netip.MustParseAddr("192.0.2.7")
	Vip4    = netip.MustParseAddr("203.0.113.1")
)
