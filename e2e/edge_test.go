package e2e

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"proffer/lab/experiment"
	"proffer/lab/testbed"
	"proffer/topo"
)

// Functions that the other tests of the wire do not see (docs/wire.md).
const (
	reject  = 0x4e
	notMine = 0x40
)

// sidOf is a node's SID of a function, in words of the testbed's only key.
func sidOf(n *testbed.Node, function, generation uint16) netip.Addr {
	const key = 1
	sid := n.Locator.Addr().As16()
	binary.BigEndian.PutUint16(sid[8:], function)
	binary.BigEndian.PutUint16(sid[10:], generation)
	sid[13] = key
	return netip.AddrFrom16(sid)
}

// forgedTag is an address of a node's as it would sign, with a tag of no key.
func forgedTag(n *testbed.Node, tag uint64) netip.Addr {
	a := n.Locator.Addr().As16()
	binary.BigEndian.PutUint64(a[8:], tag)
	return netip.AddrFrom16(a)
}

// enclosed puts an outer header around a packet, and an SRH if there is more
// than one segment to visit (RFC 8754 §2, RFC 8986 §5.2).
func enclosed(from netip.Addr, inner []byte, way ...netip.Addr) []byte {
	var srh []byte
	next := byte(inIPv6)
	if rest := way[1:]; len(rest) > 0 {
		srh = []byte{next, byte(2 * len(rest)), 4, byte(len(rest)), byte(len(rest) - 1), 0, 0, 0}
		for _, sid := range slices.Backward(rest) {
			srh = append(srh, sid.AsSlice()...)
		}
		next = routing
	}
	outer := make([]byte, ipv6)
	outer[0], outer[6], outer[7] = 6<<4, next, 64
	binary.BigEndian.PutUint16(outer[4:], uint16(len(srh)+len(inner)))
	copy(outer[8:], from.AsSlice())
	copy(outer[24:], way[0].AsSlice())
	return slices.Concat(outer, srh, inner)
}

// tcpBetween is a TCP packet with some data if it may have any.
func tcpBetween(t *testing.T, from, to netip.AddrPort, tcp layers.TCP) []byte {
	t.Helper()
	ip := &layers.IPv6{
		Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolTCP,
		SrcIP: from.Addr().AsSlice(), DstIP: to.Addr().AsSlice(),
	}
	tcp.SrcPort, tcp.DstPort, tcp.Window = layers.TCPPort(from.Port()), layers.TCPPort(to.Port()), 65535
	if err := tcp.SetNetworkLayerForChecksum(ip); err != nil {
		t.Fatal(err)
	}
	return serialized(t, ip, &tcp)
}

// forgeries are all functions as a client would forge them: about a flow, from
// an address, with each node's right SIDs.
func forgeries(t *testing.T, bed *testbed.Bed, client netip.AddrPort, fromLB, fromServer netip.Addr) map[string][]byte {
	t.Helper()
	const generation = 0x1234
	lb, one, two := bed.LBs[0], bed.Servers[0], bed.Servers[1]
	at := vip(bed)
	opening := tcpBetween(t, client, at, layers.TCP{Seq: 1, SYN: true})
	data := tcpBetween(t, client, at, layers.TCP{Seq: 2, Ack: 9, ACK: true})
	abort := tcpBetween(t, client, at, layers.TCP{Seq: 2, RST: true})
	opened := tcpBetween(t, at, client, layers.TCP{Seq: 8, Ack: 2, SYN: true, ACK: true})
	ended := tcpBetween(t, at, client, layers.TCP{Seq: 9, Ack: 2, FIN: true, ACK: true})
	all := map[string][]byte{
		"cs":          enclosed(fromServer, opened, sidOf(lb, createStickiness, generation)),
		"cs of data":  enclosed(fromServer, ended, sidOf(lb, createStickiness, generation)),
		"rms":         enclosed(fromServer, ended, sidOf(lb, removeStickiness, generation)),
		"nm":          enclosed(fromServer, data, sidOf(lb, notMine, generation)),
		"nm of a SYN": enclosed(fromServer, opening, sidOf(lb, notMine, generation)),
		"rs at LB":    enclosed(fromLB, data, sidOf(lb, recoverStickiness, 0)),
		"ca, cf":      enclosed(fromLB, opening, sidOf(one, connectAvail, generation), sidOf(two, connectForce, generation)),
		"ca, cf back": enclosed(fromLB, opening, sidOf(two, connectAvail, generation), sidOf(one, connectForce, generation)),
	}
	for _, n := range bed.Servers {
		all["cf "+n.Name] = enclosed(fromLB, opening, sidOf(n, connectForce, generation))
		all["rs "+n.Name] = enclosed(fromLB, data, sidOf(n, recoverStickiness, 0))
		all["rj "+n.Name] = enclosed(fromLB, abort, sidOf(n, reject, generation))
	}
	return all
}

