package oracle_test

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"proffer/proof/rig"
	"proffer/wire"
)

// judgedPorts are services of the LB under the oracle's eyes, and one that is none.
var judgedPorts = []uint16{rig.HuntPort, 81, 90, 91, 92, 93, 94, 8080}

// lbSeeds has a frame of every shape that the LB meets.
func lbSeeds() (seeds [][]byte) {
	for _, port := range judgedPorts {
		for _, flags := range []byte{wire.SYN, wire.ACK, wire.FIN | wire.ACK, wire.RST, wire.SYN | wire.ACK} {
			p := rig.Inward(port, flags)
			p.Ack = rig.ServerISN + 1
			p.Options, p.Payload = []byte{2, 4, 5, 0xa0, 1, 1, 1, 0}, []byte("payload")
			seeds = append(seeds, p.Frame(), rig.OverIPv4(p).Frame())
		}
		p := rig.Datagram(port, "datagram")
		seeds = append(seeds, p.Frame(), rig.OverIPv4(p).Frame())
		answer := rig.Outward(port, wire.ACK)
		seeds = append(seeds, rig.TooBig(rig.Sized(answer, 200), 1400).Frame(), rig.TooBig(rig.Sized(rig.OverIPv4(answer), 200), 1400).Frame())
	}
	seeds = append(seeds, rig.Echo(rig.Inward(0, 0), 128, []byte("ping")), rig.Echo(rig.OverIPv4(rig.Inward(0, 0)), 8, []byte("pin")))
	for _, room := range []int{0, 60, 100} { // beside the largest packets
		seeds = append(seeds, rig.Sized(rig.Inward(90, wire.ACK), rig.MTU-room).Frame(), rig.Sized(rig.Inward(rig.HuntPort, wire.ACK), rig.MTU-room).Frame(),
			rig.Sized(rig.OverIPv4(rig.Inward(rig.HuntPort, wire.SYN)), rig.MTU-room).Frame(),
			rig.Divisible(rig.Inward(rig.HuntPort, wire.ACK), rig.MTU-room), rig.Divisible(rig.Inward(90, wire.ACK), rig.MTU-room))
	}
	seeds = append(seeds, rig.Sized(rig.Inward(rig.HuntPort, wire.ACK), rig.MTU+1000).Frame()) // joined from two
	for _, report := range []uint16{0, 5, 19, 242, 255} {
		for _, p := range []rig.Packet{rig.Inward(rig.HuntPort, wire.ACK), rig.Datagram(92, "x"), rig.Inward(90, wire.SYN)} {
			to := rig.WithFlags(rig.WithReport(rig.SID(rig.LbLocator, wire.RecoverStickiness, 3), report), 2)
			back := rig.Route{From: rig.LbLocator, Segments: []netip.Addr{to}, Hop: 63}
			seeds = append(seeds, wire.Frame(rig.HereMAC, rig.RouterMAC, back.Around(p)))
			back.Insert = true
			seeds = append(seeds, wire.Frame(rig.HereMAC, rig.RouterMAC, back.Around(p)))
		}
	}
	for _, p := range []rig.Packet{rig.Sized(rig.Inward(rig.HuntPort, wire.ACK), 600), rig.Sized(rig.OverIPv4(rig.Inward(rig.HuntPort, wire.ACK)), 600)} {
		seeds = append(seeds, rig.AboutOurs(rig.Sent(p, rig.RouterMAC, rig.Ask(wire.RecoverStickiness, 0, 1, 2)), 1400, 1232), rig.AboutOurs(rig.ToOne(p, 3, wire.AckStickiness, 7), 1400, 1232))
	}
	seeds = append(seeds, rig.TooBig(rig.Sized(rig.Outward(rig.HuntPort, wire.ACK), rig.MTU-60), 1400).Frame())
	for _, port := range judgedPorts {
		for _, p := range []rig.Packet{rig.Inward(port, wire.SYN), rig.Inward(port, wire.ACK), rig.Datagram(port, "x")} {
			p.Src = netip.AddrPortFrom(p.Src.Addr(), rig.ClientPort+1) // whose flows are as new
			seeds = append(seeds, rig.Optioned(p.Frame(), rig.OverIPv4(p).Frame())...)
		}
		about := rig.Optioned(rig.Outward(port, wire.ACK).Frame(), rig.OverIPv4(rig.Outward(port, wire.ACK)).Frame())
		for _, quoted := range about {
			seeds = append(seeds, rig.AboutFrame(quoted, 1400))
		}
	}
	seeds = append(seeds, rig.Optioned(rig.Echo(rig.Inward(0, 0), 128, []byte("ping")), rig.Echo(rig.OverIPv4(rig.Inward(0, 0)), 8, []byte("pin")))...)
	return append(seeds, signalSeeds(nil)...)
}

