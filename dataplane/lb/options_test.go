package lb_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// testOptions: a packet with options goes where it goes without them, whatever the mode, the
// wire and the family, by the first packet, a later one and a datagram; and the options travel.
func testOptions(t *testing.T, seen rig.Hits) {
	for _, mode := range []topo.Dispatch{topo.Single, topo.Hunt, topo.Stateless, topo.Learned, topo.Rr} {
		for _, insert := range []bool{false, true} {
			for _, four := range []bool{false, true} {
				if insert && (four || mode != topo.Hunt) {
					continue
				}
				svc := rig.Hunting(2, 4, func(s *topo.Service) {
					s.Dispatch = mode
					if insert {
						s.Wire = topo.Insert
					}
					if four {
						rig.Over4(s)
					}
				})
				packets := []rig.Packet{rig.Inward(rig.HuntPort, wire.SYN), rig.Inward(rig.HuntPort, wire.ACK)}
				for i, p := range packets {
					if four {
						packets[i] = rig.OverIPv4(p)
					}
				}
				label := fmt.Sprintf("%v, insert %v, IPv4 %v", mode, insert, four)
				for n, change := range rig.Changes(four) {
					t.Run(fmt.Sprintf("%s, options %d", label, n), func(t *testing.T) { wantWithOptions(t, seen, svc, packets, change) })
				}
			}
		}
	}
}

// wantWithOptions sends packets with options to an LB, and without to another that is as fresh.
func wantWithOptions(t *testing.T, seen rig.Hits, svc topo.Service, packets []rig.Packet, change func([]byte) []byte) {
	t.Helper()
	plain, with := rig.NewLB(t, rig.Hits{}, svc), rig.NewLB(t, seen, svc)
	var first []byte // the server, where it is chosen by load or turn
	for _, p := range packets {
		want := plain.Send(t, p.Frame())
		frame := change(p.Frame())
		got := with.Send(t, frame)
		if want.Action != rig.XDPTX || got.Action != rig.XDPTX || !slices.Equal(got.Reasons, want.Reasons) {
			t.Errorf("action %d for %v, want %d for %v", got.Action, got.Reasons, want.Action, want.Reasons)
			continue
		}
		if frame[12] == 8 { // the checksum follows the TTL
			frame[22]--
			sum := frame[24:26]
			binary.BigEndian.PutUint16(sum, binary.BigEndian.Uint16(sum)+0x100)
		} else {
			frame[rig.AtHop]--
		}
		if !bytes.HasSuffix(got.Frame, frame[14:]) {
			t.Errorf("left as %x, want the packet %x in it", got.Frame, frame[14:])
		}
		to, same := got.Frame[rig.AtDst:rig.AtDst+16], want.Frame[rig.AtDst:rig.AtDst+16]
		if svc.Dispatch == topo.Learned || svc.Dispatch == topo.Rr {
			if first == nil {
				first = to
			}
			same = first
		}
		if svc.Wire == topo.Encap && !bytes.Equal(to, same) {
			t.Errorf("to %x, want %x", to, same)
		}
	}
}

