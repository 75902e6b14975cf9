package hostile

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"proffer/e2e/kit"
	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/topo"
	"proffer/wire"
)

// sidOf is a node's SID of a function, with the number of the testbed's only key.
func sidOf(n *testbed.Node, function wire.Function, generation uint16) netip.Addr {
	return wire.SID{Locator: n.Locator, Function: function, Generation: generation, KeyID: 1}.Addr()
}

// forgedTag is an address of a node's as it would sign, with a tag of no key.
func forgedTag(n *testbed.Node, tag uint64) netip.Addr {
	return wire.Tagged(n.Locator, [8]byte(binary.BigEndian.AppendUint64(nil, tag)))
}

// enclosed puts an outer header around a packet, and an SRH if there is more
// than one segment to visit.
func enclosed(from netip.Addr, inner []byte, way ...netip.Addr) []byte {
	return wire.Route{From: from, Segments: way, HopLimit: wire.DefaultHopLimit}.Encap(inner)
}

// forgeries are all functions as a client would forge them: about a flow, from
// an address, with each node's right SIDs.
func forgeries(bed *testbed.Bed, client netip.AddrPort, fromLB, fromServer netip.Addr) map[string][]byte {
	const generation = 0x1234
	lb, one, two := bed.LBs[0], bed.Servers[0], bed.Servers[1]
	at := kit.VIP(bed)
	opening := kit.TCPBetween(client, at, wire.TCP{Seq: 1, Flags: wire.SYN})
	data := kit.TCPBetween(client, at, wire.TCP{Seq: 2, Ack: 9, Flags: wire.ACK})
	abort := kit.TCPBetween(client, at, wire.TCP{Seq: 2, Flags: wire.RST})
	opened := kit.TCPBetween(at, client, wire.TCP{Seq: 8, Ack: 2, Flags: wire.SYN | wire.ACK})
	ended := kit.TCPBetween(at, client, wire.TCP{Seq: 9, Ack: 2, Flags: wire.FIN | wire.ACK})
	all := map[string][]byte{
		"cs":          enclosed(fromServer, opened, sidOf(lb, wire.CreateStickiness, generation)),
		"cs of data":  enclosed(fromServer, ended, sidOf(lb, wire.CreateStickiness, generation)),
		"rms":         enclosed(fromServer, ended, sidOf(lb, wire.RemoveStickiness, generation)),
		"nm":          enclosed(fromServer, data, sidOf(lb, wire.NotMine, generation)),
		"nm of a SYN": enclosed(fromServer, opening, sidOf(lb, wire.NotMine, generation)),
		"rs at LB":    enclosed(fromLB, data, sidOf(lb, wire.RecoverStickiness, 0)),
		"ca, cf":      enclosed(fromLB, opening, sidOf(one, wire.ConnectAvail, generation), sidOf(two, wire.ConnectForce, generation)),
		"ca, cf back": enclosed(fromLB, opening, sidOf(two, wire.ConnectAvail, generation), sidOf(one, wire.ConnectForce, generation)),
	}
	for _, n := range bed.Servers {
		all["cf "+n.Name] = enclosed(fromLB, opening, sidOf(n, wire.ConnectForce, generation))
		all["rs "+n.Name] = enclosed(fromLB, data, sidOf(n, wire.RecoverStickiness, 0))
		all["rj "+n.Name] = enclosed(fromLB, abort, sidOf(n, wire.Reject, generation))
	}
	return all
}

// counted are the counters of all daemons, those that say what was dropped or
// left to the kernel apart.
func counted(t *testing.T, farm *farmrun.Farm) (harmless, others map[string]uint64) {
	t.Helper()
	harmless, others = map[string]uint64{}, map[string]uint64{}
	for _, n := range slices.Concat(farm.Bed.LBs, farm.Bed.Servers) {
		for name, value := range kit.Status(t, farm, n).Counters {
			passed := strings.HasPrefix(name, "pass_not_") || name == "pass_other_host" || name == "pass_own_address" || name == "out_not_ours"
			if passed || strings.HasPrefix(name, "drop_") {
				harmless[name] += value
			} else {
				others[n.Name+" "+name] = value
			}
		}
	}
	return harmless, others
}

// checked waits until the LBs have checked their servers: each of TCP alone answers once, and is checked no more.
func checked(t *testing.T, farm *farmrun.Farm) {
	t.Helper()
	for _, lb := range farm.Bed.LBs {
		kit.Eventually(t, lb.Name+" has checked its servers", func() bool {
			c := kit.Status(t, farm, lb).Counters
			return c["check_answered"] >= uint64(len(farm.Bed.Servers)) && c["check_answered"] == c["check"]
		})
	}
}

// values are the packets of a map, in an order of their own.
func values(packets map[string][]byte) [][]byte { return slices.Collect(maps.Values(packets)) }