// counted are the counters of all daemons, those that say what was dropped or
// left to the kernel apart.
func counted(t *testing.T, farm *experiment.Farm) (harmless, others map[string]uint64) {
	t.Helper()
	harmless, others = map[string]uint64{}, map[string]uint64{}
	for _, n := range slices.Concat(farm.Bed.LBs, farm.Bed.Servers) {
		for name, value := range status(t, farm, n).Counters {
			passed := strings.HasPrefix(name, "pass_not_") || name == "pass_own_address" || name == "out_not_ours"
			if passed || strings.HasPrefix(name, "drop_") {
				harmless[name] += value
			} else {
				others[n.Name+" "+name] = value
			}
		}
	}
	return harmless, others
}

// values are the packets of a map, in an order of their own.
func values(packets map[string][]byte) [][]byte { return slices.Collect(maps.Values(packets)) }

// TestClosedEdge: what speaks of segments does not come in from outside, in no
// disguise.
func TestClosedEdge(t *testing.T) {
	bed := up(t, testbed.Config{Servers: 2})
	echoes(t, bed, bed.Servers...)
	farm := start(t, bed, settings(t, "hunt:always"))
	flows := open(t, bed, 20000, 10)
	known := netip.AddrPortFrom(bed.ClientAddrs[0], 20000)
	packets := values(forgeries(t, bed, known, forgedTag(bed.LBs[0], 1), forgedTag(bed.Servers[0], 1)))
	packets = append(packets, values(forgeries(t, bed, known, bed.ClientAddrs[0], bed.ClientAddrs[0]))...)
	syn := tcpBetween(t, known, vip(bed), layers.TCP{Seq: 1, SYN: true})
	for _, n := range bed.Servers { // a routing header alone, for an address that is no SID
		packets = append(packets, enclosed(bed.ClientAddrs[0], syn, n.Addr, sidOf(n, connectForce, 1)))
	}
	before, err := bed.EdgeDrops()
	if err != nil {
		t.Fatal(err)
	}
	_, was := counted(t, farm)
	sendRaw(t, bed, packets...)
	eventuallyIs(t, "packets that the edge refused", before+uint64(len(packets)), func() uint64 {
		n, err := bed.EdgeDrops()
		if err != nil {
			t.Fatal(err)
		}
		return n
	})
	for _, n := range slices.Concat(bed.LBs, bed.Servers) {
		for _, name := range []string{"drop_bad_tag", "drop_outside"} {
			if bad := counter(t, farm, name, n); bad > 0 {
				t.Errorf("%s of %s: %d came in", name, n.Name, bad)
			}
		}
	}
	if _, is := counted(t, farm); !maps.Equal(was, is) {
		t.Errorf("something happened: before %v, after %v", was, is)
	}
	alive(t, "after all that", flows)
}

