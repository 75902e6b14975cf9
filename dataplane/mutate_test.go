package dataplane

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"proffer/policy"
)

// lbSeeds has a frame of every shape that the LB meets.
func lbSeeds() (seeds [][]byte) {
	for _, port := range []uint16{huntPort, 81, 90, 8080} {
		for _, flags := range []byte{syn, ack, fin | ack, rst, syn | ack} {
			p := inward(port, flags)
			p.options, p.payload = []byte{2, 4, 5, 0xa0, 1, 1, 1, 0}, []byte("payload")
			seeds = append(seeds, p.frame())
		}
	}
	for _, function := range []byte{create, remove, 0xca} {
		for server := range 2 {
			p := outward(huntPort, syn|ack)
			frame := signalFrom(server, p, function, policy.Generation(clientISN))
			to := sid(lbLocator, function, 1)
			seeds = append(seeds, frame, withSRH(frame, srh(41, 0, 1, to, clientAddr)))
		}
	}
	p := inward(huntPort, syn)
	p.payload = make([]byte, mtu-64-60) // as large as fits
	lost := outward(huntPort, syn|ack)
	lost.dst = netip.MustParseAddrPort("[2001:db8:dead::1]:9")
	return append(seeds, p.frame(), append(p.frame(), 0), signalFrom(1, lost, create, 1))
}

// agentSeeds has a frame of every shape that the agent meets.
func agentSeeds() (seeds [][]byte) {
	for _, port := range []uint16{huntPort, 81, 82, 8080} {
		for _, functions := range [][]byte{
			{0xca, 0xcf}, {0xca, 0xca, 0xca, 0xcf}, {0xcf}, {0xcf, 0xcf}, {0xa5}, {0xe5, 0xe5}, {0xe5}, {0xd7}, {0xd7, 0xd7}, {0x77},
		} {
			p := inward(port, syn)
			if f := functions[0]; f != 0xca && f != 0xcf {
				p.flags = ack
			}
			p.payload = []byte("payload")
			seeds = append(seeds, to(p, policy.Generation(p.seq), functions...).frame())
		}
	}
	p := inward(81, syn)
	done := to(p, 1, 0xca)
	tlvs := slices.Concat(srh(41, 1, 0, sid(serverLocator(2), 0xcf, 1)), []byte{4, 6, 0, 0, 0, 0, 0, 0})
	tlvs[1]++
	dead := srh(41, 1, 0, netip.MustParseAddr("2001:db8:dead::1"))
	return append(seeds, p.frame(), withSRH(done.frame(), tlvs), withSRH(done.frame(), dead))
}

// mutator makes frames: first every seed cut at every byte and with every bit
// of its headers flipped, then any mixture of what can go wrong.
type mutator struct {
	rng   *rand.Rand
	seeds [][]byte
	plan  []func() []byte
}

const (
	mutatorSeed = 8754
	headers     = 14 + 40 + 8 + 3*16 + 40 + 20 // bytes whose every bit is flipped
)

func newMutator(t *testing.T, seeds [][]byte) *mutator {
	t.Helper()
	t.Logf("seed %d", mutatorSeed)
	m := &mutator{rng: rand.New(rand.NewPCG(mutatorSeed, 0)), seeds: seeds}
	for _, s := range seeds {
		for cut := 14; cut <= min(len(s), headers); cut++ {
			m.plan = append(m.plan, func() []byte { return slices.Clone(s[:cut]) })
		}
		for bit := range 8 * min(len(s), headers) {
			m.plan = append(m.plan, func() []byte { return altered(s, bit/8, s[bit/8]^1<<(bit%8)) })
		}
	}
	return m
}

func (m *mutator) next() []byte {
	if len(m.plan) > 0 {
		frame := m.plan[0]()
		m.plan = m.plan[1:]
		return frame
	}
	frame := slices.Clone(m.seeds[m.rng.IntN(len(m.seeds))])
	for range 1 + m.rng.IntN(3) {
		frame = m.damage(frame)
	}
	return frame
}

// damage does one thing to a frame.
func (m *mutator) damage(b []byte) []byte {
	any := func(n int) int { return m.rng.IntN(max(n, 1)) }
	random := func() byte { return byte(m.rng.Uint32()) }
	if len(b) < atUpper+40 {
		return append(b, random())
	}
	switch m.rng.IntN(16) {
	case 0: // cut
		return b[:14+any(len(b)-14)]
	case 1: // cut, and the header knows
		b = b[:atUpper+any(len(b)-atUpper)]
		binary.BigEndian.PutUint16(b[atLength:], uint16(len(b)-atUpper))
	case 2, 3: // a bit of the headers
		b[any(min(len(b), headers))] ^= 1 << any(8)
	case 4: // a byte of the headers
		b[any(min(len(b), headers))] = random()
	case 5: // the outer length, near the truth
		binary.BigEndian.PutUint16(b[atLength:], uint16(len(b)-atUpper+any(9)-4))
	case 6: // a VLAN tag
		return slices.Concat(b[:12], []byte{0x81, 0, 0, random()}, b[12:])
	case 7: // an extension header
		next := []byte{0, 43, 44, 51, 60, 135, 59, 50, 4, 41}[any(10)]
		header := append([]byte{b[atNext], 0, random(), random()}, 0, 0, 0, 0)
		b = slices.Concat(b[:atUpper], header, b[atUpper:])
		b[atNext] = next
		binary.BigEndian.PutUint16(b[atLength:], uint16(len(b)-atUpper))
	case 8: // a routing header of random make
		return m.route(b)
	case 9: // one field of what may be a routing header
		b[atUpper+1+any(4)] = []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 254, 255, random()}[any(12)]
	case 10: // padding
		return append(b, make([]byte, 1+any(20))...)
	case 11: // another data offset, wherever TCP is
		at := len(b) - 15 - any(len(b)-atUpper)
		b[max(at, atUpper)] = random()
	case 12: // another function
		b[atDst+9] = []byte{0xca, 0xcf, 0xa5, 0xe5, 0xd7, 0xc5, 0xf5, 0}[any(8)]
	case 13: // both congestion fields
		b[atVersion+1] ^= byte(any(4)) << 4
		b[atUpper+1] ^= byte(any(4)) << 4
	case 14: // a hop limit that is used up, outside or inside
		b[[]int{atHop, atHop + 40, atHop + 64}[any(3)]] = byte(any(3))
	case 15: // another client
		b[any(16)+22] = random()
	}
	return b
}

// route puts a segment routing header with likely wrong fields into the frame.
func (m *mutator) route(b []byte) []byte {
	list := make([]netip.Addr, m.rng.IntN(5))
	for i := range list {
		list[i] = sid(serverLocator(m.rng.IntN(9)), 0xcf, uint16(m.rng.Uint32()))
	}
	header := srh(b[atNext], m.rng.IntN(len(list)+2), m.rng.IntN(len(list)+2)-1, list...)
	for range m.rng.IntN(3) { // 8 bytes of TLVs
		header = append(header, byte(m.rng.IntN(6)), byte(m.rng.IntN(9)), 0, 0, 0, 0, 0, 0)
		header[1]++
	}
	return withSRH(b, header)
}