// TestClosedEdge: what speaks of segments does not come in from outside, in no
// disguise.
func TestClosedEdge(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 2})
	kit.Echoes(t, bed, bed.Servers...)
	farm := kit.Start(t, bed, kit.Settings(t, "hunt:always"))
	flows := kit.Open(t, bed, 20000, 10)
	known := netip.AddrPortFrom(bed.ClientAddrs[0], 20000)
	packets := values(forgeries(bed, known, forgedTag(bed.LBs[0], 1), forgedTag(bed.Servers[0], 1)))
	packets = append(packets, values(forgeries(bed, known, bed.ClientAddrs[0], bed.ClientAddrs[0]))...)
	syn := kit.TCPBetween(known, kit.VIP(bed), wire.TCP{Seq: 1, Flags: wire.SYN})
	for _, n := range bed.Servers { // a routing header alone, for an address that is no SID
		packets = append(packets, enclosed(bed.ClientAddrs[0], syn, n.Addr, sidOf(n, wire.ConnectForce, 1)))
	}
	before, err := bed.EdgeDrops()
	if err != nil {
		t.Fatal(err)
	}
	checked(t, farm)
	_, was := counted(t, farm)
	kit.SendRaw(t, bed, packets...)
	kit.EventuallyIs(t, "packets that the edge refused", before+uint64(len(packets)), func() uint64 {
		n, err := bed.EdgeDrops()
		if err != nil {
			t.Fatal(err)
		}
		return n
	})
	for _, n := range slices.Concat(bed.LBs, bed.Servers) {
		for _, name := range []string{"drop_bad_tag", "drop_outside"} {
			if bad := kit.Counter(t, farm, name, n); bad > 0 {
				t.Errorf("%s of %s: %d came in", name, n.Name, bad)
			}
		}
	}
	if _, is := counted(t, farm); !maps.Equal(was, is) {
		t.Errorf("something happened: before %v, after %v", was, is)
	}
	kit.Alive(t, "after all that", flows)
}

// TestOpenEdge: an operator without the filter still has the tags and the
// domain: nothing that a client forges changes a table or comes out again,
// whatever of a live flow it knows.
func TestOpenEdge(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 2, OpenEdge: true})
	kit.Echoes(t, bed, bed.Servers...)
	s := kit.Settings(t, "hunt:always")
	s.LB = func(lb *topo.LB) { lb.Domain = ownNets(bed) }
	s.Agent = func(_ *testbed.Node, a *topo.Agent) { a.Domain = ownNets(bed) }
	farm := kit.Start(t, bed, s)
	lb := bed.LBs[0]
	flows := kit.Open(t, bed, 20000, 10)
	known, unknown := netip.AddrPortFrom(bed.ClientAddrs[0], 20000), netip.AddrPortFrom(kit.Unused, 20000)
	outsider := netip.MustParseAddr("5f00:0:7:1::1") // of the block, and of no node
	var spoofed, outside [][]byte
	for _, client := range []netip.AddrPort{known, unknown} {
		for tag := range uint64(3) { // 1 is the tag of a node without keys
			spoofed = append(spoofed, values(forgeries(bed, client, forgedTag(lb, tag), forgedTag(bed.Servers[0], tag)))...)
		}
		for _, from := range []netip.Addr{client.Addr(), outsider} {
			outside = append(outside, values(forgeries(bed, client, from, from))...)
			for _, n := range bed.Servers { // these two carry no tag
				data := kit.TCPBetween(client, kit.VIP(bed), wire.TCP{Seq: 2, Ack: 9, Flags: wire.ACK})
				outside = append(outside, enclosed(from, data, sidOf(n, wire.AckStickiness, 1)), enclosed(from, data, sidOf(n, wire.Deliver, 0)))
			}
		}
	}
	reflected := notReflected(bed)
	checked(t, farm)
	harmless, was := counted(t, farm)
	c := kit.Record(t, bed)
	kit.SendRaw(t, bed, slices.Concat(spoofed, outside, reflected)...)
	for name, want := range map[string]int{
		"drop_bad_tag": len(spoofed), "drop_outside": len(outside), "drop_not_from_vip": len(reflected),
	} {
		kit.EventuallyIs(t, name, harmless[name]+uint64(want), func() uint64 {
			now, _ := counted(t, farm)
			return now[name]
		})
	}
	for _, f := range c.Stop(t) {
		forged := f.TCP != nil && (f.TCP.From == known || f.TCP.To == known || f.TCP.From == unknown || f.TCP.To == unknown)
		if forged && !(f.Link == bed.Client.Link && !f.ToNode) && f.List == nil {
			t.Errorf("out of its segments on %s, to the node: %v: %v", f.Link, f.ToNode, f.TCP)
		}
	}
	if _, is := counted(t, farm); !maps.Equal(was, is) {
		t.Errorf("something happened: before %v, after %v", was, is)
	}
	kit.Alive(t, "after all that", flows)
	if n := kit.Counter(t, farm, "recover", lb); n > 0 {
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
// to their destination.
func notReflected(bed *testbed.Bed) (packets [][]byte) {
	lb, server := bed.LBs[0], bed.Servers[0]
	victim := netip.AddrPortFrom(kit.Unused, 443)
	for i, source := range []netip.AddrPort{
		netip.AddrPortFrom(bed.VIP, testbed.Port+1),             // another port
		netip.AddrPortFrom(bed.ClientAddrs[1], testbed.Port),    // another host
		netip.AddrPortFrom(server.Loopback(), testbed.Port),     // the server itself
		netip.MustParseAddrPort(fmt.Sprintf("[::1]:%d", 10000)), // unused
	} {
		for _, function := range []wire.Function{wire.CreateStickiness, wire.RemoveStickiness} {
			inner := kit.TCPBetween(source, victim, wire.TCP{Seq: uint32(i), Ack: 1, Flags: wire.SYN | wire.ACK})
			packets = append(packets, enclosed(forgedTag(server, 7), inner, sidOf(lb, function, 1)))
		}
	}
	return packets
}
