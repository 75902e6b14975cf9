package exhaustive_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"proffer/policy"
	"proffer/proof/fsm"
	"proffer/proof/rig"
	"proffer/wire"
)

// Nodes are numbered by the 16 bits in which the locators of the tests differ.
const firstServer = 0x100

func nodeOf(locator netip.Prefix) fsm.Node {
	a := locator.Addr().As16()
	return fsm.Node(binary.BigEndian.Uint16(a[6:]))
}

func locatorOf(n fsm.Node) netip.Prefix {
	a := rig.LbLocator.Addr().As16()
	binary.BigEndian.PutUint16(a[6:], uint16(n))
	return netip.PrefixFrom(netip.AddrFrom16(a), 64)
}

// sidAddress of a SID.
func sidAddress(s fsm.SID) netip.Addr {
	flags := wire.Flags(0)
	if s.Retry {
		flags |= wire.Retry
	}
	if s.Final {
		flags |= wire.Final
	}
	if s.Held {
		flags |= wire.Held
	}
	if s.Closed&fsm.ClosedClient != 0 {
		flags |= wire.ClientClosed
	}
	if s.Closed&fsm.ClosedServer != 0 {
		flags |= wire.ServerClosed
	}
	return wire.SID{
		Locator: locatorOf(s.Node), Function: s.Function, Generation: s.Generation, Flags: flags, Report: uint16(s.Position),
	}.Addr()
}

func sidAt(b []byte) fsm.SID {
	s := wire.ParseSID(netip.AddrFrom16([16]byte(b)))
	closed := uint8(0)
	if s.Flags&wire.ClientClosed != 0 {
		closed |= fsm.ClosedClient
	}
	if s.Flags&wire.ServerClosed != 0 {
		closed |= fsm.ClosedServer
	}
	return fsm.SID{
		Closed: closed, Node: nodeOf(s.Locator), Function: s.Function, Generation: s.Generation,
		Retry: s.Flags&wire.Retry != 0, Final: s.Flags&wire.Final != 0, Held: s.Flags&wire.Held != 0, Position: int(s.Report),
	}
}

// tcpPacket is a test's packet with the fields that the machines read.
func tcpPacket(s fsm.TCP, in bool) rig.Packet {
	p := rig.Inward(rig.HuntPort, s.Flags)
	if !in {
		p.Src, p.Dst = p.Dst, p.Src
	}
	p.Seq, p.Ack, p.Payload = s.Seq, s.Ack, make([]byte, s.Payload)
	return p
}

// frameOf is a message as it comes to a node: the client's packet, or one on a
// route from another node.
func frameOf(m fsm.Packet, beyond ...fsm.SID) []byte {
	in := m.Function != wire.CreateStickiness && m.Function != wire.RemoveStickiness
	p := tcpPacket(m.TCP, in)
	if m.Function == wire.None {
		return p.Frame()
	}
	segments := []netip.Addr{sidAddress(m.SID)}
	for _, s := range beyond {
		segments = append(segments, sidAddress(s))
	}
	f := p.Flow()
	if !in {
		f = policy.Flow{Client: p.Dst, VIP: p.Src}
	}
	return wire.Frame(rig.HereMAC, rig.RouterMAC, rig.Inner{Flow: f}.Route(wire.Untagged(locatorOf(m.From), f), 0, 63, segments...).Encap(p.Ip()))
}

// sight is a frame as another node reads it: where it goes, from whom, and what it
// carries.
type sight struct {
	route []fsm.SID // what is left of it
	from  fsm.Node
	tcp   fsm.TCP
	out   bool // to the client
}

// readFrame takes a frame apart, whole and of the test's flow; anything else is an error.
func readFrame(b []byte) (s sight, err error) {
	if len(b) < 54 || b[12] != 0x86 {
		return s, errors.New("no IPv6")
	}
	ip, next := b[14:], b[14+6]
	if next == 43 || next == 41 {
		s.from = fsm.Node(binary.BigEndian.Uint16(ip[8+6:]))
		s.route = append(s.route, sidAt(ip[24:]))
		b = ip[40:]
		if next == 43 {
			left, length := int(b[3]), 8+8*int(b[1])
			for i := left - 1; i >= 0; i-- { // last first (RFC 8754 §2)
				s.route = append(s.route, sidAt(b[8+16*i:]))
			}
			b = b[length:]
		}
		ip = b
	}
	if len(ip) < 60 || ip[6] != 6 {
		return s, errors.New("no TCP inside")
	}
	src, dst := netip.AddrFrom16([16]byte(ip[8:24])), netip.AddrFrom16([16]byte(ip[24:40]))
	s.out = dst == rig.ClientAddr
	if !(src == rig.ClientAddr && dst == rig.VipAddr || src == rig.VipAddr && s.out) {
		return s, fmt.Errorf("from %v to %v", src, dst)
	}
	tcp := ip[40:]
	s.tcp = fsm.TCP{
		Flags: tcp[13], Seq: binary.BigEndian.Uint32(tcp[4:]), Ack: binary.BigEndian.Uint32(tcp[8:]),
		Payload: uint32(binary.BigEndian.Uint16(ip[4:])) - uint32(tcp[12]>>4)*4,
	}
	return s, nil
}

// differs describes a node's deviation from the model.
func differs(got rig.Outcome, want fsm.Outcome, in fsm.Packet, beyond []fsm.SID) error {
	why := slices.Clone(want.Why)
	slices.Sort(why)
	slices.Sort(got.Reasons)
	if !slices.Equal(got.Reasons, why) {
		return fmt.Errorf("counted %v, the model %v", got.Reasons, why)
	}
	action := uint32(rig.XDPTX)
	switch {
	case want.Act == fsm.Drop:
		action = rig.XDPDrop
	case want.Act == fsm.Deliver:
		action = rig.XDPPass
	case got.Action == tcUnspec32 && (want.Act == fsm.Client || want.Act == fsm.Send):
		action = tcUnspec32
	}
	if got.Action != action {
		return fmt.Errorf("action %d, the model %d", got.Action, action)
	}
	if want.Act == fsm.Drop {
		return nil
	}
	s, err := readFrame(got.Frame)
	if err != nil {
		return fmt.Errorf("sent %x: %w", got.Frame, err)
	}
	route, tcp := want.Route, in.TCP
	switch {
	case want.Act == fsm.PassOn:
		route = beyond
	case want.RST:
		tcp = fsm.TCP{Flags: wire.RST, Seq: in.Ack}
	case want.Act == fsm.Refuse:
		tcp = fsm.TCP{Flags: wire.RST | wire.ACK, Ack: in.Seq + 1 + in.Payload}
	}
	if !slices.Equal(s.route, route) {
		return fmt.Errorf("sent to %+v, the model to %+v", s.route, route)
	}
	if s.tcp != tcp {
		return fmt.Errorf("sent %+v, the model %+v", s.tcp, tcp)
	}
	return nil
}

const tcUnspec32 = 0xffffffff // TC_ACT_UNSPEC
