package lb_test

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"proffer/plan"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// testTooBigMade: a packet without room for its route is answered, of either
// family, exactly where the room ends; errors are not.
func testTooBigMade(t *testing.T, seen rig.Hits) {
	for _, change := range []func(*topo.Service){func(*topo.Service) {}, rig.Inserting, rig.Over4, rig.ViaTransit(2)} {
		svc := rig.Hunting(2, 8, change, rig.Members)
		r := rig.NewLB(t, seen, svc)
		header, one := 64, 40
		if svc.Wire == topo.Insert {
			header, one = 72, 56
		}
		if n := len(svc.Via); n > 0 {
			header, one = header+16*n, one+8+16*n
		}
		limit := rig.MTU - plan.LongestHeader(&svc)
		p := rig.Inward(rig.HuntPort, wire.ACK)
		if svc.VIP.Addr.Is4() {
			p = rig.OverIPv4(p)
		}
		label := func(length int) string { return fmt.Sprintf("%v, %v, %d bytes", svc.VIP, svc.Wire, length) }
		for _, length := range []int{limit, rig.MTU - header, rig.MTU - header + 1, rig.MTU - one, rig.MTU - one + 1, rig.MTU} {
			check(r, t, label(length)+", unknown", rig.Sized(p, length), length <= rig.MTU-header, "recover", limit)
		}
		r.Accepted(t, 5, p)
		confirmed := p
		confirmed.Ack = rig.ServerISN + 1
		r.Send(t, confirmed.Frame())
		for _, length := range []int{rig.MTU - one, rig.MTU - one + 1, rig.MTU} {
			check(r, t, label(length)+", steered", rig.Sized(p, length), length <= rig.MTU-one, "steer", limit)
		}
		about := rig.TooBig(rig.Sized(p.Reply(wire.ACK), rig.MTU-one-47), 1400)
		if svc.VIP.Addr.Is4() {
			about = rig.TooBig(rig.Sized(p.Reply(wire.ACK), rig.MTU-one-27), 1400)
		}
		r.Send(t, about.Frame()).Is(t, label(0)+", an error", rig.XDPDrop, nil, "drop_too_big")
	}
}

// check sends a packet that does or does not fit.
func check(r *rig.LB, t *testing.T, label string, p rig.Packet, fits bool, why string, limit int) {
	t.Helper()
	out := r.Send(t, p.Frame())
	if fits {
		out.Is(t, label, rig.XDPTX, nil, why)
		return
	}
	out.Is(t, label, rig.XDPTX, nil, "too_big")
	if out.Action == rig.XDPTX {
		checkTooBig(t, label, out.Frame[14:], p, limit)
		if !slices.Equal(out.Frame[:12], slices.Concat(rig.RouterMAC[:], rig.HereMAC[:])) {
			t.Errorf("%s: link header %x", label, out.Frame[:14])
		}
	}
}

// TestTooBigOnSmallLink: with the smallest of links every packet is near its
// limit, and the quote is short.
func TestTooBigOnSmallLink(t *testing.T) {
	const small = 1280
	rig.Enter(t)
	link, err := netlink.LinkByName(rig.Device)
	if err == nil {
		err = netlink.LinkSetMTU(link, small)
	}
	if err != nil {
		t.Fatal(err)
	}
	r := rig.LoadLB(t, rig.Hits{}, rig.LBConfig(rig.Hunting(2, 8), rig.Hunting(2, 8, rig.Over4)))
	if dev, err := net.InterfaceByName(rig.Device); err != nil || dev.MTU != small {
		t.Fatalf("MTU of %s: %v, %v", rig.Device, dev, err)
	}
	for length := small - 64; length <= small; length++ {
		check(r, t, fmt.Sprint(length), rig.Sized(rig.Inward(rig.HuntPort, wire.ACK), length), length <= small-64, "recover", small)
		check(r, t, fmt.Sprint(length, " of IPv4"), rig.Sized(rig.OverIPv4(rig.Inward(rig.HuntPort, wire.ACK)), length), length <= small-64, "recover", small-80)
	}
	r.Resolve(t, 255)
	if err := r.SetNextHops(topo.NextHops{rig.ServerLocator(1): rig.HopMAC(1)}); err != nil {
		t.Fatal(err)
	}
	r.Send(t, rig.Sized(rig.Inward(rig.HuntPort, wire.ACK), small).Frame()).Is(t, "no way to the client", rig.XDPDrop, nil, "drop_no_next_hop")
}

