package edge_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// bind begins a flow at node 1 and lets it come back translated. With recovered the LB meets it by a
// packet of the world, as after a restart.
func (b *bench) bind(t *testing.T, f flow, port int, recovered bool) (changed flow, to wire.Tunnel) {
	t.Helper()
	changed = natted(f, port)
	if !recovered {
		must(t, b.SetWeights(service, []float64{1, 0, 0}))
		to = b.tunnelled(t, f.String(), b.fromClient(t, f.packet()), f.packet(), "flow_begun", "steer")
		b.learns(t, to, changed.packet())
		return changed, to
	}
	answer := changed.reversed().later()
	asked := b.asks(t, f.String(), b.fromWorld(t, answer), answer, 1)
	to = b.tunnelled(t, f.String(), b.fromNode(t, owned(asked, 0), answer), answer, "recovered", "steer")
	b.learns(t, to, f.reversed().later())
	return changed, to
}

// learns lets a packet come back that a node changed.
func (b *bench) learns(t *testing.T, to wire.Tunnel, packet []byte) {
	t.Helper()
	before := b.flows(t)
	if out := b.fromNode(t, back(to), packet); out.Action == rig.XDPDrop || b.flows(t) != before+1 {
		t.Fatalf("a changed packet: %v, %d entries more", out.Reasons, b.flows(t)-before)
	}
}

// fails takes the next hop of node 1.
func (b *bench) fails(t *testing.T) {
	t.Helper()
	must(t, b.SetNextHop(1, topo.MAC{}))
	must(t, b.SetWeights(service, []float64{0, 0, 1}))
}

// unboundBy is a node's word that it has no binding for a packet.
func unboundBy(to wire.Tunnel) wire.Tunnel {
	to = back(to)
	to.Message, to.Inward, to.Instance = wire.MessageUnbound, true, wire.Instance{Server: to.Instance.Server}
	return to
}

// worldly is a segment of the world in a flow.
func worldly(f flow, s wire.TCP, payload string) []byte {
	ip := wire.IP{Source: f.to.Addr(), Destination: f.from.Addr(), HopLimit: 50, Class: 0x28, ID: 7}
	s.From, s.To = f.to.Port(), f.from.Port()
	return ip.TCP(s, []byte(payload))
}

// plain is a segment in its frame without flow label and DF, which one of ours may have otherwise, and without
// checksum.
func plain(t *testing.T, frame []byte) []byte {
	t.Helper()
	segment := slices.Clone(frame[wire.EthernetBytes:])
	at := wire.IPv6Bytes
	if segment[0]>>4 == 6 {
		copy(segment, []byte{0x60, 0, 0, 0})
	} else {
		at = wire.IPv4Bytes
		if wire.Checksum(segment[:at]) != 0 {
			t.Errorf("the header's checksum is wrong: %x", segment)
		}
		segment[6], segment[8], segment[10], segment[11] = 0, 0, 0, 0
	}
	segment[7] = 0 // a hop limit, or the end of DF's word
	segment[at+16], segment[at+17] = 0, 0
	return segment
}

// wantKeepAlive checks the frame to a client: a segment without payload, of the number before the world's,
// with the world's window and options and a good checksum.
func wantKeepAlive(t *testing.T, label string, f flow, s wire.TCP, frame []byte) {
	t.Helper()
	want := s
	want.Seq, want.Flags = s.Seq-1, wire.ACK
	want.From, want.To = f.to.Port(), f.from.Port()
	whole := wire.IP{Source: f.to.Addr(), Destination: f.from.Addr(), HopLimit: wire.DefaultHopLimit}.TCP(want, nil)
	if got, want := plain(t, frame), plain(t, wire.Frame(topo.MAC{}, topo.MAC{}, whole)); !slices.Equal(got, want) {
		t.Errorf("%s: the client gets\n%x\nwant\n%x", label, got, want)
	}
	if sum := sumOfTCP(frame[wire.EthernetBytes:]); sum != 0 {
		t.Errorf("%s: the checksum is off by %x", label, sum)
	}
}

// sumOfTCP is 0 if the checksum of a segment is right.
func sumOfTCP(ip []byte) uint16 {
	ends, tcp := ip[12:20], ip[wire.IPv4Bytes:]
	if ip[0]>>4 == 6 {
		ends, tcp = ip[8:40], ip[wire.IPv6Bytes:]
	}
	pseudo := append(slices.Clone(ends), 0, 6, byte(len(tcp)>>8), byte(len(tcp)))
	return wire.Checksum(append(pseudo, tcp...))
}

