package storms

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"

	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/wire"
)

// forger makes frames of an attacker that has no key but knows everything else: all
// locators, all live flows, and the layout of SIDs (docs/design/wire.md).
//
//	ethernet | outer IPv6 | (SRH) | inner IPv6 | TCP | payload
//	ethernet | IPv6 | TCP                            floods
type forger struct {
	rng      *rand.Rand
	ethernet []byte
	vip      netip.AddrPort
	outside  netip.Addr // the forger's own
	lbs      []*testbed.Node
	servers  []*testbed.Node
	live     []netip.AddrPort // clients' ends of flows that there are
	frame    []byte
}

// signal is a frame that no node inside may believe.
func (f *forger) signal(int) []byte {
	f.frame = append(f.frame[:0], f.ethernet...)
	switch f.rng.IntN(8) {
	case 0, 1: // to a server, as if from an LB
		f.sr(f.tagged(pick(f, f.lbs)), f.sid(pick(f, f.servers), pick(f, signed(wire.LB, wire.Server))))
	case 2, 3: // to an LB, as if from a server
		f.answer(f.tagged(pick(f, f.servers)), f.sid(pick(f, f.lbs), pick(f, signed(wire.Server, wire.LB))))
	case 4: // to an LB, as if its own list came back
		lb := pick(f, f.lbs)
		f.answer(f.tagged(lb), f.sid(lb, pick(f, signed(wire.LB, wire.LB))))
	case 5: // whatever, from outside
		to := pick(f, append(f.lbs[:len(f.lbs):len(f.lbs)], f.servers...))
		f.sr(f.outside, f.sid(to, f.function()))
	case 6: // segments on a packet for the VIP: 6LB's own format, from the client
		f.segments(f.client().Addr(), f.vip.Addr())
	case 7: // cut off, somewhere behind the Ethernet header
		f.sr(f.tagged(pick(f, f.lbs)), f.sid(pick(f, f.servers), pick(f, signed(wire.LB, wire.Server))))
		f.cut()
	}
	return f.frame
}

// signed are the functions that carry a tag, of SIDs from one role to another.
func signed(from, to wire.Role) (functions []wire.Function) {
	for _, s := range wire.Signals() {
		if s.Signed && s.From == from && s.At == to {
			functions = append(functions, s.Function)
		}
	}
	return functions
}

// function is any, or none that there is.
func (f *forger) function() wire.Function {
	all := wire.Signals()
	if i := f.rng.IntN(len(all) + 1); i < len(all) {
		return all[i].Function
	}
	return wire.Function(1 + f.rng.IntN(0xffff))
}

// cut ends the frame early. Mostly its IPv6 header agrees: a router drops a packet
// shorter than its length field (RFC 8200 §3).
func (f *forger) cut() {
	f.frame = f.frame[:wire.EthernetBytes+f.rng.IntN(len(f.frame)-wire.EthernetBytes)]
	if rest := len(f.frame) - wire.EthernetBytes - wire.IPv6Bytes; rest >= 0 && f.rng.IntN(8) > 0 {
		binary.BigEndian.PutUint16(f.frame[wire.EthernetBytes+4:], uint16(rest))
	}
}

// flood is a RST or a FIN, of a live client or of one that does not exist.
func (f *forger) flood(int) []byte {
	f.frame = append(f.frame[:0], f.ethernet...)
	flags := pick(f, []byte{wire.RST, wire.RST | wire.ACK, wire.FIN | wire.ACK, wire.FIN, wire.FIN | wire.PSH | wire.ACK})
	f.frame = append(f.frame, f.segment(f.client(), f.vip, flags, 0)...)
	return f.frame
}

func pick[T any](f *forger, of []T) T { return of[f.rng.IntN(len(of))] }

