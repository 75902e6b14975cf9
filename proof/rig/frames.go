package rig

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"proffer/wire"
)

// Altered returns a copy of frame with one byte changed.
func Altered(frame []byte, at int, to byte) []byte {
	frame = slices.Clone(frame)
	frame[at] = to
	return frame
}

// AboutOurs is a router's word that a frame of ours was too big for a link.
func AboutOurs(frame []byte, mtu, quote int) []byte {
	quoted := frame[wire.EthernetBytes:]
	router := wire.IP{
		Source: netip.MustParseAddr("fd00:0:0:7::1"), Destination: netip.AddrFrom16([16]byte(quoted[8:24])), HopLimit: 60,
	}
	return wire.Frame(HereMAC, TransitMAC, router.TooBig(mtu, quoted[:min(len(quoted), quote)]))
}

// Sized is p with a payload that makes it so long.
func Sized(p Packet, length int) Packet {
	p.Payload = nil
	p.Payload = make([]byte, length-len(p.Ip()))
	for i := range p.Payload {
		p.Payload[i] = byte(i)
	}
	return p
}

// Echo is an ICMP echo message of this type between p's addresses.
func Echo(p Packet, kind byte, payload []byte) []byte {
	return wire.Frame(p.To, p.From, p.header().ICMP(kind, 0, 0x12340001, payload))
}

// MSS is the option of RFC 9293 §3.7.1.
func MSS(value int) []byte { return []byte{2, 4, byte(value >> 8), byte(value)} }

// Permute calls f with every order of n things.
func Permute(n int, f func(order []int)) {
	var place func(order []int)
	place = func(order []int) {
		if len(order) == n {
			f(order)
			return
		}
	next:
		for i := range n {
			for _, o := range order {
				if o == i {
					continue next
				}
			}
			place(append(order[:len(order):len(order)], i))
		}
	}
	place(nil)
}

// Offsets in a frame.
const (
	AtEtherType = 12
	AtVersion   = 14
	AtLength    = 18
	AtNext      = 20
	AtHop       = 21
	AtSrc       = 22
	AtDst       = 38
	AtUpper     = 54
)

// Dropped stands for no packet.
const Dropped = 0xff

type ecn struct{ Inner, Outer, Want byte }

// Congestion is RFC 6040, figure 4: the inner ECN field after decapsulation.
var Congestion = []ecn{
	{0, 0, 0}, {0, 2, 0}, {0, 1, 0}, {0, 3, Dropped}, // Not-ECT
	{2, 0, 2}, {2, 2, 2}, {2, 1, 1}, {2, 3, 3}, // ECT(0)
	{1, 0, 1}, {1, 2, 1}, {1, 1, 1}, {1, 3, 3}, // ECT(1)
	{3, 0, 3}, {3, 2, 3}, {3, 1, 3}, {3, 3, 3}, // CE
}

// NoWindow clears the window of a packet's segment, as a RST of the programs has it.
func NoWindow(ip []byte) {
	h, _, tcp, err := wire.ParseIP(ip)
	if err != nil {
		panic(err)
	}
	clear(tcp[14:18])
	binary.BigEndian.PutUint16(tcp[16:], h.Checksum(wire.ProtoTCP, tcp))
}

// Unidentified removes the identification of an IPv4 header; its packet may be
// fragmented.
func Unidentified(header []byte) {
	clear(header[4:8])
	Resum(header)
}

// Divisible is p in IPv4 without DF, of so many bytes.
func Divisible(p Packet, length int) []byte {
	frame := Sized(OverIPv4(p), length).Frame()
	header := frame[wire.EthernetBytes : wire.EthernetBytes+wire.IPv4Bytes]
	header[6] = 0
	Resum(header)
	return frame
}

// Resum writes the checksum of an IPv4 header.
func Resum(header []byte) {
	clear(header[10:12])
	binary.BigEndian.PutUint16(header[10:], wire.Checksum(header[:wire.IPv4Bytes]))
}