// testKeepAlive: a segment of the world to a public port that no node has bound any more goes to the client as
// a keep-alive, by word of the node or after its end, and whether the LB met the client or the world first.
func testKeepAlive(t *testing.T, seen rig.Hits) {
	timestamps := []byte{1, 1, 8, 10, 0, 0, 0, 9, 0, 0, 0, 5}
	for _, from := range []func(string, int) flow{from4, from6} {
		for _, recovered := range []bool{false, true} {
			b := newBench(t, seen)
			f := from("tcp", 50)
			changed, to := b.bind(t, f, 40000, recovered)
			for _, c := range []struct {
				label string
				wire.TCP
				payload string
			}{
				{"data", wire.TCP{Seq: 1000, Ack: 77, Flags: wire.ACK | wire.PSH, Options: timestamps}, "more bytes than a keep-alive has"},
				{"no options", wire.TCP{Seq: 0, Ack: 77, Flags: wire.ACK}, "data"},
				{"all options", wire.TCP{Seq: 5, Ack: 1, Flags: wire.ACK, Options: slices.Repeat([]byte{1}, 40)}, ""},
				{"FIN", wire.TCP{Seq: 1 << 31, Ack: 77, Flags: wire.ACK | wire.FIN, Options: timestamps}, ""},
				{"RST", wire.TCP{Seq: 1000, Flags: wire.RST}, ""},
			} {
				segment := worldly(changed, c.TCP, c.payload)
				there := b.tunnelled(t, c.label, b.fromWorld(t, segment), segment, "steer")
				if there.Instance != to.Instance {
					t.Errorf("%s goes to %+v", c.label, there.Instance)
				}
				out := b.fromNode(t, unboundBy(there), segment)
				if !slices.Equal(out.Reasons, []string{"keepalive"}) {
					t.Errorf("%s: %v", c.label, out.Reasons)
				}
				wantKeepAlive(t, c.label, f, c.TCP, out.Frame)
			}
			b.fails(t)
			s := wire.TCP{Seq: 4000, Ack: 7, Flags: wire.ACK, Options: timestamps}
			segment := worldly(changed, s, "data")
			asked := b.asks(t, "of a node that is gone", b.fromWorld(t, segment), segment, 200)
			out := b.fromNode(t, notMine(asked), segment)
			if !slices.Equal(out.Reasons, []string{"keepalive", "unowned"}) {
				t.Errorf("of a node that is gone: %v", out.Reasons)
			}
			wantKeepAlive(t, "of a node that is gone", f, s, out.Frame)
			must(t, b.SetNextHop(200, topo.MAC{}))
			out = b.fromWorld(t, segment)
			if !slices.Equal(out.Reasons, []string{"keepalive", "unowned"}) {
				t.Errorf("without any node: %v", out.Reasons)
			}
			wantKeepAlive(t, "without any node", f, s, out.Frame)
		}
	}
}

// testDatagramWord: of a datagram or an echo of the world the client gets an error about one of its own, and
// the flow ends.
func testDatagramWord(t *testing.T, seen rig.Hits) {
	for _, gone := range []bool{false, true} {
		for i, f := range []flow{from4("udp", 30), {"echo", netip.AddrPortFrom(client4, 31), netip.AddrPortFrom(remote4, 31)}, from6("udp", 32)} {
			b := newBench(t, seen)
			changed, _ := b.bind(t, f, 40000+i, false)
			answer := changed.reversed()
			var out rig.Outcome
			reasons := []string{"flow_ended"}
			if gone {
				b.fails(t)
				asked := b.asks(t, f.String(), b.fromWorld(t, answer.packet()), answer.packet(), 200)
				out = b.fromNode(t, notMine(asked), answer.packet())
				reasons = append(reasons, "unowned")
			} else {
				there := b.tunnelled(t, f.String(), b.fromWorld(t, answer.packet()), answer.packet(), "steer")
				out = b.fromNode(t, unboundBy(there), answer.packet())
			}
			kind, code, action := byte(3), byte(3), uint32(redirect)
			if f.from.Addr().Is6() {
				kind, code, action = 1, 4, rig.XDPPass
			}
			out.Is(t, f.String(), action, nil, reasons...)
			isError(t, f.String(), out.Frame, f.to.Addr(), f.from.Addr(), kind, code, f.packet())
			if n := b.flows(t); n != 0 {
				t.Errorf("%v: %d entries afterwards", f, n)
			}
		}
	}
}

// testPortAgain: a port that the node gave to another client tells that one; the LB's entry of it is as old
// as the first.
func testPortAgain(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen)
	first, second := from4("tcp", 80), from4("tcp", 81)
	changed, _ := b.bind(t, first, 40000, false)
	to := b.tunnelled(t, "the next client", b.fromClient(t, second.packet()), second.packet(), "flow_begun", "steer")
	b.fromNode(t, back(to), changed.packet()).Is(t, "the same port", redirect, nil, "update_known")
	s := wire.TCP{Seq: 1000, Ack: 77, Flags: wire.ACK}
	segment := worldly(changed, s, "data")
	there := b.tunnelled(t, "data", b.fromWorld(t, segment), segment, "steer")
	for i := range 20 {
		out := b.fromNode(t, unboundBy(there), segment)
		if i >= 16 {
			out.Is(t, "again and again", rig.XDPDrop, nil, "drop_unsolicited")
			continue
		}
		wantKeepAlive(t, "to the second client", second, s, out.Frame)
	}
	third := from4("tcp", 82)
	to = b.tunnelled(t, "one more client", b.fromClient(t, third.packet()), third.packet(), "flow_begun", "steer")
	b.fromNode(t, back(to), changed.packet()).Is(t, "the same port", redirect, nil, "update_known")
	wantKeepAlive(t, "to the third client", third, s, b.fromNode(t, unboundBy(there), segment).Frame)
}