// TestOpenEdge: an operator who forgot the filter still has the tags and the
// domain: nothing that a client forges changes a table or comes out again,
// whatever of a live flow it knows.
func TestOpenEdge(t *testing.T) {
	bed := up(t, testbed.Config{Servers: 2, OpenEdge: true})
	echoes(t, bed, bed.Servers...)
	s := settings(t, "hunt:always")
	s.LB = func(lb *topo.LB) { lb.Domain = ownNets(bed) }
	s.Agent = func(_ *testbed.Node, a *topo.Agent) { a.Domain = ownNets(bed) }
	farm := start(t, bed, s)
	lb := bed.LBs[0]
	flows := open(t, bed, 20000, 10)
	known, unknown := netip.AddrPortFrom(bed.ClientAddrs[0], 20000), netip.AddrPortFrom(nobody, 20000)
	outsider := netip.MustParseAddr("5f00:0:7:1::1") // of the block, and nobody's
	var spoofed, outside [][]byte
	for _, client := range []netip.AddrPort{known, unknown} {
		for tag := range uint64(3) { // 1 is what a node without keys says
			spoofed = append(spoofed, values(forgeries(t, bed, client, forgedTag(lb, tag), forgedTag(bed.Servers[0], tag)))...)
		}
		for _, from := range []netip.Addr{client.Addr(), outsider} {
			outside = append(outside, values(forgeries(t, bed, client, from, from))...)
			for _, n := range bed.Servers { // these two carry no tag
				data := tcpBetween(t, client, vip(bed), layers.TCP{Seq: 2, Ack: 9, ACK: true})
				outside = append(outside, enclosed(from, data, sidOf(n, ackStickiness, 1)), enclosed(from, data, sidOf(n, deliverAny, 0)))
			}
		}
	}
	reflected := notReflected(t, bed)
	harmless, was := counted(t, farm)
	c := record(t, bed)
	sendRaw(t, bed, slices.Concat(spoofed, outside, reflected)...)
	for name, want := range map[string]int{
		"drop_bad_tag": len(spoofed), "drop_outside": len(outside), "drop_not_from_vip": len(reflected),
	} {
		eventuallyIs(t, name, harmless[name]+uint64(want), func() uint64 {
			now, _ := counted(t, farm)
			return now[name]
		})
	}
	for _, f := range c.stop(t) {
		forged := f.tcp != nil && (f.tcp.from == known || f.tcp.to == known || f.tcp.from == unknown || f.tcp.to == unknown)
		if forged && !(f.link == bed.Client.Link && !f.toNode) && f.list == nil {
			t.Errorf("out of its segments on %s, to the node: %v: %v", f.link, f.toNode, f.tcp)
		}
	}
	if _, is := counted(t, farm); !maps.Equal(was, is) {
		t.Errorf("something happened: before %v, after %v", was, is)
	}
	alive(t, "after all that", flows)
	if n := counter(t, farm, "recover", lb); n > 0 {
		t.Errorf("the LB lost %d packets' owner", n)
	}
}

// ownNets are the locators of a bed's nodes, and no more of the block.
func ownNets(bed *testbed.Bed) (nets []netip.Prefix) {
	for _, n := range slices.Concat(bed.LBs, bed.Servers) {
		nets = append(nets, n.Locator)
	}
	return nets
}

// notReflected are signals around packets of no VIP, which an LB would send on
// to whoever they are for.
func notReflected(t *testing.T, bed *testbed.Bed) (packets [][]byte) {
	t.Helper()
	lb, server := bed.LBs[0], bed.Servers[0]
	victim := netip.AddrPortFrom(nobody, 443)
	for i, source := range []netip.AddrPort{
		netip.AddrPortFrom(bed.VIP, testbed.Port+1),             // another port
		netip.AddrPortFrom(bed.ClientAddrs[1], testbed.Port),    // another host
		netip.AddrPortFrom(server.Loopback(), testbed.Port),     // the server itself
		netip.MustParseAddrPort(fmt.Sprintf("[::1]:%d", 10000)), // nobody
	} {
		for _, function := range []uint16{createStickiness, removeStickiness} {
			inner := tcpBetween(t, source, victim, layers.TCP{Seq: uint32(i), Ack: 1, SYN: true, ACK: true})
			packets = append(packets, enclosed(forgedTag(server, 7), inner, sidOf(lb, function, 1)))
		}
	}
	return packets
}