// testOptionsRefused: source routes, and more options than a bound, are dropped and counted.
func testOptionsRefused(t *testing.T, seen rig.Hits) {
	r := rig.NewLB(t, seen, rig.Hunting(2, 8), rig.Hunting(2, 8, rig.Over4))
	plain := rig.Inward(rig.HuntPort, wire.SYN).Frame()
	for _, kind := range []byte{0, 2, 3, 4, 77} {
		routed := rig.WithExtension(plain, 43, 2)
		routed[rig.AtUpper+2] = kind
		r.Send(t, routed).Is(t, fmt.Sprint("routing header ", kind), rig.XDPDrop, nil, "drop_source_route")
		r.Send(t, rig.WithExtension(routed, 60, 0)).Is(t, fmt.Sprint("behind another, routing header ", kind), rig.XDPDrop, nil, "drop_source_route")
	}
	chain := plain
	for range 8 {
		chain = rig.WithExtension(chain, 60, 0)
	}
	r.Send(t, chain).Is(t, "eight headers", rig.XDPTX, nil, "offer")
	r.Send(t, rig.WithExtension(chain, 60, 0)).Is(t, "nine headers", rig.XDPDrop, nil, "drop_extension_header")
	r.Send(t, rig.WithExtension(plain, 60, 63)).Is(t, "512 bytes", rig.XDPTX, nil, "offer")
	r.Send(t, rig.WithExtension(plain, 60, 64)).Is(t, "520 bytes", rig.XDPDrop, nil, "drop_extension_header")
	r.Send(t, rig.WithExtension(rig.WithExtension(plain, 0, 0), 60, 0)).Is(t, "hop-by-hop options that are not first", rig.XDPDrop, nil, "drop_extension_header")
	part := rig.WithExtension(plain, 44, 0)
	part[rig.AtUpper+3] = 1
	r.Send(t, part).Is(t, "more fragments", rig.XDPDrop, nil, "drop_fragment")
	r.Send(t, rig.WithExtension(part, 0, 0)).Is(t, "more fragments, behind options", rig.XDPDrop, nil, "drop_fragment")

	four := rig.OverIPv4(rig.Inward(rig.HuntPort, wire.SYN)).Frame()
	for _, kind := range []byte{131, 137} {
		r.Send(t, rig.WithIPv4Options(four, kind, 7, 4, 192, 0, 2, 1, 0)).Is(t, fmt.Sprint("IPv4 source route ", kind), rig.XDPDrop, nil, "drop_source_route")
		r.Send(t, rig.WithIPv4Options(four, 1, kind, 7, 4, 192, 0, 2, 1)).Is(t, fmt.Sprint("behind another option, ", kind), rig.XDPDrop, nil, "drop_source_route")
		later := rig.WithIPv4Options(four, kind, 7, 4, 192, 0, 2, 1, 0)
		later[21] = 5
		r.Send(t, later).Is(t, fmt.Sprint("in a fragment, ", kind), rig.XDPDrop, nil, "drop_source_route")
	}
	r.Send(t, rig.WithIPv4Options(four, bytes.Repeat([]byte{1}, 40)...)).Is(t, "forty no-operations", rig.XDPTX, nil, "offer")
	r.Send(t, rig.WithIPv4Options(four, bytes.Repeat([]byte{94, 2}, 20)...)).Is(t, "twenty options", rig.XDPTX, nil, "offer")
	r.Send(t, rig.WithIPv4Options(four, 7, 0, 0, 0)).Is(t, "an option of no bytes", rig.XDPDrop, nil, "drop_extension_header")
	r.Send(t, rig.WithIPv4Options(four, 7, 9, 0, 0)).Is(t, "an option past the end", rig.XDPDrop, nil, "drop_extension_header")
}

// testTimeExceeded: a packet of which the hop limit ends at the LB is answered (RFC 4443 §3.3,
// RFC 792), with options or without, long or short; an ICMP error is not, nor a group's.
func testTimeExceeded(t *testing.T, seen rig.Hits) {
	r := rig.NewLB(t, seen, rig.Hunting(2, 8), rig.Hunting(2, 8, rig.Over4), kept(4, rig.Over4))
	for _, p := range []rig.Packet{rig.Inward(rig.HuntPort, wire.SYN), rig.Inward(rig.HuntPort, wire.ACK), rig.Sized(rig.Inward(rig.HuntPort, wire.ACK), 1400)} {
		for _, hop := range []byte{0, 1} {
			for _, frame := range append(rig.Optioned(p.Frame(), rig.OverIPv4(p).Frame()), p.Frame(), rig.OverIPv4(p).Frame()) {
				wantTimeExceeded(t, r, frame, hop)
			}
		}
	}
	wantOwnSource(t, r)
	about := rig.TooBig(rig.Sized(rig.Outward(rig.HuntPort, wire.ACK), 200), 1400)
	r.Send(t, rig.Altered(about.Frame(), rig.AtHop, 1)).Is(t, "an error", rig.XDPDrop, nil, "drop_hop_limit")
	group := rig.Inward(rig.HuntPort, wire.SYN).Frame()
	group[rig.AtDst-16] = 0xff
	r.Send(t, rig.Altered(group, rig.AtHop, 1)).Is(t, "from a group", rig.XDPDrop, nil, "drop_hop_limit")
	other := rig.Inward(rig.HuntPort, wire.SYN).Frame()
	other[rig.AtDst+15] ^= 8
	r.Send(t, rig.Altered(other, rig.AtHop, 1)).Is(t, "for no VIP", rig.XDPPass, rig.Altered(other, rig.AtHop, 1), "pass_not_service")
	r.Send(t, rig.Altered(rig.Echo(rig.Inward(0, 0), 128, nil), rig.AtHop, 1)).Is(t, "an echo, which is for the LB", rig.XDPTX, nil, "echo_reply")
}

