package dataplane

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"proffer/policy"
)

// judgedPorts are services of the LB under the oracle's eyes, and one that is none.
var judgedPorts = []uint16{huntPort, 81, 90, 91, 92, 8080}

// lbSeeds has a frame of every shape that the LB meets.
func lbSeeds() (seeds [][]byte) {
	for _, port := range judgedPorts {
		for _, flags := range []byte{syn, ack, fin | ack, rst, syn | ack} {
			p := inward(port, flags)
			p.ack = serverISN + 1
			p.options, p.payload = []byte{2, 4, 5, 0xa0, 1, 1, 1, 0}, []byte("payload")
			seeds = append(seeds, p.frame(), overIPv4(p).frame())
		}
		p := datagram(port, "datagram")
		seeds = append(seeds, p.frame(), overIPv4(p).frame())
		answer := outward(port, ack)
		seeds = append(seeds, tooBig(sized(answer, 200), 1400).frame(), tooBig(sized(overIPv4(answer), 200), 1400).frame())
	}
	seeds = append(seeds, echo(inward(0, 0), 128, []byte("ping")), echo(overIPv4(inward(0, 0)), 8, []byte("pin")))
	for _, room := range []int{0, 60, 100} { // beside the largest packets
		seeds = append(seeds, sized(inward(90, ack), mtu-room).frame(), sized(inward(huntPort, ack), mtu-room).frame(),
			sized(overIPv4(inward(huntPort, syn)), mtu-room).frame())
	}
	for _, report := range []byte{0, 5, 19, 200} {
		for _, p := range []packet{inward(huntPort, ack), datagram(92, "x"), inward(90, syn)} {
			to := withFlags(withReport(sid(lbLocator, goOn, 3), report), 2)
			back := route{from: lbLocator, segments: []netip.Addr{to}, hop: 63}
			seeds = append(seeds, ethernet(hereMAC, routerMAC, back.around(p)))
			back.insert = true
			seeds = append(seeds, ethernet(hereMAC, routerMAC, back.around(p)))
		}
	}
	for _, p := range []packet{sized(inward(huntPort, ack), 600), sized(overIPv4(inward(huntPort, ack)), 600)} {
		seeds = append(seeds, aboutOurs(sent(p, routerMAC, ask(0xe5, 0, 1, 2)), 1400, 1232), aboutOurs(toOne(p, 3, 0xa5, 7), 1400, 1232))
	}
	seeds = append(seeds, tooBig(sized(outward(huntPort, ack), mtu-60), 1400).frame())
	return append(seeds, signalSeeds(nil)...)
}

// signalSeeds has what servers and the LB itself send it; change each.
func signalSeeds(sign func(server int, p packet, to netip.Addr, change ...func(*route)) []byte) (seeds [][]byte) {
	if sign == nil {
		sign = signalTo
	}
	generation := policy.Generation(clientISN)
	for server := range 2 {
		for _, p := range []packet{synAck(huntPort), synAck(90), synAck(91)} {
			p.options = mss(1460)
			for _, function := range []byte{create, remove, 0xca} {
				to := sid(lbLocator, function, generation)
				frame := sign(server, p, to)
				seeds = append(seeds, frame, sign(server, p, to, insert), sign(server, overIPv4(p), to),
					withSRH(frame, srh(41, 0, 1, to, clientAddr)))
			}
			data := p
			data.flags = ack
			seeds = append(seeds, sign(server, data, sid(lbLocator, create, generation+1)))
			for _, flags := range []byte{syn, ack} {
				back := p.reply(flags)
				back.seq = clientISN
				to := sid(lbLocator, notMine, generation)
				seeds = append(seeds, sign(server, back, to), sign(server, back, to, insert), sign(server, overIPv4(back), to))
			}
		}
		d := datagram(92, "datagram")
		seeds = append(seeds, sign(server, d.reply(0), sid(lbLocator, create, 9)),
			sign(server, d, sid(lbLocator, notMine, 0)), sign(server, d, sid(lbLocator, notMine, 9)))
	}
	lost := synAck(huntPort)
	lost.dst = netip.MustParseAddrPort("[2001:db8:dead::1]:9")
	return append(seeds, sign(0, lost, sid(lbLocator, create, 1)))
}

// agentSeeds has a frame of every shape that the agent meets.
func agentSeeds() (seeds [][]byte) {
	for _, port := range []uint16{huntPort, 81, 82, 8080} {
		for _, flags := range []byte{0, sidRetry, sidFinal} {
			p := inward(port, syn)
			s := to(p, policy.Generation(p.seq), 0xca, 0xcf).flagged(flags)
			seeds = append(seeds, s.frame(), s.inserted().frame())
			last := to(p, policy.Generation(p.seq), 0xcf).flagged(flags)
			seeds = append(seeds, last.frame(), last.inserted().frame())
		}
		refusal := inward(port, rst)
		seeds = append(seeds, to(refusal, policy.Generation(refusal.seq), reject).frame())
		four := overIPv4(inward(port, syn))
		seeds = append(seeds, toWith(innerTCP(four), policy.Generation(four.seq), 0xca, 0xcf).frame(),
			toWith(innerTooBig(innerTCP(four), four), 7, 0xa5).frame(), toWith(innerTooBig(innerTCP(four), four), 7, 0xe5).frame())
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
		next := []byte{0, 43, 44, 51, 60, 135, 59, 50, 4, 41, 6, 17, 58}[any(13)]
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
		b[atDst+9] = []byte{0xca, 0xcf, 0xa5, 0xe5, 0xd7, 0xc5, 0xf5, 0x40, 0x4e, 0}[any(10)]
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
