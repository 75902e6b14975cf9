package rig

import (
	"encoding/binary"
	"net/netip"
	"slices"
)

// Altered returns a copy of frame with one byte changed.
func Altered(frame []byte, at int, to byte) []byte {
	frame = slices.Clone(frame)
	frame[at] = to
	return frame
}

// AboutOurs is a router's word that a frame of ours was too big for a link.
func AboutOurs(frame []byte, mtu, quote int) []byte {
	router := netip.MustParseAddr("fd00:0:0:7::1")
	quoted := frame[14:]
	icmp := binary.BigEndian.AppendUint32([]byte{2, 0, 0, 0}, uint32(mtu))
	icmp = append(icmp, quoted[:min(len(quoted), quote)]...)
	to := netip.AddrFrom16([16]byte(quoted[8:24]))
	binary.BigEndian.PutUint16(icmp[2:], Checksum(router, to, 58, icmp))
	return Ethernet(HereMAC, TransitMAC, append(ipv6(router, to, 0, 0, 60, 58, len(icmp)), icmp...))
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
	icmp := append([]byte{kind, 0, 0, 0, 0x12, 0x34, 0, 1}, payload...)
	next := byte(1)
	if p.Src.Addr().Is6() {
		next = 58
		binary.BigEndian.PutUint16(icmp[2:], Checksum(p.Src.Addr(), p.Dst.Addr(), 58, icmp))
	} else {
		binary.BigEndian.PutUint16(icmp[2:], ^Sum(icmp))
	}
	return Ethernet(p.To, p.From, p.Around(next, icmp))
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
	AtDst       = 38
	AtUpper     = 54
)

// dropped stands for no packet.
const Dropped = 0xff

type ecn struct{ Inner, Outer, Want byte }

// congestion is RFC 6040, figure 4: what becomes of the inner ECN field.
var Congestion = []ecn{
	{0, 0, 0}, {0, 2, 0}, {0, 1, 0}, {0, 3, Dropped}, // Not-ECT
	{2, 0, 2}, {2, 2, 2}, {2, 1, 1}, {2, 3, 3}, // ECT(0)
	{1, 0, 1}, {1, 2, 1}, {1, 1, 1}, {1, 3, 3}, // ECT(1)
	{3, 0, 3}, {3, 2, 3}, {3, 1, 3}, {3, 3, 3}, // CE
}