// testNoWord: nothing goes to a client that the LB does not know, about a packet of a client, an error or a
// SYN, and not more than the limit.
func testNoWord(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen)
	f := from4("tcp", 60)
	changed, to := b.bind(t, f, 40000, false)
	ack := wire.TCP{Seq: 1000, Ack: 77, Flags: wire.ACK}
	of := func(to wire.Tunnel, g flow) wire.Tunnel {
		w := unboundBy(to)
		w.Flow = g.hash()
		return w
	}
	stranger := natted(from4("tcp", 61), 41000)
	b.fromNode(t, of(to, stranger), worldly(stranger, ack, "")).Is(t, "of no flow", rig.XDPDrop, nil, "drop_unsolicited")
	outward := of(to, f)
	outward.Inward = false
	b.fromNode(t, outward, f.later()).Is(t, "of a client", rig.XDPDrop, nil, "drop_unsolicited")
	b.fromNode(t, of(to, stranger), worldly(changed, ack, "")).Is(t, "of another flow", rig.XDPDrop, nil, "drop_other_packet")
	tooBig := rig.TooBig(rig.Packet{Src: changed.from, Dst: changed.to, Hop: 9}, 1000).Ip()
	b.fromNode(t, of(to, changed), tooBig).Is(t, "an error", rig.XDPDrop, nil, "drop_unsolicited")
	named := of(to, changed)
	named.Instance = to.Instance
	b.fromNode(t, named, worldly(changed, ack, "")).Is(t, "with an instance", rig.XDPDrop, nil, "drop_impossible_id")
	datagrams := from4("udp", 64)
	_, live := b.bind(t, datagrams, 44000, false)
	forged := datagrams.reversed().packet() // to the client's own address
	b.fromNode(t, of(live, datagrams), forged).Is(t, "to a client's own address", rig.XDPDrop, nil, "drop_unsolicited")
	b.tunnelled(t, "its flow goes on", b.fromClient(t, datagrams.packet()), datagrams.packet(), "steer")
	other := of(to, changed)
	other.From, other.To, other.Instance = nodeAddr[1], lbAddr[1], wire.Instance{Server: 200}
	b.fromNode(t, other, worldly(changed, ack, "")).Is(t, "by another node", rig.XDPDrop, nil, "drop_wrong_instance")
	u := from4("tcp", 62)
	straight := b.tunnelled(t, "unchanged", b.fromClient(t, u.packet()), u.packet(), "flow_begun", "steer")
	b.fromNode(t, of(straight, u), worldly(u, ack, "")).Is(t, "of a flow that no function changes", rig.XDPDrop, nil, "drop_unsolicited")
	b.fails(t)
	b.fromWorld(t, worldly(changed, wire.TCP{Flags: wire.SYN}, "")).Is(t, "a SYN", rig.XDPDrop, nil, "drop_unsolicited")
	old := b.asks(t, "data", b.fromWorld(t, worldly(changed, ack, "data")), worldly(changed, ack, "data"), 200)
	again := b.tunnelled(t, "the client begins again", b.fromClient(t, f.packet()), f.packet(), "flow_moved", "steer")
	b.learns(t, again, natted(f, 42000).packet())
	b.fromNode(t, notMine(old), worldly(changed, ack, "data")).Is(t, "of the connection before", rig.XDPDrop, nil, "drop_unsolicited", "unowned")

	must(t, b.SetNextHop(1, nodeMAC(1)))
	changed, _ = b.bind(t, from4("tcp", 63), 43000, false)
	must(t, b.SetNextHop(1, topo.MAC{}))
	must(t, b.SetNextHop(200, topo.MAC{}))
	rig.SpendOf(t, b.Objects().Limits, b.now, rig.LimitRefusal, service)
	for range 20 {
		b.fromWorld(t, worldly(changed, ack, "data")).Is(t, "above the limit", rig.XDPDrop, nil, "unowned", "drop_limit_refusal")
	}
	b.at(t, b.now+time.Second)
	if out := b.fromWorld(t, worldly(changed, ack, "data")); !slices.Equal(out.Reasons, []string{"keepalive", "unowned"}) {
		t.Errorf("a second later: %v", out.Reasons)
	}
}
