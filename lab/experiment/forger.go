package experiment

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"

	"golang.org/x/sys/unix"

	"proffer/lab/testbed"
)

// forger makes frames of somebody who has no key but knows everything else: all
// locators, all live flows, and the layout of SIDs (docs/wire.md).
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

// Functions of SIDs (docs/wire.md).
const (
	fnAvail, fnForce, fnRecover, fnReject = 0xca, 0xcf, 0xe5, 0x4e
	fnCreate, fnRemove, fnNotMine         = 0xc5, 0xf5, 0x40
	fnSteered, fnDeliver                  = 0xa5, 0xd7
)

const (
	tcpSYN, tcpFIN, tcpRST, tcpACK, tcpPSH = 2, 1, 4, 16, 8

	ethernetBytes, ipv6Bytes, tcpBytes, segmentBytes = 14, 40, 20, 16
)

// signal is a frame that nobody inside may believe.
func (f *forger) signal(int) []byte {
	f.frame = append(f.frame[:0], f.ethernet...)
	switch f.rng.IntN(8) {
	case 0, 1: // to a server, as if from an LB
		f.sr(f.tagged(pick(f, f.lbs)), f.sid(pick(f, f.servers), pick(f, []uint16{fnAvail, fnForce, fnRecover, fnReject})))
	case 2, 3: // to an LB, as if from a server
		f.answer(f.tagged(pick(f, f.servers)), f.sid(pick(f, f.lbs), pick(f, []uint16{fnCreate, fnRemove, fnNotMine})))
	case 4: // to an LB, as if its own list came back
		lb := pick(f, f.lbs)
		f.answer(f.tagged(lb), f.sid(lb, fnRecover))
	case 5: // whatever, from outside
		to := pick(f, append(f.lbs[:len(f.lbs):len(f.lbs)], f.servers...))
		f.sr(f.outside, f.sid(to, pick(f, []uint16{fnAvail, fnForce, fnRecover, fnReject, fnCreate, fnRemove, fnNotMine, fnSteered, fnDeliver, uint16(1 + f.rng.IntN(0xffff))})))
	case 6: // segments on a packet for the VIP: 6LB's own format, from the client
		f.segments(f.client().Addr(), f.vip.Addr())
	case 7: // cut off, somewhere behind the Ethernet header
		f.sr(f.tagged(pick(f, f.lbs)), f.sid(pick(f, f.servers), pick(f, []uint16{fnAvail, fnForce, fnRecover, fnReject})))
		f.cut()
	}
	return f.frame
}

// cut ends the frame early. Mostly its IPv6 header agrees: a router drops what is
// shorter than it says (RFC 8200 §3).
func (f *forger) cut() {
	f.frame = f.frame[:ethernetBytes+f.rng.IntN(len(f.frame)-ethernetBytes)]
	if rest := len(f.frame) - ethernetBytes - ipv6Bytes; rest >= 0 && f.rng.IntN(8) > 0 {
		binary.BigEndian.PutUint16(f.frame[ethernetBytes+4:], uint16(rest))
	}
}

// flood is a RST or a FIN, of a live client or of one that does not exist.
func (f *forger) flood(int) []byte {
	f.frame = append(f.frame[:0], f.ethernet...)
	f.tcp(f.client(), pick(f, []byte{tcpRST, tcpRST | tcpACK, tcpFIN | tcpACK, tcpFIN, tcpFIN | tcpPSH | tcpACK}), 0)
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
	return netip.AddrPortFrom(netip.AddrFrom16(a), uint16(firstPort+f.rng.IntN(ports)))
}

// tagged is a node's address with a tag that somebody without the key can give:
// none, or a random one.
func (f *forger) tagged(n *testbed.Node) netip.Addr {
	a := n.Locator.Addr().As16()
	tag := f.rng.Uint64()
	if f.rng.IntN(4) == 0 {
		tag = 1
	}
	binary.BigEndian.PutUint64(a[8:], tag)
	return netip.AddrFrom16(a)
}

