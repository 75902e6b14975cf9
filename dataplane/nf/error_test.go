package nf_test

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"proffer/proof/rig"
	"proffer/wire"
)

// icmpError is an error from a host about a packet, to the packet's source.
func icmpError(from, to netip.Addr, kind, code byte, rest uint32, about []byte) []byte {
	ip := wire.IP{Source: from, Destination: to, HopLimit: 50, Class: 0x28, ID: 7}
	return ip.ICMP(kind, code, rest, about)
}

// errorsOf are the errors of a family: unreachable, too big, time exceeded, parameter problem.
func errorsOf(family int) [][2]byte {
	if family == 6 {
		return [][2]byte{{1, 4}, {2, 0}, {3, 0}, {4, 1}}
	}
	return [][2]byte{{3, 3}, {3, 1}, {3, 4}, {11, 0}, {12, 0}}
}

// testErrors: ICMP errors about a translated flow are translated in both directions, header and quote,
// to a new packet's bytes; the quote may end after its ports. Errors about no binding are dropped.
func testErrors(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen)
	there := to(1, natted)
	for _, family := range []int{4, 6} {
		router, inner := netip.MustParseAddr("198.51.100.254"), netip.MustParseAddr("10.1.9.9")
		public := public4
		if family == 6 {
			router, inner, public = netip.MustParseAddr("2001:db8:9::fe"), netip.MustParseAddr("2001:db8:1::99"), public6
		}
		for i, kind := range []string{"tcp", "udp", "echo"} {
			f := outward(kind, family, 3000+i)
			after := f.after(portOf(t, kind, b.run(t, around(there, f.packet())), kind))
			for _, e := range errorsOf(family) {
				for _, quoted := range []int{1000, wire.IPv4Bytes + (family-4)*10 + 8} {
					cut := func(packet []byte) []byte { return packet[:min(quoted, len(packet))] }
					label := f.from.String() + " " + kind
					from := icmpError(router, public, e[0], e[1], 1400, cut(after.packet()))
					want := icmpError(router, f.from.Addr(), e[0], e[1], 1400, cut(f.packet()))
					b.run(t, around(there, from)).Is(t, label+", error of the world", redirect, around(rig.Back(there), want), "returned")
					for _, host := range []netip.Addr{f.from.Addr(), inner} {
						from = icmpError(host, f.to.Addr(), e[0], e[1], 1400, cut(f.reversed().packet()))
						want = icmpError(public, f.to.Addr(), e[0], e[1], 1400, cut(after.reversed().packet()))
						b.run(t, around(there, from)).Is(t, label+", error of the client network", redirect, around(rig.Back(there), want), "returned")
					}
				}
			}
		}
	}
	unbound := outward("udp", 4, 4000)
	b.run(t, around(there, icmpError(client4, remote4, 3, 3, 0, unbound.reversed().packet()))).Is(t, "no binding", rig.XDPDrop, nil, "drop_nat_unknown")
	stray := unbound.after(first + 60)
	b.run(t, around(there, icmpError(remote4, public4, 11, 0, 0, stray.packet()))).Is(t, "of the world, no binding", rig.XDPDrop, nil, "drop_nat_unknown")
	none := wire.IP{Source: client4, Destination: remote4, HopLimit: 50}.UDP(3001, 80, []byte("x"))
	none[26], none[27] = 0, 0 // no checksum
	out := b.run(t, around(there, none))
	_, changed, err := wire.ParseTunnel(out.Frame)
	must(t, err)
	b.run(t, around(there, icmpError(remote4, public4, 3, 3, 0, changed))).Is(t, "a quote without a checksum", redirect, around(rig.Back(there), icmpError(remote4, client4, 3, 3, 0, none)), "returned")
}

// testBadErrors: an error that quotes no ports of a flow is no packet of one.
func testBadErrors(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen)
	whole := outward("udp", 4, 1).packet()
	later := append([]byte{}, whole...)
	binary.BigEndian.PutUint16(later[6:], 8) // not the first fragment
	options := append([]byte{}, whole...)
	options[0] = 0x46
	gre := wire.IP{Source: client4, Destination: remote4, HopLimit: 9}.Around(47, make([]byte, 20))
	timestamp := wire.IP{Source: client4, Destination: remote4, HopLimit: 9}.ICMP(13, 0, 1, make([]byte, 12))
	for label, quote := range map[string][]byte{"cut short": whole[:27], "a later fragment": later, "GRE": gre, "timestamp": timestamp, "nothing": nil, "IPv6 in IPv4": outward("udp", 6, 1).packet()} {
		b.run(t, around(to(0, natted), icmpError(remote4, client4, 11, 0, 0, quote))).Is(t, label, rig.XDPDrop, nil, "drop_malformed")
	}
	b.run(t, around(to(0, natted), icmpError(remote4, client4, 11, 0, 0, options))).Is(t, "behind options, of no binding", rig.XDPDrop, nil, "drop_nat_unknown")
	redirected := icmpError(remote4, client4, 5, 0, 0, whole)
	b.run(t, around(to(0, natted), redirected)).Is(t, "redirect", rig.XDPDrop, nil, "drop_malformed")
}