// testTooBigTranslated: RFC 2473 §7.1: the client learns of its own packet, and
// of a link so much smaller as our header is long.
func testTooBigTranslated(t *testing.T, seen rig.Hits) {
	r := rig.NewLB(t, seen, rig.Hunting(2, 8), rig.Hunting(3, 8, rig.Over4), rig.Hunting(1, 8, rig.OverUDP))
	for _, c := range []struct {
		p      rig.Packet
		header int
	}{
		{rig.Sized(rig.Inward(rig.HuntPort, wire.ACK), 1400), 64},
		{rig.Sized(rig.OverIPv4(rig.Inward(rig.HuntPort, wire.ACK)), 1400), 80},
		{rig.Sized(rig.Datagram(rig.HuntPort, ""), 1400), 64},
	} {
		frame := r.Send(t, c.p.Frame()).Frame
		c.p.Hop--
		for _, quote := range []int{1232, 256} {
			out := r.Send(t, rig.AboutOurs(frame, 1450, quote))
			label := fmt.Sprintf("%v, %d bytes quoted", c.p.Dst, quote)
			out.Is(t, label, rig.XDPTX, nil, "too_big_translated")
			checkTooBig(t, label, out.Frame[14:], c.p, 1450-c.header)
			if !slices.Equal(out.Frame[:12], slices.Concat(rig.RouterMAC[:], rig.HereMAC[:])) {
				t.Errorf("%s: link header %x", label, out.Frame[:14])
			}
		}
	}
	r.Learn(t, r.List(t, 0, rig.Inward(rig.HuntPort, 0).Flow())[0], rig.ClientISN)
	p := rig.Sized(rig.Inward(rig.HuntPort, wire.ACK), 1400)
	frame := r.Send(t, p.Frame()).Frame
	p.Hop--
	out := r.Send(t, rig.AboutOurs(frame, 1400, 1232))
	out.Is(t, "without SRH", rig.XDPTX, nil, "too_big_translated")
	checkTooBig(t, "without SRH", out.Frame[14:], p, 1360)

	good := rig.AboutOurs(frame, 1400, 1232)
	const outerAt = rig.AtUpper + 8
	lost := rig.Inward(rig.HuntPort, wire.ACK)
	lost.Src = netip.MustParseAddrPort("[2001:db8:dead::1]:1")
	nested := rig.TooBig(rig.Sized(rig.Outward(rig.HuntPort, wire.ACK), 1000), 1400)
	for _, c := range []struct {
		label  string
		frame  []byte
		action uint32
		why    string
	}{
		{"unreachable", rig.Altered(good, rig.AtUpper, 1), rig.XDPDrop, "drop_icmp_error"},
		{"parameter problem", rig.Altered(good, rig.AtUpper, 4), rig.XDPDrop, "drop_icmp_error"},
		{"unreachable, about a stranger's", rig.Altered(rig.Altered(good, rig.AtUpper, 1), outerAt+8, 9), rig.XDPPass, "pass_own_address"},
		{"an answer to an echo", rig.Altered(good, rig.AtUpper, 129), rig.XDPPass, "pass_own_address"},
		{"neighbour solicitation", rig.Altered(good, rig.AtUpper, 135), rig.XDPPass, "pass_own_address"},
		{"cut in its header", good[:rig.AtUpper+7], rig.XDPPass, "pass_own_address"},
		{"about a stranger's", rig.Altered(good, outerAt+8, 9), rig.XDPPass, "pass_own_address"},
		{"about TCP of ours", rig.Altered(good, outerAt+6, 6), rig.XDPPass, "pass_own_address"},
		{"quotes IPv4", rig.Altered(good, outerAt, 0x45), rig.XDPPass, "pass_own_address"},
		{"about no service", rig.Altered(good, outerAt+40+39, 9), rig.XDPDrop, "drop_malformed_too_big"},
		{"quotes too little", rig.AboutOurs(frame, 1400, 80), rig.XDPDrop, "drop_malformed_too_big"},
		{"quotes ports, but too little for ours", rig.AboutOurs(frame, 1400, 90), rig.XDPDrop, "drop_malformed_too_big"},
		{"a link smaller than our header", rig.AboutOurs(frame, 39, 1232), rig.XDPDrop, "drop_malformed_too_big"},
		{"about a client without a way", rig.AboutOurs(r.Send(t, lost.Frame()).Frame, 1400, 1232), rig.XDPDrop, "drop_no_next_hop"},
		{"about an error", rig.AboutOurs(r.Send(t, nested.Frame()).Frame, 1400, 1232), rig.XDPDrop, "drop_too_big"},
	} {
		want := c.frame
		if c.action != rig.XDPPass {
			want = nil
		}
		r.Send(t, c.frame).Is(t, c.label, c.action, want, c.why)
	}
}