// signalSeeds has what servers and the LB itself send it; change each.
func signalSeeds(sign func(server int, p rig.Packet, to netip.Addr, change ...func(*rig.Route)) []byte) (seeds [][]byte) {
	if sign == nil {
		sign = rig.SignalTo
	}
	generation := wire.Generation(rig.ClientISN)
	for server := range 2 {
		for _, p := range []rig.Packet{rig.SynAck(rig.HuntPort), rig.SynAck(90), rig.SynAck(91), rig.SynAck(94)} {
			p.Options = rig.MSS(1460)
			for _, function := range []wire.Function{wire.CreateStickiness, wire.RemoveStickiness, wire.ConnectAvail} {
				to := rig.SID(rig.LbLocator, function, generation)
				frame := sign(server, p, to)
				seeds = append(seeds, frame, sign(server, p, to, rig.Insert), sign(server, rig.OverIPv4(p), to),
					rig.WithSRH(frame, wire.SRH(wire.ProtoIPv6, 0, rig.ClientAddr, to)))
			}
			data := p
			data.Flags = wire.ACK
			seeds = append(seeds, sign(server, data, rig.SID(rig.LbLocator, wire.CreateStickiness, generation+1)))
			for _, flags := range []byte{wire.SYN, wire.ACK} {
				back := p.Reply(flags)
				back.Seq = rig.ClientISN
				to := rig.SID(rig.LbLocator, wire.NotMine, generation)
				seeds = append(seeds, sign(server, back, to), sign(server, back, to, rig.Insert), sign(server, rig.OverIPv4(back), to))
			}
		}
		d := rig.Datagram(92, "datagram")
		seeds = append(seeds, sign(server, d.Reply(0), rig.SID(rig.LbLocator, wire.CreateStickiness, 9)),
			sign(server, d, rig.SID(rig.LbLocator, wire.NotMine, 0)), sign(server, d, rig.SID(rig.LbLocator, wire.NotMine, 9)))
	}
	for _, port := range []uint16{rig.HuntPort, 90, 91, 94} {
		p := rig.SynAck(port)
		p.Options = rig.MSS(1460)
		answer, back := rig.SID(rig.LbLocator, wire.CreateStickiness, generation), rig.SID(rig.LbLocator, wire.NotMine, generation)
		seeds = append(seeds, rig.OptionedInside(sign(0, p, answer), sign(0, rig.OverIPv4(p), answer), sign(0, p.Reply(wire.SYN), back))...)
	}
	lost := rig.SynAck(rig.HuntPort)
	lost.Dst = netip.MustParseAddrPort("[2001:db8:dead::1]:9")
	return append(seeds, sign(0, lost, rig.SID(rig.LbLocator, wire.CreateStickiness, 1)))
}

// insertedPort is that of the agent's service of `wire: insert`.
const insertedPort = 83

// agentSeeds has a frame of every shape that the agent meets.
func agentSeeds() (seeds [][]byte) {
	for _, port := range []uint16{rig.HuntPort, 81, 82, insertedPort, 8080} {
		for _, flags := range []wire.Flags{0, wire.Retry, wire.Final, wire.Held} {
			p := rig.Inward(port, wire.SYN)
			s := rig.To(p, wire.Generation(p.Seq), wire.ConnectAvail, wire.ConnectForce).Flagged(flags)
			seeds = append(seeds, s.Frame(), s.Inserted().Frame())
			last := rig.To(p, wire.Generation(p.Seq), wire.ConnectForce).Flagged(flags)
			seeds = append(seeds, last.Frame(), last.Inserted().Frame())
		}
		refusal := rig.Inward(port, wire.RST)
		seeds = append(seeds, rig.To(refusal, wire.Generation(refusal.Seq), wire.Reject).Frame())
		four := rig.OverIPv4(rig.Inward(port, wire.SYN))
		seeds = append(seeds, rig.ToWith(rig.InnerTCP(four), wire.Generation(four.Seq), wire.ConnectAvail, wire.ConnectForce).Frame(),
			rig.ToWith(rig.InnerTooBig(rig.InnerTCP(four), four), 7, wire.AckStickiness).Frame(), rig.ToWith(rig.InnerTooBig(rig.InnerTCP(four), four), 7, wire.RecoverStickiness).Frame())
		for _, functions := range [][]wire.Function{
			{wire.ConnectAvail, wire.ConnectForce}, {wire.ConnectAvail, wire.ConnectAvail, wire.ConnectAvail, wire.ConnectForce},
			{wire.ConnectForce}, {wire.ConnectForce, wire.ConnectForce}, {wire.AckStickiness}, {wire.RecoverStickiness, wire.RecoverStickiness},
			{wire.RecoverStickiness}, {wire.Deliver}, {wire.Deliver, wire.Deliver}, {0x77},
		} {
			p := rig.Inward(port, wire.SYN)
			if f := functions[0]; f != wire.ConnectAvail && f != wire.ConnectForce {
				p.Flags = wire.ACK
			}
			p.Payload = []byte("payload")
			s := rig.To(p, wire.Generation(p.Seq), functions...)
			if port == insertedPort {
				s = s.Inserted()
			}
			seeds = append(seeds, s.Frame())
		}
	}
	for _, port := range []uint16{rig.HuntPort, 81, insertedPort} {
		p := rig.Inward(port, wire.SYN)
		four := rig.OverIPv4(p)
		seeds = append(seeds, rig.OptionedInside(
			rig.To(p, wire.Generation(p.Seq), wire.ConnectAvail, wire.ConnectForce).Frame(), rig.To(p, 1, wire.AckStickiness).Frame(),
			rig.ToWith(rig.InnerTCP(four), wire.Generation(four.Seq), wire.ConnectAvail, wire.ConnectForce).Frame())...)
	}
	p := rig.Inward(81, wire.SYN)
	done := rig.To(p, 1, wire.ConnectAvail)
	tlvs := slices.Concat(wire.SRH(wire.ProtoIPv6, 1, rig.SID(rig.ServerLocator(2), wire.ConnectForce, 1)), []byte{4, 6, 0, 0, 0, 0, 0, 0})
	tlvs[1]++
	dead := wire.SRH(wire.ProtoIPv6, 1, netip.MustParseAddr("2001:db8:dead::1"))
	return append(seeds, p.Frame(), rig.WithSRH(done.Frame(), tlvs), rig.WithSRH(done.Frame(), dead))
}