// sid is a node's with a function, and an argument that is right or random: key 1
// is the farm's.
func (f *forger) sid(n *testbed.Node, function uint16) netip.Addr {
	a := n.Locator.Addr().As16()
	binary.BigEndian.PutUint16(a[8:], function)
	binary.BigEndian.PutUint16(a[10:], uint16(f.rng.Uint32()))
	a[12] = byte(f.rng.IntN(4))
	a[13] = pick(f, []byte{0, 1, 1, 1, byte(f.rng.IntN(256))})
	binary.BigEndian.PutUint16(a[14:], uint16(f.rng.IntN(4)))
	return netip.AddrFrom16(a)
}

// sr is a packet with a SID for its destination, and mostly with more segments.
func (f *forger) sr(from, to netip.Addr) {
	if f.rng.IntN(4) == 0 {
		f.outer(from, to, unix.IPPROTO_IPV6, f.inner)
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
	f.outer(from, to, unix.IPPROTO_IPV6, f.inner)
}

// segments is a packet with an SRH (RFC 8754 §2), whose lengths and pointers are
// right in three of four.
func (f *forger) segments(from, to netip.Addr) {
	f.outer(from, to, unix.IPPROTO_ROUTING, func() {
		n := 1 + f.rng.IntN(4)
		header := []byte{unix.IPPROTO_IPV6, byte(2 * n), 4, byte(n), byte(n - 1), 0, 0, 0}
		if f.rng.IntN(4) == 0 {
			header[pick(f, []int{0, 1, 2, 3, 4})] = byte(f.rng.IntN(256))
		}
		f.frame = append(f.frame, header...)
		for range n {
			segment := f.sid(pick(f, f.servers), pick(f, []uint16{fnAvail, fnForce, fnRecover, fnSteered})).As16()
			f.frame = append(f.frame, segment[:]...)
		}
		f.inner()
	})
}

// inner is what a client might have sent, or a server answered.
func (f *forger) inner() {
	flags := pick(f, []byte{tcpSYN, tcpSYN | tcpACK, tcpACK, tcpACK | tcpPSH, tcpRST, tcpFIN | tcpACK})
	if f.rng.IntN(2) == 0 {
		f.tcp(f.client(), flags, f.rng.IntN(64))
		return
	}
	f.segment(f.vip, f.client(), flags, f.rng.IntN(64))
}

func (f *forger) tcp(from netip.AddrPort, flags byte, payload int) {
	f.segment(from, f.vip, flags, payload)
}

// segment is a TCP segment with a valid checksum and random numbers.
func (f *forger) segment(from, to netip.AddrPort, flags byte, payload int) {
	f.outer(from.Addr(), to.Addr(), unix.IPPROTO_TCP, func() {
		at := len(f.frame)
		f.frame = binary.BigEndian.AppendUint16(f.frame, from.Port())
		f.frame = binary.BigEndian.AppendUint16(f.frame, to.Port())
		f.frame = binary.BigEndian.AppendUint64(f.frame, f.rng.Uint64()) // sequence and acknowledgement
		f.frame = append(f.frame, tcpBytes/4<<4, flags, 0xff, 0xff, 0, 0, 0, 0)
		f.frame = append(f.frame, make([]byte, payload)...)
		addresses := f.frame[at-2*segmentBytes : at]
		sum := checksum(uint32(len(f.frame)-at+unix.IPPROTO_TCP), addresses, f.frame[at:])
		binary.BigEndian.PutUint16(f.frame[at+16:], sum)
	})
}

// outer writes an IPv6 header (RFC 8200 §3) around what inside adds.
func (f *forger) outer(from, to netip.Addr, next byte, inside func()) {
	at := len(f.frame)
	source, target := from.As16(), to.As16()
	f.frame = append(f.frame, 6<<4, 0, 0, 0, 0, 0, next, 64)
	f.frame = append(append(f.frame, source[:]...), target[:]...)
	inside()
	binary.BigEndian.PutUint16(f.frame[at+4:], uint16(len(f.frame)-at-ipv6Bytes))
}

// checksum is that of RFC 1071; only the last part may be of odd length.
func checksum(sum uint32, parts ...[]byte) uint16 {
	for _, part := range parts {
		for i, b := range part {
			sum += uint32(b) << (8 * (1 - i%2))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
