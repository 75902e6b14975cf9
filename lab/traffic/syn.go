package traffic

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"

	"golang.org/x/sys/unix"
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
	clients netip.Prefix
	rng     *rand.Rand
}

const (
	ipv4Header = 20
	ipv6Header = 40
	tcpHeader  = 24 // with one option, the MSS
)

func newSYNMaker(ethernet []byte, to netip.AddrPort, clients netip.Prefix, rng *rand.Rand) (*synMaker, error) {
	if !clients.IsValid() || clients.Addr().Is4() != to.Addr().Is4() {
		return nil, fmt.Errorf("clients %s are not of the family of %s", clients, to)
	}
	m := &synMaker{clients: clients.Masked(), rng: rng}
	header := ipv6Header
	if to.Addr().Is4() {
		header = ipv4Header
	}
	m.frame = append(append(m.frame, ethernet...), make([]byte, header+tcpHeader)...)
	m.ip = m.frame[len(ethernet):][:header]
	m.tcp = m.frame[len(ethernet)+header:]
	if to.Addr().Is4() {
		m.fillIPv4()
	} else {
		m.fillIPv6()
	}
	copy(m.ends[len(m.source):], to.Addr().AsSlice())
	m.fillTCP(to.Port())
	return m, nil
}

// fillIPv4 writes what all have in common (RFC 791 §3.1).
func (m *synMaker) fillIPv4() {
	m.ip[0] = 4<<4 | ipv4Header/4
	binary.BigEndian.PutUint16(m.ip[2:], ipv4Header+tcpHeader)
	m.ip[6] = 0x40 // don't fragment
	m.ip[8] = 64   // time to live
	m.ip[9] = unix.IPPROTO_TCP
	m.ends, m.source = m.ip[12:20], m.ip[12:16]
}

// fillIPv6 writes what all have in common (RFC 8200 §3).
func (m *synMaker) fillIPv6() {
	m.ip[0] = 6 << 4
	binary.BigEndian.PutUint16(m.ip[4:], tcpHeader)
	m.ip[6] = unix.IPPROTO_TCP
	m.ip[7] = 64 // hop limit
	m.ends, m.source = m.ip[8:40], m.ip[8:24]
}

// fillTCP writes what all have in common (RFC 9293 §3.1).
func (m *synMaker) fillTCP(port uint16) {
	binary.BigEndian.PutUint16(m.tcp[2:], port)
	m.tcp[12] = tcpHeader / 4 << 4
	m.tcp[13] = 1 << 1                              // SYN
	binary.BigEndian.PutUint16(m.tcp[14:], 64_240)  // window
	m.tcp[20], m.tcp[21] = 2, 4                     // MSS
	binary.BigEndian.PutUint16(m.tcp[22:], 1500-60) // as of a 1500-byte link
}

// next returns a new SYN in the buffer of the last.
func (m *synMaker) next(int) []byte {
	m.spoof()
	binary.BigEndian.PutUint16(m.tcp, uint16(1024+m.rng.IntN(1<<16-1024)))
	binary.BigEndian.PutUint32(m.tcp[4:], m.rng.Uint32())
	if len(m.source) == 4 {
		binary.BigEndian.PutUint16(m.ip[10:], 0)
		binary.BigEndian.PutUint16(m.ip[10:], checksum(0, m.ip))
	}
	// The pseudo-header's length and protocol, wherever they stand (RFC 9293
	// §3.1, RFC 8200 §8.1), sum up to the same.
	binary.BigEndian.PutUint16(m.tcp[16:], 0)
	binary.BigEndian.PutUint16(m.tcp[16:], checksum(tcpHeader+unix.IPPROTO_TCP, m.ends, m.tcp))
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

// checksum is that of RFC 1071 over parts of even length.
func checksum(sum uint32, parts ...[]byte) uint16 {
	for _, part := range parts {
		for i := 0; i < len(part); i += 2 {
			sum += uint32(part[i])<<8 | uint32(part[i+1])
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
