package experiment

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"proffer/policy"
	"proffer/topo"
)

const (
	benchSRH   = 8   // of a segment routing header, before its list
	benchBytes = 192 // of every frame; what the packet does not fill is the link's padding
	benchISN   = 7_000_000
	benchAway  = 9_000_000 // the server's ISN
)

// benchGeneration is that of every connection in a bench.
var benchGeneration = policy.Generation(benchISN)

// segment is a TCP segment of a bench, from the client or to it.
type segment struct {
	client, vip netip.Addr
	outward     bool
	flags       byte
	seq, ack    uint32
	options     []byte
	payload     int
}

// benchClient is where the clients' addresses begin.
func benchClient(family int) netip.Addr {
	if family == 4 {
		return netip.MustParseAddr("198.18.0.0")
	}
	return netip.MustParseAddr("2001:db8:c::")
}

const (
	benchPort      = 80     // of every service
	benchFirstPort = 0x4000 // of the clients; bench.bpf.c counts up from it
	benchPorts     = 0x4000
)

// benchFlow is the flow of a number, as bench.bpf.c writes it into a frame.
func benchFlow(number uint32, vip netip.Addr) policy.Flow {
	family := 6
	if vip.Is4() {
		family = 4
	}
	client := benchClient(family).AsSlice()
	binary.BigEndian.PutUint16(client[len(client)-2:], uint16(number/benchPorts))
	addr, _ := netip.AddrFromSlice(client)
	return policy.Flow{
		Client: netip.AddrPortFrom(addr, uint16(benchFirstPort|number%benchPorts)),
		VIP:    netip.AddrPortFrom(vip, benchPort),
	}
}

// ipBytes is the length of its IP header.
func (s segment) ipBytes() int {
	if s.vip.Is4() {
		return 20
	}
	return ipv6Bytes
}

// packet is the segment from its IP header on.
func (s segment) packet() []byte {
	from, to := netip.AddrPortFrom(s.client, benchFirstPort), netip.AddrPortFrom(s.vip, benchPort)
	if s.outward {
		from, to = to, from
	}
	tcp := make([]byte, 20, 20+len(s.options)+s.payload)
	binary.BigEndian.PutUint16(tcp[0:], from.Port())
	binary.BigEndian.PutUint16(tcp[2:], to.Port())
	binary.BigEndian.PutUint32(tcp[4:], s.seq)
	binary.BigEndian.PutUint32(tcp[8:], s.ack)
	tcp[12] = byte(20+len(s.options)) / 4 << 4
	tcp[13] = s.flags
	binary.BigEndian.PutUint16(tcp[14:], 65000)
	tcp = append(append(tcp, s.options...), make([]byte, s.payload)...)
	if s.vip.Is4() {
		return append(ip4Header(from.Addr(), to.Addr(), len(tcp)), tcp...)
	}
	return append(ip6Header(from.Addr(), to.Addr(), 6, len(tcp)), tcp...)
}

// atClient is where in the packet the last 16 bits of the client's address and
// its port are.
func (s segment) atClient() (address, port int) {
	size, at := 16, 8
	if s.vip.Is4() {
		size, at = 4, 12
	}
	if s.outward {
		return at + 2*size - 2, s.ipBytes() + 2
	}
	return at + size - 2, s.ipBytes()
}

func ip6Header(from, to netip.Addr, next byte, payload int) []byte {
	b := make([]byte, 8, ipv6Bytes)
	b[0], b[6], b[7] = 0x60, next, 64
	binary.BigEndian.PutUint16(b[4:], uint16(payload))
	return append(append(b, from.AsSlice()...), to.AsSlice()...)
}

// ip4Header leaves the checksum out: the programs only ever update it.
func ip4Header(from, to netip.Addr, payload int) []byte {
	b := make([]byte, 12, 20)
	b[0], b[8], b[9] = 0x45, 64, 6
	binary.BigEndian.PutUint16(b[2:], uint16(20+payload))
	return append(append(b, from.AsSlice()...), to.AsSlice()...)
}

// benchSID is an address of the layout of docs/wire.md.
func benchSID(locator netip.Prefix, function byte, generation uint16, key uint8) netip.Addr {
	a := locator.Addr().As16()
	a[9], a[13] = function, key
	binary.BigEndian.PutUint16(a[10:], generation)
	return netip.AddrFrom16(a)
}

// ownAddress is a node's own, untagged.
func ownAddress(locator netip.Prefix) netip.Addr {
	a := locator.Addr().As16()
	a[15] = 1
	return netip.AddrFrom16(a)
}

// outerOf puts a packet behind an outer header and, for more than one segment, a
// reduced SRH (RFC 8986 §5.2).
func outerOf(from netip.Addr, packet []byte, segments ...netip.Addr) []byte {
	next, header := byte(41), []byte(nil)
	if packet[0]>>4 == 4 {
		next = 4
	}
	if n := len(segments); n > 1 {
		header = srhOf(next, n-1, segments[1:])
		next = 43
	}
	return slices.Concat(ip6Header(from, segments[0], next, len(header)+len(packet)), header, packet)
}

// insertedInto puts sender and segments into the packet itself (6LB §II).
func insertedInto(from netip.Addr, packet []byte, segments ...netip.Addr) []byte {
	to := netip.AddrFrom16([16]byte(packet[24:40]))
	list := append(append([]netip.Addr{from}, segments...), to)
	header := srhOf(packet[6], len(segments), list)
	b := slices.Concat(packet[:ipv6Bytes], header, packet[ipv6Bytes:])
	b[6] = 43
	copy(b[24:40], segments[0].AsSlice())
	binary.BigEndian.PutUint16(b[4:], uint16(len(b)-ipv6Bytes))
	return b
}

// srhOf is a segment routing header (RFC 8754 §2); the list first to last.
func srhOf(next byte, left int, list []netip.Addr) []byte {
	b := []byte{next, byte(2 * len(list)), 4, byte(left), byte(len(list) - 1), 0, 0, 0}
	for _, a := range slices.Backward(list) {
		b = append(b, a.AsSlice()...)
	}
	return b
}

// framed is a packet in Ethernet, padded.
func framed(to topo.MAC, packet []byte) []byte {
	b := append(to[:], 2, 0, 0, 0, 0, 0xfe, 0x86, 0xdd)
	if packet[0]>>4 == 4 {
		b[12], b[13] = 0x08, 0x00
	}
	b = append(b, packet...)
	return append(b, make([]byte, max(benchBytes-len(b), 0))...)
}
