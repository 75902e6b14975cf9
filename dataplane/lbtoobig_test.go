package dataplane

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"proffer/policy"
	"proffer/topo"
)

// sized is p with a payload that makes it so long.
func sized(p packet, length int) packet {
	p.payload = nil
	p.payload = make([]byte, length-len(p.ip()))
	for i := range p.payload {
		p.payload[i] = byte(i)
	}
	return p
}

// testTooBigMade: a packet without room for its route is answered, of either
// family, exactly where the room ends; errors are not.
func testTooBigMade(t *testing.T, seen hits) {
	for _, change := range []func(*topo.Service){func(*topo.Service) {}, inserting, over4, viaTransit(2)} {
		svc := hunting(2, 8, change)
		r := newLBRig(t, seen, svc)
		header, one := 64, 40
		if svc.Wire == topo.Insert {
			header, one = 72, 56
		}
		if n := len(svc.Via); n > 0 {
			header, one = header+16*n, one+8+16*n
		}
		limit := mtu - longestHeader(&svc)
		p := inward(huntPort, ack)
		if svc.VIP.Addr.Is4() {
			p = overIPv4(p)
		}
		what := func(length int) string { return fmt.Sprintf("%v, %v, %d bytes", svc.VIP, svc.Wire, length) }
		for _, length := range []int{limit, mtu - header, mtu - header + 1, mtu - one, mtu - one + 1, mtu} {
			r.check(t, what(length)+", unknown", sized(p, length), length <= mtu-header, "recover", limit)
		}
		r.accepted(t, 5, p)
		confirmed := p
		confirmed.ack = serverISN + 1
		r.send(t, confirmed.frame())
		for _, length := range []int{mtu - one, mtu - one + 1, mtu} {
			r.check(t, what(length)+", steered", sized(p, length), length <= mtu-one, "steer", limit)
		}
		about := tooBig(sized(p.reply(ack), mtu-one-47), 1400)
		if svc.VIP.Addr.Is4() {
			about = tooBig(sized(p.reply(ack), mtu-one-27), 1400)
		}
		r.send(t, about.frame()).is(t, what(0)+", an error", xdpDrop, nil, "drop_too_big")
	}
}

// check sends a packet that does or does not fit.
func (r *lbRig) check(t *testing.T, what string, p packet, fits bool, why string, limit int) {
	t.Helper()
	out := r.send(t, p.frame())
	if fits {
		out.is(t, what, xdpTX, nil, why)
		return
	}
	out.is(t, what, xdpTX, nil, "too_big")
	if out.action == xdpTX {
		checkTooBig(t, what, out.frame[14:], p, limit)
		if !slices.Equal(out.frame[:12], slices.Concat(routerMAC[:], hereMAC[:])) {
			t.Errorf("%s: link header %x", what, out.frame[:14])
		}
	}
}

// TestTooBigOnSmallLink: with the smallest of links every packet is near its
// limit, and what is quoted is short.
func TestTooBigOnSmallLink(t *testing.T) {
	const small = 1280
	enter(t)
	link, err := netlink.LinkByName(device)
	if err == nil {
		err = netlink.LinkSetMTU(link, small)
	}
	if err != nil {
		t.Fatal(err)
	}
	r := lbRigOf(t, hits{}, lbConfig(hunting(2, 8), hunting(2, 8, over4)))
	if dev, err := net.InterfaceByName(device); err != nil || dev.MTU != small {
		t.Fatalf("MTU of %s: %v, %v", device, dev, err)
	}
	for length := small - 64; length <= small; length++ {
		r.check(t, fmt.Sprint(length), sized(inward(huntPort, ack), length), length <= small-64, "recover", small)
		r.check(t, fmt.Sprint(length, " of IPv4"), sized(overIPv4(inward(huntPort, ack)), length), length <= small-64, "recover", small-80)
	}
	r.resolve(t, 255)
	if err := r.SetNextHops(topo.NextHops{serverLocator(1): hopMAC(1)}); err != nil {
		t.Fatal(err)
	}
	r.send(t, sized(inward(huntPort, ack), small).frame()).is(t, "no way to the client", xdpDrop, nil, "drop_no_next_hop")
}

