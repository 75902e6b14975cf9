package bench

import (
	"encoding/binary"
	"net/netip"

	"proffer/policy"
	"proffer/topo"
	"proffer/wire"
)

const (
	benchBytes = 192 // of every frame; the rest after the packet is the link's padding
	isn        = 7_000_000
	away       = 9_000_000 // the server's ISN
)

// generation is that of every connection in a bench.
var generation = wire.Generation(isn)

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
	port      = 80     // of every service
	firstPort = 0x4000 // of the clients; bench.bpf.c counts up from it
	ports     = 0x4000
)

// flow is the flow of a number, as bench.bpf.c writes it into a frame.
func flow(number uint32, vip netip.Addr) policy.Flow {
	family := 6
	if vip.Is4() {
		family = 4
	}
	client := benchClient(family).AsSlice()
	binary.BigEndian.PutUint16(client[len(client)-2:], uint16(number/ports))
	addr, _ := netip.AddrFromSlice(client)
	return policy.Flow{
		Client: netip.AddrPortFrom(addr, uint16(firstPort|number%ports)),
		VIP:    netip.AddrPortFrom(vip, port),
	}
}

// ipBytes is the length of its IP header.
func (s segment) ipBytes() int {
	if s.vip.Is4() {
		return wire.IPv4Bytes
	}
	return wire.IPv6Bytes
}

// packet is the segment from its IP header on.
func (s segment) packet() []byte {
	h, tcp := wire.IP{Source: s.client, Destination: s.vip, HopLimit: wire.DefaultHopLimit}, wire.TCP{From: firstPort, To: port}
	if s.outward {
		h.Source, h.Destination = h.Destination, h.Source
		tcp.From, tcp.To = tcp.To, tcp.From
	}
	tcp.Seq, tcp.Ack, tcp.Flags, tcp.Options = s.seq, s.ack, s.flags, s.options
	return h.TCP(tcp, make([]byte, s.payload))
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

// sid is a SID about a bench's connections.
func sid(locator netip.Prefix, function wire.Function, key uint8) netip.Addr {
	return wire.SID{Locator: locator, Function: function, Generation: generation, KeyID: key}.Addr()
}

// framed is a packet in Ethernet, padded.
func framed(to topo.MAC, packet []byte) []byte {
	b := wire.Frame(to, topo.MAC{2, 0, 0, 0, 0, 0xfe}, packet)
	return append(b, make([]byte, max(benchBytes-len(b), 0))...)
}
