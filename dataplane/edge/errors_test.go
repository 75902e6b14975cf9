package edge_test

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// spend takes all tokens of all limits.
func (b *bench) spend(t *testing.T) {
	t.Helper()
	rig.Spend(t, b.Objects().Limits, b.now)
}

// isError checks an ICMP error about a packet, behind its link header: type and code, ends, checksums
// and quote. It returns the rest of the ICMP header.
func isError(t *testing.T, label string, frame []byte, from, to netip.Addr, kind, code byte, about []byte) (rest uint32) {
	t.Helper()
	ip := frame[wire.EthernetBytes:]
	var source, destination netip.Addr
	var sum uint16
	at := wire.IPv4Bytes
	if from.Is6() {
		at = wire.IPv6Bytes
		source, destination = netip.AddrFrom16([16]byte(ip[8:24])), netip.AddrFrom16([16]byte(ip[24:40]))
		pseudo := append(ip[8:40:40], 0, 0, byte(len(ip[at:])>>8), byte(len(ip[at:])), 0, 0, 0, 58)
		sum = wire.Checksum(append(pseudo, ip[at:]...))
	} else {
		source, destination = netip.AddrFrom4([4]byte(ip[12:16])), netip.AddrFrom4([4]byte(ip[16:20]))
		sum = wire.Checksum(ip[:at]) | wire.Checksum(ip[at:])
	}
	icmp := ip[at:]
	quote := icmp[8:]
	if source != from || destination != to || icmp[0] != kind || icmp[1] != code || sum != 0 || len(quote) > len(about) || string(quote) != string(about[:len(quote)]) {
		t.Errorf("%s: the error is %x", label, ip)
	}
	return binary.BigEndian.Uint32(icmp[4:])
}

// testTooBig: a packet that does not fit into the tunnel is answered with the size that does, from either
// side, with or without an entry; errors are not, and not more than the limit.
func testTooBig(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen)
	const most = 1600 - 70
	long := func(from, to netip.Addr, bytes int) []byte {
		return wire.IP{Source: from, Destination: to, HopLimit: 9}.UDP(1, 2, make([]byte, bytes-28))
	}
	fits := long(client4, remote4, most)
	b.tunnelled(t, "fits", b.fromClient(t, fits), fits, "flow_begun", "steer")
	over := wire.IP{Source: remote4, Destination: client4, HopLimit: 9}.UDP(2, 1, make([]byte, most-27))
	for _, label := range []string{"known", "known again"} {
		for _, c := range []struct {
			out      rig.Outcome
			from, to netip.Addr
			packet   []byte
		}{
			{b.fromWorld(t, over), client4, remote4, over},
			{b.fromClient(t, long(client4, remote4, most+1)), remote4, client4, long(client4, remote4, most+1)},
		} {
			c.out.Is(t, label, redirect, nil, "too_big")
			if rest := isError(t, label, c.out.Frame, c.from, c.to, 3, 4, c.packet); rest != most {
				t.Errorf("%s: a size of %d, want %d", label, rest, most)
			}
		}
	}
	segment := wire.IP{Source: client4, Destination: remote4, HopLimit: 9}.TCP(wire.TCP{From: 1, To: 2, Flags: wire.ACK}, make([]byte, most-39))
	out := b.fromClient(t, segment)
	out.Is(t, "a question", redirect, nil, "too_big")
	isError(t, "a question", out.Frame, remote4, client4, 3, 4, segment)
	six := wire.IP{Source: client6, Destination: remote6, HopLimit: 9}.UDP(1, 2, make([]byte, most))
	out = b.fromClient(t, six)
	out.Is(t, "IPv6", rig.XDPPass, nil, "too_big", "flow_begun") // no route: the kernel's
	if rest := isError(t, "IPv6", out.Frame, remote6, client6, 2, 0, six); rest != most {
		t.Errorf("IPv6: a size of %d, want %d", rest, most)
	}
	b.spend(t)
	b.fromClient(t, long(client4, remote4, most+1)).Is(t, "above the limit", rig.XDPDrop, nil, "drop_too_big")
	b.at(t, b.now+time.Second)
	b.fromClient(t, long(client4, remote4, most+1)).Is(t, "a second later", redirect, nil, "too_big")
}