// aboutOurs is a router's word that a frame of ours was too big for a link.
func aboutOurs(frame []byte, mtu, quote int) []byte {
	router := netip.MustParseAddr("fd00:0:0:7::1")
	quoted := frame[14:]
	icmp := binary.BigEndian.AppendUint32([]byte{2, 0, 0, 0}, uint32(mtu))
	icmp = append(icmp, quoted[:min(len(quoted), quote)]...)
	to := netip.AddrFrom16([16]byte(quoted[8:24]))
	binary.BigEndian.PutUint16(icmp[2:], checksum(router, to, 58, icmp))
	return ethernet(hereMAC, transitMAC, append(ipv6(router, to, 0, 0, 60, 58, len(icmp)), icmp...))
}

// testTooBigTranslated: RFC 2473 §7.1: the client hears of its own packet, and
// of a link so much smaller as our header is long.
func testTooBigTranslated(t *testing.T, seen hits) {
	r := newLBRig(t, seen, hunting(2, 8), hunting(3, 8, over4), hunting(1, 8, overUDP))
	for _, c := range []struct {
		p      packet
		header int
	}{
		{sized(inward(huntPort, ack), 1400), 64},
		{sized(overIPv4(inward(huntPort, ack)), 1400), 80},
		{sized(datagram(huntPort, ""), 1400), 64},
	} {
		frame := r.send(t, c.p.frame()).frame
		c.p.hop--
		for _, quote := range []int{1232, 256} {
			out := r.send(t, aboutOurs(frame, 1450, quote))
			what := fmt.Sprintf("%v, %d bytes quoted", c.p.dst, quote)
			out.is(t, what, xdpTX, nil, "too_big_translated")
			checkTooBig(t, what, out.frame[14:], c.p, 1450-c.header)
			if !slices.Equal(out.frame[:12], slices.Concat(routerMAC[:], hereMAC[:])) {
				t.Errorf("%s: link header %x", what, out.frame[:14])
			}
		}
	}
	r.learn(t, 5, clientISN)
	p := sized(inward(huntPort, ack), 1400)
	frame := r.send(t, p.frame()).frame
	p.hop--
	out := r.send(t, aboutOurs(frame, 1400, 1232))
	out.is(t, "without SRH", xdpTX, nil, "too_big_translated")
	checkTooBig(t, "without SRH", out.frame[14:], p, 1360)

	good := aboutOurs(frame, 1400, 1232)
	const outerAt = atUpper + 8
	lost := inward(huntPort, ack)
	lost.src = netip.MustParseAddrPort("[2001:db8:dead::1]:1")
	nested := tooBig(sized(outward(huntPort, ack), 1000), 1400)
	for _, c := range []struct {
		what   string
		frame  []byte
		action uint32
		why    string
	}{
		{"parameter problem", altered(good, atUpper, 4), xdpPass, "pass_own_address"},
		{"neighbour solicitation", altered(good, atUpper, 135), xdpPass, "pass_own_address"},
		{"cut in its header", good[:atUpper+7], xdpPass, "pass_own_address"},
		{"about a stranger's", altered(good, outerAt+8, 9), xdpDrop, "drop_malformed_too_big"},
		{"about TCP of ours", altered(good, outerAt+6, 6), xdpDrop, "drop_malformed_too_big"},
		{"quotes IPv4", altered(good, outerAt, 0x45), xdpDrop, "drop_malformed_too_big"},
		{"about no service", altered(good, outerAt+40+39, 9), xdpDrop, "drop_malformed_too_big"},
		{"quotes too little", aboutOurs(frame, 1400, 80), xdpDrop, "drop_malformed_too_big"},
		{"quotes ports, but too little for ours", aboutOurs(frame, 1400, 90), xdpDrop, "drop_malformed_too_big"},
		{"a link smaller than our header", aboutOurs(frame, 39, 1232), xdpDrop, "drop_malformed_too_big"},
		{"about a client without a way", aboutOurs(r.send(t, lost.frame()).frame, 1400, 1232), xdpDrop, "drop_no_next_hop"},
		{"about an error", aboutOurs(r.send(t, nested.frame()).frame, 1400, 1232), xdpDrop, "drop_too_big"},
	} {
		want := c.frame
		if c.action != xdpPass {
			want = nil
		}
		r.send(t, c.frame).is(t, c.what, c.action, want, c.why)
	}
}