// testTooBigSteered: a router's word about an answer goes where the flow is, and
// neither keeps an entry alive nor needs one.
func testTooBigSteered(t *testing.T, seen rig.Hits) {
	r := rig.NewLB(t, seen, rig.Hunting(2, 8), rig.Hunting(2, 8, rig.Over4), rig.Hunting(2, 8, rig.OverUDP), rig.Service(81, topo.Stateless, 1, 8))
	udp := rig.Datagram(rig.HuntPort, "x")
	for i, p := range []rig.Packet{rig.Inward(rig.HuntPort, wire.SYN), rig.OverIPv4(rig.Inward(rig.HuntPort, wire.SYN)), udp} {
		answer := rig.Sized(p.Reply(wire.ACK), 600)
		word := rig.TooBig(answer, 1300)
		list := r.List(t, i, p.Flow())
		label := fmt.Sprint(p.Dst, " ", p.Protocol)
		r.Send(t, word.Frame()).Is(t, label+", unknown", rig.XDPTX, rig.Recovered(word, list), "recover")
		r.Accepted(t, list[0], p)
		generation := wire.Generation(p.Seq)
		if p.Protocol == topo.UDP {
			generation = 1
		}
		r.Send(t, word.Frame()).Is(t, label+", embryonic", rig.XDPTX, rig.ToOne(word, list[0], wire.AckStickiness, generation), "steer")
		if _, known := r.Flow(t, p.Flow()); known {
			t.Errorf("%s: a router's word confirmed a flow", label)
		}
		r.Confirm(t, p)
		before, _ := r.Flow(t, p.Flow())
		r.At(t, r.Now+1e9)
		r.Send(t, word.Frame()).Is(t, label, rig.XDPTX, rig.ToOne(word, list[0], wire.AckStickiness, generation), "steer")
		if after, _ := r.Flow(t, p.Flow()); after != before {
			t.Errorf("%s: the entry became %+v", label, after)
		}
	}
	list := r.List(t, 0, rig.Inward(rig.HuntPort, 0).Flow())
	list4 := r.List(t, 1, rig.OverIPv4(rig.Inward(rig.HuntPort, 0)).Flow())
	single := rig.TooBig(rig.Sized(rig.Outward(81, wire.ACK), 600), 1300)
	r.Send(t, single.Frame()).Is(t, "single", rig.XDPTX, rig.ToOne(single, r.List(t, 3, single.Flow())[0], wire.Deliver, 0), "deliver")
	for _, c := range []struct {
		mtu int
		ok  bool
	}{{1279, false}, {0, false}, {1280, true}, {1 << 20, true}} {
		word := rig.TooBig(rig.Sized(rig.Outward(rig.HuntPort, wire.ACK), 600), c.mtu)
		if c.ok {
			r.Send(t, word.Frame()).Is(t, fmt.Sprint(c.mtu), rig.XDPTX, rig.ToOne(word, list[0], wire.AckStickiness, wire.Generation(rig.ClientISN)), "steer")
		} else {
			r.Send(t, word.Frame()).Is(t, fmt.Sprint(c.mtu), rig.XDPDrop, nil, "drop_small_mtu")
		}
	}
	four := rig.TooBig(rig.Sized(rig.OverIPv4(rig.Outward(rig.HuntPort, wire.ACK)), 600), 576)
	r.Send(t, four.Frame()).Is(t, "IPv4 has no such limit", rig.XDPTX, rig.ToOne(four, list4[0], wire.AckStickiness, wire.Generation(rig.ClientISN)), "steer")
	word := rig.TooBig(rig.Outward(rig.HuntPort, wire.ACK), 1400).Frame()
	for cut := rig.AtUpper + 8; cut < rig.AtUpper+8+44; cut++ {
		short := slices.Clone(word[:cut])
		binary.BigEndian.PutUint16(short[rig.AtLength:], uint16(cut-rig.AtUpper))
		r.Send(t, short).Is(t, fmt.Sprintf("quotes %d bytes", cut-rig.AtUpper-8), rig.XDPDrop, nil, "drop_unserved")
		padded := slices.Concat(short, word[cut:])
		r.Send(t, padded).Is(t, fmt.Sprintf("quotes %d bytes, the rest is padding", cut-rig.AtUpper-8), rig.XDPDrop, nil, "drop_malformed_transport")
	}
}