// testNarrow: a changed packet that is too long for the link behind the LB is answered as its sender sent
// it, in either direction; one that a router may fragment, and one without a change, are the kernel's.
func testNarrow(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen)
	const most = 1300
	address(t, "clients", "10.1.0.1/16")
	address(t, "clients", "2001:db8:1::1/48")
	address(t, "world", "2001:db8:9::1/48")
	for _, name := range []string{"clients", "world"} {
		l, err := netlink.LinkByName(name)
		must(t, err)
		must(t, netlink.LinkSetMTU(l, most))
	}
	long := func(f flow) []byte {
		ip := wire.IP{Source: f.from.Addr(), Destination: f.to.Addr(), HopLimit: 50}
		switch f.kind {
		case "tcp":
			return ip.TCP(wire.TCP{From: f.from.Port(), To: f.to.Port(), Flags: wire.ACK}, make([]byte, most))
		case "udp":
			return ip.UDP(f.from.Port(), f.to.Port(), make([]byte, most))
		}
		kind := byte(8)
		if ip.Source.Is6() {
			kind = 128
		}
		return ip.ICMP(kind, 0, uint32(f.from.Port())<<16|1, make([]byte, most))
	}
	echo := func(client, remote netip.Addr) flow {
		return flow{"echo", netip.AddrPortFrom(client, 9), netip.AddrPortFrom(remote, 9)}
	}
	for i, f := range []flow{from4("tcp", 1), from4("udp", 2), echo(client4, remote4), from6("tcp", 1), from6("udp", 2), echo(client6, remote6)} {
		to := b.tunnelled(t, f.String(), b.fromClient(t, f.packet()), f.packet(), "flow_begun", "steer")
		changed := natted(f, 40000+i)
		if out := b.fromNode(t, back(to), changed.packet()); out.Action == rig.XDPDrop {
			t.Fatalf("%v: %v", f, out.Reasons)
		}
		kind, code := byte(3), byte(4)
		if f.from.Addr().Is6() {
			kind, code = 2, 0
		}
		for _, c := range []struct {
			label        string
			came, leaves flow
			sent         func(*testing.T, []byte) rig.Outcome
		}{
			{"outward", f, changed, b.fromClient},
			{"inward", changed.reversed(), f.reversed(), b.fromWorld},
		} {
			label := c.label + " " + f.String()
			to := b.tunnelled(t, label, c.sent(t, long(c.came)), long(c.came), "steer")
			out := b.fromNode(t, back(to), long(c.leaves))
			if len(out.Reasons) != 1 || out.Reasons[0] != "too_big" {
				t.Fatalf("%s: %v", label, out.Reasons)
			}
			if rest := isError(t, label, out.Frame, c.came.to.Addr(), c.came.from.Addr(), kind, code, long(c.came)); rest != most {
				t.Errorf("%s: a size of %d, want %d", label, rest, most)
			}
			b.fromNode(t, back(to), long(c.came)).Is(t, label+", as it was", rig.XDPPass, nil, "pass_to_router")
		}
	}
	f := from4("udp", 2)
	to := b.tunnelled(t, "divisible", b.fromClient(t, long(f)), long(f), "steer")
	divisible := long(natted(f, 40001))
	divisible[6] = 0
	b.fromNode(t, back(to), divisible).Is(t, "divisible", rig.XDPPass, nil, "pass_to_router")
	b.spend(t)
	b.fromNode(t, back(to), long(natted(f, 40001))).Is(t, "above the limit", rig.XDPDrop, nil, "drop_too_big")
}

// testEnded: a flow of datagrams that functions changed cannot go on at another node: its client gets an error,
// and its next datagram begins another flow. Without a change it moves.
func testEnded(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen)
	must(t, b.SetWeights(service, []float64{1, 0, 0}))
	f, echo := from4("udp", 30), flow{"echo", netip.AddrPortFrom(client4, 31), netip.AddrPortFrom(remote4, 31)}
	for i, f := range []flow{f, echo, from6("udp", 32)} {
		to := b.tunnelled(t, f.String(), b.fromClient(t, f.packet()), f.packet(), "flow_begun", "steer")
		changed := natted(f, 40000+i)
		if out := b.fromNode(t, back(to), changed.packet()); out.Action == rig.XDPDrop {
			t.Fatalf("%v: %v", f, out.Reasons)
		}
	}
	must(t, b.SetNextHop(1, topo.MAC{}))
	must(t, b.SetWeights(service, []float64{0, 0, 1}))
	for _, f := range []flow{f, echo, from6("udp", 32)} {
		if f.kind == "udp" {
			answer := f.reversed()
			b.asks(t, "from the world", b.fromWorld(t, answer.packet()), answer.packet(), 200)
		}
		asked := b.asks(t, f.String(), b.fromClient(t, f.packet()), f.packet(), 200)
		out := b.fromNode(t, notMine(asked), f.packet())
		kind, code, action := byte(3), byte(3), uint32(redirect)
		if f.from.Addr().Is6() {
			kind, code, action = 1, 4, rig.XDPPass
		}
		out.Is(t, f.String(), action, nil, "unowned", "flow_ended")
		isError(t, f.String(), out.Frame, f.to.Addr(), f.from.Addr(), kind, code, f.packet())
		b.tunnelled(t, "the next", b.fromClient(t, f.packet()), f.packet(), "flow_begun", "steer")
	}
	if n := b.flows(t); n != 3 {
		t.Errorf("%d entries of 3 flows that began again", n)
	}
	g := from4("udp", 33)
	b.tunnelled(t, "another", b.fromClient(t, g.packet()), g.packet(), "flow_begun", "steer")
	to := b.tunnelled(t, "another", b.fromClient(t, g.packet()), g.packet(), "steer")
	b.fromNode(t, back(to), natted(g, 41000).packet()).Is(t, "change", redirect, nil, "update_learned")
	must(t, b.SetNextHop(200, topo.MAC{}))
	rig.SpendOf(t, b.Objects().Limits, b.now, rig.LimitRefusal, service)
	b.fromClient(t, g.packet()).Is(t, "above the limit", rig.XDPDrop, nil, "unowned", "drop_limit_refusal")
}
