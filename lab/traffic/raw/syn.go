package raw

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"

	"proffer/wire"
)

// synMaker makes SYNs of clients that do not exist: random addresses in a prefix,
// random ports above 1023, random initial sequence numbers. All else is as a
// real client's, so that nothing but an answer could tell them apart.
type synMaker struct {
	frame   []byte
	ip      []byte // the IP header, in frame
	source  []byte // in ip
	ends    []byte // source and destination address, in ip
	tcp     []byte // the TCP header, in frame
	rest    []byte // of the pseudo-header: length and protocol
	clients netip.Prefix
	rng     *rand.Rand
}

func NewSYNMaker(ethernet []byte, to netip.AddrPort, clients netip.Prefix, rng *rand.Rand) (*synMaker, error) {
	if !clients.IsValid() || clients.Addr().Is4() != to.Addr().Is4() {
		return nil, fmt.Errorf("clients %s are not of the family of %s", clients, to)
	}
	m := &synMaker{clients: clients.Masked(), rng: rng}
	mss := []byte{2, 4, (1500 - 60) >> 8, (1500 - 60) & 0xff} // as of a 1500-byte link
	packet := wire.IP{Source: m.clients.Addr(), Destination: to.Addr(), HopLimit: wire.DefaultHopLimit}.TCP(
		wire.TCP{To: to.Port(), Flags: wire.SYN, Window: 64_240, Options: mss}, nil)
	m.frame = append(append(m.frame, ethernet...), packet...)
	packet = m.frame[len(ethernet):]
	header, ends, size := wire.IPv6Bytes, 8, 16
	if to.Addr().Is4() {
		header, ends, size = wire.IPv4Bytes, 12, 4
	}
	m.ip, m.tcp = packet[:header], packet[header:]
	m.ends, m.source = m.ip[ends:][:2*size], m.ip[ends:][:size]
	// Length and protocol are the same in both pseudo-headers, wherever they stand
	// (RFC 9293 §3.1, RFC 8200 §8.1).
	m.rest = []byte{0, uint8(len(m.tcp)), 0, wire.ProtoTCP}
	return m, nil
}

// Next returns a new SYN in the buffer of the last.
func (m *synMaker) Next(int) []byte {
	m.spoof()
	binary.BigEndian.PutUint16(m.tcp, uint16(1024+m.rng.IntN(1<<16-1024)))
	binary.BigEndian.PutUint32(m.tcp[4:], m.rng.Uint32())
	if len(m.source) == 4 {
		binary.BigEndian.PutUint16(m.ip[10:], 0)
		binary.BigEndian.PutUint16(m.ip[10:], wire.Checksum(m.ip))
	}
	binary.BigEndian.PutUint16(m.tcp[16:], 0)
	binary.BigEndian.PutUint16(m.tcp[16:], wire.Checksum(m.ends, m.rest, m.tcp))
	return m.frame
}

// spoof writes a random address of the prefix.
func (m *synMaker) spoof() {
	var random [16]byte
	binary.NativeEndian.PutUint64(random[:], m.rng.Uint64())
	binary.NativeEndian.PutUint64(random[8:], m.rng.Uint64())
	base := m.clients.Addr().As16()
	own := base[len(base)-len(m.source):]
	for i := range m.source {
		host := byte(0xff >> min(8, max(0, m.clients.Bits()-8*i)))
		m.source[i] = own[i] | random[i]&host
	}
}