// client is the end of a live flow, or of none.
func (f *forger) client() netip.AddrPort {
	if f.rng.IntN(2) == 0 {
		return pick(f, f.live)
	}
	a := testbed.ClientNet().Addr().As16()
	binary.BigEndian.PutUint64(a[8:], f.rng.Uint64()|1<<63) // no address that the bed gave
	return netip.AddrPortFrom(netip.AddrFrom16(a), uint16(farmrun.FirstPort+f.rng.IntN(farmrun.Ports)))
}

// tagged is a node's address with a tag that an attacker without the key can give:
// none, or a random one.
func (f *forger) tagged(n *testbed.Node) netip.Addr {
	tag := f.rng.Uint64()
	if f.rng.IntN(4) == 0 {
		return wire.Own(n.Locator)
	}
	return wire.Tagged(n.Locator, [8]byte(binary.BigEndian.AppendUint64(nil, tag)))
}

// sid is a node's with a function, and an argument that is right or random: key 1
// is the farm's.
func (f *forger) sid(n *testbed.Node, function wire.Function) netip.Addr {
	return wire.SID{
		Locator: n.Locator, Function: function, Generation: uint16(f.rng.Uint32()), Flags: wire.Flags(f.rng.IntN(4)),
		KeyID: pick(f, []byte{0, 1, 1, 1, byte(f.rng.IntN(256))}), Report: uint16(f.rng.IntN(4)),
	}.Addr()
}

// sr is a packet with a SID for its destination, and mostly with more segments.
func (f *forger) sr(from, to netip.Addr) {
	if f.rng.IntN(4) == 0 {
		f.put(from, to, wire.ProtoIPv6, f.inner())
		return
	}
	f.segments(from, to)
}

// answer is a packet with a SID for its destination, and mostly no more segments:
// an LB's is the last.
func (f *forger) answer(from, to netip.Addr) {
	if f.rng.IntN(4) == 0 {
		f.segments(from, to)
		return
	}
	f.put(from, to, wire.ProtoIPv6, f.inner())
}

// segments is a packet with an SRH. Its lengths and pointers are right in three of
// four.
func (f *forger) segments(from, to netip.Addr) {
	var list []netip.Addr
	for range 1 + f.rng.IntN(4) {
		function := pick(f, []wire.Function{wire.ConnectAvail, wire.ConnectForce, wire.RecoverStickiness, wire.AckStickiness})
		list = append(list, f.sid(pick(f, f.servers), function))
	}
	header := wire.SRH(wire.ProtoIPv6, len(list), list...)
	if f.rng.IntN(4) == 0 {
		header[pick(f, []int{0, 1, 2, 3, 4})] = byte(f.rng.IntN(256))
	}
	f.put(from, to, wire.ProtoRouting, append(header, f.inner()...))
}

// inner is a packet as of a client, or as a server's answer.
func (f *forger) inner() []byte {
	from, to := f.client(), f.vip
	if f.rng.IntN(2) == 0 {
		from, to = f.vip, f.client()
	}
	flags := pick(f, []byte{wire.SYN, wire.SYN | wire.ACK, wire.ACK, wire.ACK | wire.PSH, wire.RST, wire.FIN | wire.ACK})
	return f.segment(from, to, flags, f.rng.IntN(64))
}

// segment is a TCP segment with a valid checksum and random numbers.
func (f *forger) segment(from, to netip.AddrPort, flags byte, payload int) []byte {
	t := wire.TCP{From: from.Port(), To: to.Port(), Seq: f.rng.Uint32(), Ack: f.rng.Uint32(), Flags: flags}
	return wire.IP{Source: from.Addr(), Destination: to.Addr(), HopLimit: wire.DefaultHopLimit}.TCP(t, make([]byte, payload))
}

// put adds an IPv6 packet to the frame.
func (f *forger) put(from, to netip.Addr, next byte, payload []byte) {
	f.frame = append(f.frame, wire.IP{Source: from, Destination: to, HopLimit: wire.DefaultHopLimit}.Around(next, payload)...)
}
