package rig

import (
	"net/netip"

	"proffer/topo"
	"proffer/wire"
)

// Ask makes a segment for each of the servers.
func Ask(function wire.Function, generation uint16, servers ...int) (segments []netip.Addr) {
	for _, s := range servers {
		segments = append(segments, SID(ServerLocator(s), function, generation))
	}
	return segments
}

// Offer asks all but the last whether they would take p, with these flags.
func Offer(p Packet, flags wire.Flags, servers ...int) (segments []netip.Addr) {
	segments = Ask(wire.ConnectAvail, wire.Generation(p.Seq), servers...)
	last := len(segments) - 1
	segments[last] = SID(ServerLocator(servers[last]), wire.ConnectForce, wire.Generation(p.Seq))
	for i := range segments {
		segments[i] = WithFlags(segments[i], flags)
	}
	return segments
}

// Sent is the frame that must leave for a client's packet: along the segments, by the
// neighbour hop towards the first segment.
func Sent(p Packet, hop topo.MAC, segments []netip.Addr, change ...func(*Route)) []byte {
	r := Route{From: LbLocator, Segments: segments, Hop: 64}
	for _, c := range change {
		c(&r)
	}
	p.Hop--
	return wire.Frame(hop, HereMAC, r.Around(p))
}

func Insert(r *Route) { r.Insert = true }

// SignedBy makes a route carry the tag of a key.
func SignedBy(key topo.Key) func(*Route) { return func(r *Route) { r.Key = &key } }

// Offered is the frame that must leave for a SYN: p offered to the servers, in order.
func Offered(p Packet, servers []int) []byte {
	return Sent(p, HopMAC(servers[0]), Offer(p, 0, servers...))
}

// Recovered is the frame that must leave for a packet of an unknown flow.
func Recovered(p Packet, servers []int) []byte {
	return Sent(p, HopMAC(servers[0]), Ask(wire.RecoverStickiness, 0, servers...))
}

// ToOne is the frame that must leave for one server only.
func ToOne(p Packet, server int, function wire.Function, generation uint16) []byte {
	return Sent(p, HopMAC(server), Ask(function, generation, server))
}

// SignalFrom is server i's signal to the LB around its answer p, or around a
// client's packet that the server gives back.
func SignalFrom(i int, p Packet, function wire.Function, generation uint16, change ...func(*Route)) []byte {
	return SignalTo(i, p, SID(LbLocator, function, generation), change...)
}

func SignalTo(i int, p Packet, to netip.Addr, change ...func(*Route)) []byte {
	function := wire.ParseSID(to).Function
	r := Route{From: ServerLocator(i), Segments: []netip.Addr{to}, Hop: 63, back: function == wire.CreateStickiness || function == wire.RemoveStickiness}
	for _, c := range change {
		c(&r)
	}
	return wire.Frame(HereMAC, HopMAC(i), r.Around(p))
}

// Unwrapped is the frame that must leave for the client.
func Unwrapped(p Packet) []byte {
	p.Hop--
	p.To, p.From = RouterMAC, HereMAC
	return p.Frame()
}
