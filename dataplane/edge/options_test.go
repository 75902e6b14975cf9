package edge_test

import (
	"fmt"
	"net/netip"
	"testing"

	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// altered is a packet after a change that is written for frames.
func altered(packet []byte, change func([]byte) []byte) []byte {
	return change(wire.Frame(topo.MAC{}, topo.MAC{}, packet))[wire.EthernetBytes:]
}

// testOptions: a packet with options, of either side, is of the flow that it would be of without them, and a flow may
// begin with one; the options travel. An ICMP error is of the flow of the packet that it quotes, with options, too.
func testOptions(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen)
	address(t, "world", "2001:db8:18::1/64")
	port := 3000
	for _, kind := range []string{"tcp", "udp", "echo"} {
		for _, four := range []bool{false, true} {
			for n, change := range rig.Changes(four) {
				port++
				f := from6(kind, port)
				if four {
					f = from4(kind, port)
				}
				if kind == "echo" {
					f.to = netip.AddrPortFrom(f.to.Addr(), f.from.Port())
				}
				label := fmt.Sprintf("%v, options %d", f, n)
				first, later := altered(f.packet(), change), altered(f.later(), change)
				to := b.tunnelled(t, label, b.fromClient(t, first), first, "flow_begun", "steer")
				for _, packet := range [][]byte{later, f.later()} {
					if again := b.tunnelled(t, label, b.fromClient(t, packet), packet, "steer"); again.Instance != to.Instance {
						t.Errorf("%s: to %v, then to %v", label, to.Instance, again.Instance)
					}
				}
				answer := altered(f.reversed().later(), change)
				if again := b.tunnelled(t, label, b.fromWorld(t, answer), answer, "steer"); again.Instance != to.Instance || !again.Inward {
					t.Errorf("%s: the answer went to %+v", label, again)
				}
				ip, code := wire.IP{Source: netip.MustParseAddr("192.0.2.77"), Destination: f.from.Addr(), HopLimit: 9}, byte(11)
				if !four {
					ip.Source, code = netip.MustParseAddr("2001:db8:77::1"), 3
				}
				about := ip.ICMP(code, 0, 0, first)
				if again := b.tunnelled(t, label, b.fromWorld(t, about), about, "steer"); again.Instance != to.Instance {
					t.Errorf("%s: an error about it went to %v, want %v", label, again.Instance, to.Instance)
				}
			}
		}
	}
}

// testSourceRoutes: they are dropped from either side, and make no state.
func testSourceRoutes(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen)
	for _, f := range []flow{from4("tcp", 1), from6("tcp", 1), from4("udp", 2), from6("udp", 2), from4("echo", 3), from6("echo", 3)} {
		var routes []func([]byte) []byte
		for _, kind := range []byte{0, 2, 3, 4, 131, 137} {
			if f.from.Addr().Is4() == (kind > 100) {
				routes = append(routes, func(frame []byte) []byte {
					if kind > 100 {
						return rig.WithIPv4Options(frame, 1, kind, 7, 4, 192, 0, 2, 1)
					}
					frame = rig.WithExtension(frame, 43, 2)
					frame[rig.AtUpper+2] = kind
					return frame
				})
			}
		}
		for n, route := range routes {
			label := fmt.Sprintf("%v, route %d", f, n)
			b.fromClient(t, altered(f.packet(), route)).Is(t, label, rig.XDPDrop, nil, "drop_source_route")
			b.fromWorld(t, altered(f.reversed().later(), route)).Is(t, label, rig.XDPDrop, nil, "drop_source_route")
		}
	}
	if n := b.flows(t); n != 0 {
		t.Errorf("%d entries", n)
	}
}

// testTimeExceeded: the sender of a packet of which the hop limit ends at the LB is told so by the LB's own address
// at that link, whether the LB knows the flow or not and before a function changed the packet; with options, too. No
// entry is made, and an error is not answered.
func testTimeExceeded(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen)
	address(t, "clients", "10.1.0.1/16")
	address(t, "clients", "2001:db8:1::1/48")
	address(t, "world", "2001:db8:18::1/64")
	_, err := b.Follow()
	must(t, err)
	own := map[bool][2]netip.Addr{true: {netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("198.18.0.1")}, false: {netip.MustParseAddr("2001:db8:1::1"), netip.MustParseAddr("2001:db8:18::1")}}
	ending := func(packet []byte) []byte {
		if packet[0]>>4 == 4 {
			sum := []byte{packet[10], packet[11]}
			left := packet[8] - 1
			packet[8] = 1
			high := uint32(sum[0])<<8 | uint32(sum[1]) // RFC 1624
			high += uint32(left) << 8
			high = high&0xffff + high>>16
			packet[10], packet[11] = byte(high>>8), byte(high)
		} else {
			packet[7] = 1
		}
		return packet
	}
	for i, f := range []flow{from4("tcp", 11), from6("tcp", 11), from4("udp", 12), from6("udp", 12)} {
		four := f.from.Addr().Is4()
		kind := byte(3)
		if four {
			kind = 11
		}
		for _, known := range []bool{false, true} {
			flows := b.flows(t)
			packets := [][]byte{f.packet(), f.later()}
			for _, change := range rig.Changes(four) {
				packets = append(packets, altered(f.later(), change))
			}
			for n, packet := range packets {
				label := fmt.Sprintf("%v, known %v, packet %d", f, known, n)
				packet = ending(packet)
				out := b.fromClient(t, packet)
				if len(out.Reasons) != 1 || out.Reasons[0] != "time_exceeded" {
					t.Fatalf("%s: %v", label, out.Reasons)
				}
				isError(t, label, out.Frame, own[four][0], f.from.Addr(), kind, 0, packet)
			}
			answer := ending(f.reversed().later())
			out := b.fromWorld(t, answer)
			if len(out.Reasons) != 1 || out.Reasons[0] != "time_exceeded" {
				t.Fatalf("%v, from the world: %v", f, out.Reasons)
			}
			isError(t, "from the world", out.Frame, own[four][1], f.to.Addr(), kind, 0, answer)
			if b.flows(t) != flows {
				t.Errorf("%v: entries were made", f)
			}
			if !known {
				b.tunnelled(t, f.String(), b.fromClient(t, f.packet()), f.packet(), "flow_begun", "steer")
			}
		}
		about := ending(wire.IP{Source: netip.MustParseAddr("192.0.2.77"), Destination: client4, HopLimit: 9}.ICMP(11, 0, 0, from4("udp", 12).packet()))
		if i == 3 {
			b.fromWorld(t, about).Is(t, "an error", rig.XDPDrop, nil, "drop_hop_limit")
		}
	}
	b.spend(t)
	b.fromClient(t, ending(from4("udp", 12).packet())).Is(t, "above the limit", rig.XDPDrop, nil, "drop_limit_time_exceeded")
}
