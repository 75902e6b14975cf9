package rig

import (
	"encoding/binary"
	"net/netip"

	"proffer/policy"
	"proffer/topo"
	"proffer/wire"
)

// Packet is a TCP segment in IPv6 in Ethernet, as a test writes it down; or a
// datagram, or an ICMP error about another packet; or all that in IPv4.
type Packet struct {
	To, From topo.MAC
	Class    byte
	Hop      byte
	Protocol topo.Protocol
	Src, Dst netip.AddrPort
	Seq, Ack uint32
	Flags    byte
	Options  []byte // a multiple of 4
	Payload  []byte

	about   *Packet // "packet too big": the packet that was, and for which link
	linkMTU int
}

const ClientISN = 7_000_000

// Inward is a packet of the test's client for a port of the VIP.
func Inward(port uint16, flags byte) Packet {
	return Packet{
		To: HereMAC, From: RouterMAC, Hop: 60, Flags: flags, Seq: ClientISN,
		Src: netip.AddrPortFrom(ClientAddr, ClientPort),
		Dst: netip.AddrPortFrom(VipAddr, port),
	}
}

// ClientNumber is a client of many.
func ClientNumber(i int) netip.Addr {
	a := ClientAddr.As16()
	binary.BigEndian.PutUint32(a[4:], uint32(i))
	return netip.AddrFrom16(a)
}

// Outward is the answer's direction.
func Outward(port uint16, flags byte) Packet {
	p := Inward(port, flags)
	p.Src, p.Dst = p.Dst, p.Src
	return p
}

// Datagram is UDP's inward.
func Datagram(port uint16, payload string) Packet {
	p := Inward(port, 0)
	p.Protocol, p.Payload = topo.UDP, []byte(payload)
	return p
}

// Reply is a packet of the other direction.
func (p Packet) Reply(flags byte) Packet {
	p.Src, p.Dst, p.Flags = p.Dst, p.Src, flags
	return p
}

// TooBig is a router's error to the sender of p, an answer to the client.
func TooBig(p Packet, mtu int) Packet {
	router := netip.MustParseAddr("2001:db8:c::ff")
	if p.Src.Addr().Is4() {
		router = netip.MustParseAddr("192.0.2.254")
	}
	return Packet{
		To: HereMAC, From: RouterMAC, Hop: 60, Protocol: p.Protocol,
		Src: netip.AddrPortFrom(router, 0), Dst: p.Src, about: &p, linkMTU: mtu,
	}
}

func (p Packet) Flow() policy.Flow {
	if p.about != nil {
		return p.about.Reversed()
	}
	return policy.Flow{Client: p.Src, VIP: p.Dst, Protocol: p.Protocol}
}

func (p Packet) Reversed() policy.Flow {
	return policy.Flow{Client: p.Dst, VIP: p.Src, Protocol: p.Protocol}
}

// Ip returns the packet from its IP header on.
func (p Packet) Ip() []byte {
	switch {
	case p.about != nil:
		return p.header().TooBig(p.linkMTU, p.about.Ip())
	case p.Protocol == topo.UDP:
		return p.header().UDP(p.Src.Port(), p.Dst.Port(), p.Payload)
	}
	return p.header().TCP(wire.TCP{
		From: p.Src.Port(), To: p.Dst.Port(), Seq: p.Seq, Ack: p.Ack, Flags: p.Flags, Window: 65000, Options: p.Options,
	}, p.Payload)
}

// header has a label and an identification, so that a change of either is seen.
func (p Packet) header() wire.IP {
	return wire.IP{
		Source: p.Src.Addr(), Destination: p.Dst.Addr(), Class: p.Class, HopLimit: p.Hop, Label: 0x12345, ID: 0xbeef,
	}
}

// Around puts the IP header in front.
func (p Packet) Around(next byte, b []byte) []byte { return p.header().Around(next, b) }

func (p Packet) Frame() []byte { return wire.Frame(p.To, p.From, p.Ip()) }

// SID is a node's of a function, about a connection.
func SID(locator netip.Prefix, function wire.Function, generation uint16) netip.Addr {
	return wire.SID{Locator: locator, Function: function, Generation: generation}.Addr()
}

// With changes a SID.
func With(sid netip.Addr, change func(*wire.SID)) netip.Addr {
	s := wire.ParseSID(sid)
	change(&s)
	return s.Addr()
}

// WithReport fills the last bits of a SID.
func WithReport(sid netip.Addr, report uint16) netip.Addr {
	return With(sid, func(s *wire.SID) { s.Report = report })
}

// WithKey names a key in a SID.
func WithKey(sid netip.Addr, id uint8) netip.Addr {
	return With(sid, func(s *wire.SID) { s.KeyID = id })
}

// WithFlags adds flags to those of a SID.
func WithFlags(sid netip.Addr, flags wire.Flags) netip.Addr {
	return With(sid, func(s *wire.SID) { s.Flags |= flags })
}

// Route is how a packet carries segments.
type Route struct {
	From     netip.Prefix
	Segments []netip.Addr // first to last
	Insert   bool         // into the packet itself
	Hop      byte         // of the outer header
	Key      *topo.Key    // signs
	back     bool         // around an answer: its flow is the other way round
}

func (r Route) flowOf(p Packet) policy.Flow {
	if r.back {
		return p.Reversed()
	}
	return p.Flow()
}

// Around is p on its route, from the first IPv6 header on.
func (r Route) Around(p Packet) []byte {
	by, packet, flow := topo.Encap, p.Ip(), r.flowOf(p)
	if r.Insert {
		by = topo.Insert
	}
	route := wire.Route{
		From: wire.Untagged(r.From, flow), Segments: r.Segments, Class: p.Class, Label: wire.FlowLabel(flow), HopLimit: r.Hop,
	}
	if r.Key != nil {
		route = route.Signed(*r.Key, flow, r.From, by, packet)
	}
	return route.Put(by, packet)
}