// wantOwnSource demands that the answer comes from the LB's own address of the family, if it has one.
func wantOwnSource(t *testing.T, r *rig.LB) {
	t.Helper()
	six, four := netip.MustParseAddr("2001:db8:1:101::2"), netip.MustParseAddr("10.101.0.2")
	source := func(frame []byte, four bool) netip.Addr {
		if four {
			return netip.AddrFrom4([4]byte(frame[26:]))
		}
		return netip.AddrFrom16([16]byte(frame[22:]))
	}
	p := rig.Inward(rig.HuntPort, wire.SYN)
	frames := map[bool][]byte{false: rig.Altered(p.Frame(), rig.AtHop, 1), true: rig.Altered(rig.OverIPv4(p).Frame(), 22, 1)}
	vip := func(v4 bool) netip.Addr {
		if v4 {
			return netip.AddrFrom4([4]byte(frames[true][30:]))
		}
		return netip.AddrFrom16([16]byte(frames[false][rig.AtDst:]))
	}
	for _, set := range [][2]netip.Addr{{six, four}, {}, {{}, four}} {
		var own [2][16]byte
		for i, a := range set {
			if a.IsValid() {
				own[i] = a.As16()
			}
		}
		if err := r.Objects().LinkAddresses.Set(own); err != nil {
			t.Fatal(err)
		}
		for i, v4 := range []bool{false, true} {
			want := set[i]
			if !want.IsValid() {
				want = vip(v4)
			}
			out := r.Send(t, frames[v4])
			out.Is(t, "time exceeded", rig.XDPTX, nil, "time_exceeded")
			if got := source(out.Frame, v4); got != want {
				t.Errorf("time exceeded from %v, want %v", got, want)
			}
		}
	}
	if err := r.Objects().LinkAddresses.Set([2][16]byte{}); err != nil {
		t.Fatal(err)
	}
}

// wantTimeExceeded demands the answer to a frame with a hop limit that ends.
func wantTimeExceeded(t *testing.T, r *rig.LB, frame []byte, hop byte) {
	t.Helper()
	at, kind, header, most := rig.AtHop, byte(3), 40, 1280-48
	if frame[12] == 8 {
		at, kind, header, most = 22, 11, 20, 576-28
	}
	sent := rig.Altered(frame, at, hop)
	out := r.Send(t, sent)
	out.Is(t, "time exceeded", rig.XDPTX, nil, "time_exceeded")
	quote := sent[14:]
	got := out.Frame[14+header:]
	if got[0] != kind || got[1] != 0 || !bytes.Equal(got[8:], quote[:min(len(quote), most)]) {
		t.Errorf("answer %x to %x", out.Frame, sent)
	}
	if frame[12] == 8 {
		if rig.Sum(got) != 0 {
			t.Errorf("checksum of %x", got)
		}
		return
	}
	var ip wire.IP
	ip.Source, ip.Destination = netip.AddrFrom16([16]byte(out.Frame[22:])), netip.AddrFrom16([16]byte(out.Frame[38:]))
	if ip.Destination != netip.AddrFrom16([16]byte(frame[22:])) || ip.Checksum(wire.ProtoICMPv6, got) != 0 {
		t.Errorf("to %v, checksum of %x", ip.Destination, got)
	}
}