// mutator makes frames: first every seed cut at every byte and with every bit
// of its headers flipped, then any mixture of these errors.
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
			m.plan = append(m.plan, func() []byte { return rig.Altered(s, bit/8, s[bit/8]^1<<(bit%8)) })
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
	if len(b) < rig.AtUpper+40 {
		return append(b, random())
	}
	switch m.rng.IntN(17) {
	case 0: // cut
		return b[:14+any(len(b)-14)]
	case 1: // cut, and the header knows
		b = b[:rig.AtUpper+any(len(b)-rig.AtUpper)]
		binary.BigEndian.PutUint16(b[rig.AtLength:], uint16(len(b)-rig.AtUpper))
	case 2, 3: // a bit of the headers
		b[any(min(len(b), headers))] ^= 1 << any(8)
	case 4: // a byte of the headers
		b[any(min(len(b), headers))] = random()
	case 5: // the outer length, near the truth
		binary.BigEndian.PutUint16(b[rig.AtLength:], uint16(len(b)-rig.AtUpper+any(9)-4))
	case 6: // a VLAN tag
		return slices.Concat(b[:12], []byte{0x81, 0, 0, random()}, b[12:])
	case 7: // an extension header
		next := []byte{0, 0, 43, 44, 51, 60, 60, 135, 59, 50, 4, 41, 6, 17, 58}[any(15)]
		header := append([]byte{b[rig.AtNext], 0, random(), random()}, 0, 0, 0, 0)
		b = slices.Concat(b[:rig.AtUpper], header, b[rig.AtUpper:])
		b[rig.AtNext] = next
		binary.BigEndian.PutUint16(b[rig.AtLength:], uint16(len(b)-rig.AtUpper))
	case 8: // a routing header of random make
		return m.route(b)
	case 9: // one field of a possible routing header
		b[rig.AtUpper+1+any(4)] = []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 254, 255, random()}[any(12)]
	case 10: // padding
		return append(b, make([]byte, 1+any(20))...)
	case 11: // another data offset, wherever TCP is
		at := len(b) - 15 - any(len(b)-rig.AtUpper)
		b[max(at, rig.AtUpper)] = random()
	case 12: // another function
		signals := wire.Signals()
		b[rig.AtDst+9] = byte(append(signals, wire.Signal{})[any(len(signals)+1)].Function)
	case 13: // both congestion fields
		b[rig.AtVersion+1] ^= byte(any(4)) << 4
		b[rig.AtUpper+1] ^= byte(any(4)) << 4
	case 14: // a hop limit that is used up, outside or inside
		b[[]int{rig.AtHop, rig.AtHop + 40, rig.AtHop + 64}[any(3)]] = byte(any(3))
	case 16: // IPv4 options
		if b[12] == 8 {
			return rig.WithIPv4Options(b, []byte{0, 1, 7, 131, 137, 148, random()}[any(7)], byte(any(6)), random(), byte(any(2)))
		}
	case 15: // another client
		b[any(16)+22] = random()
	}
	return b
}

// route puts a segment routing header with likely wrong fields into the frame.
func (m *mutator) route(b []byte) []byte {
	list := make([]netip.Addr, m.rng.IntN(5))
	for i := range list {
		list[i] = rig.SID(rig.ServerLocator(m.rng.IntN(9)), wire.ConnectForce, uint16(m.rng.Uint32()))
	}
	header := wire.SRH(b[rig.AtNext], m.rng.IntN(len(list)+2), list...)
	header[4] = byte(m.rng.IntN(len(list)+2) - 1) // the last entry
	for range m.rng.IntN(3) {                     // 8 bytes of TLVs
		header = append(header, byte(m.rng.IntN(6)), byte(m.rng.IntN(9)), 0, 0, 0, 0, 0, 0)
		header[1]++
	}
	return rig.WithSRH(b, header)
}