// testTooBigSteered: a router's word about an answer goes where the flow is, and
// neither keeps an entry alive nor needs one.
func testTooBigSteered(t *testing.T, seen hits) {
	r := newLBRig(t, seen, hunting(2, 8), hunting(2, 8, over4), hunting(2, 8, overUDP), service(81, topo.Single, 1, 8))
	udp := datagram(huntPort, "x")
	for i, p := range []packet{inward(huntPort, syn), overIPv4(inward(huntPort, syn)), udp} {
		answer := sized(p.reply(ack), 600)
		word := tooBig(answer, 1300)
		list := r.list(t, i, p.flow())
		what := fmt.Sprint(p.dst, " ", p.protocol)
		r.send(t, word.frame()).is(t, what+", unknown", xdpTX, recovered(word, list), "recover")
		r.accepted(t, 5, p)
		generation := policy.Generation(p.seq)
		if p.protocol == topo.UDP {
			generation = 1
		}
		r.send(t, word.frame()).is(t, what+", embryo", xdpTX, toOne(word, 5, 0xa5, generation), "steer")
		if _, known := r.flow(t, p.flow()); known {
			t.Errorf("%s: a router's word confirmed a flow", what)
		}
		r.confirm(t, p)
		before, _ := r.flow(t, p.flow())
		r.at(t, r.now+1e9)
		r.send(t, word.frame()).is(t, what, xdpTX, toOne(word, 5, 0xa5, generation), "steer")
		if after, _ := r.flow(t, p.flow()); after != before {
			t.Errorf("%s: the entry became %+v", what, after)
		}
	}
	single := tooBig(sized(outward(81, ack), 600), 1300)
	r.send(t, single.frame()).is(t, "single", xdpTX, toOne(single, r.list(t, 3, single.flow())[0], 0xd7, 0), "deliver")
	for _, c := range []struct {
		mtu int
		ok  bool
	}{{1279, false}, {0, false}, {1280, true}, {1 << 20, true}} {
		word := tooBig(sized(outward(huntPort, ack), 600), c.mtu)
		if c.ok {
			r.send(t, word.frame()).is(t, fmt.Sprint(c.mtu), xdpTX, toOne(word, 5, 0xa5, policy.Generation(clientISN)), "steer")
		} else {
			r.send(t, word.frame()).is(t, fmt.Sprint(c.mtu), xdpDrop, nil, "drop_small_mtu")
		}
	}
	four := tooBig(sized(overIPv4(outward(huntPort, ack)), 600), 576)
	r.send(t, four.frame()).is(t, "IPv4 has no such limit", xdpTX, toOne(four, 5, 0xa5, policy.Generation(clientISN)), "steer")
	word := tooBig(outward(huntPort, ack), 1400).frame()
	for cut := atUpper + 8; cut < atUpper+8+44; cut++ {
		short := slices.Clone(word[:cut])
		binary.BigEndian.PutUint16(short[atLength:], uint16(cut-atUpper))
		r.send(t, short).is(t, fmt.Sprintf("quotes %d bytes", cut-atUpper-8), xdpPass, short, "pass_not_service")
		padded := slices.Concat(short, word[cut:])
		r.send(t, padded).is(t, fmt.Sprintf("quotes %d bytes, the rest is padding", cut-atUpper-8), xdpDrop, nil, "drop_malformed_transport")
	}
}
