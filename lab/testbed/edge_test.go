package testbed

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proffer/wire"
)

// inject puts packets on a node's eth0, for the router's MAC.
func inject(t *testing.T, b *Bed, n *Node, packets ...[]byte) {
	t.Helper()
	var router net.HardwareAddr
	err := b.Router.Do(func() error {
		dev, err := net.InterfaceByName(n.Link)
		if err == nil {
			router = dev.HardwareAddr
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	mac, err := n.MAC()
	if err != nil {
		t.Fatal(err)
	}
	err = n.Do(func() error {
		fd, err := tap(device)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		for _, p := range packets {
			if _, err := unix.Write(fd, slices.Concat(router, mac, []byte{0x86, 0xdd}, p)); err != nil {
				return fmt.Errorf("send %d bytes: %w", len(p), err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// ipv6 is a packet whose headers after the first are given, each beginning
// with the number of the next.
func ipv6(from, to netip.Addr, next byte, rest ...[]byte) []byte {
	payload := slices.Concat(rest...)
	head := []byte{0x60, 0, 0, 0, byte(len(payload) >> 8), byte(len(payload)), next, 64}
	return slices.Concat(head, from.AsSlice(), to.AsSlice(), payload)
}

const (
	noNext    = 59
	skipped   = 0x1e // an option for experiments, to be skipped by nodes that do not know it (RFC 4727)
	hopByHop  = unix.IPPROTO_HOPOPTS
	dstOpts   = unix.IPPROTO_DSTOPTS
	routing   = unix.IPPROTO_ROUTING
	segmentRH = 4
)

// options is a header of options, 8·(1 + more) bytes.
func options(next, more byte) []byte {
	size := 8 * (1 + int(more))
	return append([]byte{next, more, skipped, byte(size - 4)}, make([]byte, size-4)...)
}

// srh has one segment, which is reached.
func srh(segment netip.Addr) []byte {
	return append([]byte{noNext, 2, segmentRH, 0, 0, 0, 0, 0}, segment.AsSlice()...)
}

// mark ends a packet and names it.
func mark(name string) []byte { return []byte("=" + name + "=") }

// arrivals injects packets at the client and returns which of them some node has
// got once the last one has arrived, which has to be harmless.
func arrivals(t *testing.T, b *Bed, packets map[string][]byte) map[string]bool {
	t.Helper()
	var taps []int
	for _, n := range append(b.LBs, b.Servers...) {
		err := n.Do(func() error {
			fd, err := tap(device)
			taps = append(taps, fd)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range packets {
		inject(t, b, b.Client, p)
	}
	for _, n := range append(b.LBs, b.Servers...) {
		inject(t, b, b.Client, ipv6(b.ClientAddrs[0], n.Addr, noNext, mark("last")))
	}
	got := map[string]bool{}
	frame := make([]byte, maxFrame)
	for _, fd := range taps {
		for last := false; !last; {
			deadline := time.Now().Add(5 * time.Second)
			awaitReadable(fd, deadline)
			n, err := unix.Read(fd, frame)
			if err != nil {
				t.Fatal("the last packet did not arrive")
			}
			for name := range packets {
				got[name] = got[name] || bytes.Contains(frame[:n], mark(name))
			}
			last = bytes.Contains(frame[:n], mark("last"))
		}
		unix.Close(fd)
	}
	return got
}

func TestEdge(t *testing.T) {
	for _, open := range []bool{false, true} {
		b := up(t, Config{Servers: 1, OpenEdge: open})
		c, s, lb := b.ClientAddrs[0], b.Servers[0].Addr, b.LBs[0].Loopback()
		sid := function(b.Servers[0].Locator, wire.Deliver)
		hostile := map[string][]byte{
			"to a SID":          ipv6(c, sid, noNext, mark("to a SID")),
			"to a locator":      ipv6(c, lb, noNext, mark("to a locator")),
			"from a SID":        ipv6(sid, s, noNext, mark("from a SID")),
			"from an LB":        ipv6(lb, b.VIP, noNext, mark("from an LB")),
			"routed":            ipv6(c, b.VIP, routing, srh(sid), mark("routed")),
			"after hop-by-hop":  ipv6(c, s, hopByHop, options(routing, 1), srh(sid), mark("after hop-by-hop")),
			"after destination": ipv6(c, b.VIP, dstOpts, options(routing, 0), srh(sid), mark("after destination")),
			"after both":        ipv6(c, s, hopByHop, options(dstOpts, 2), options(routing, 5), srh(sid), mark("after both")),
			"after three":       ipv6(c, s, hopByHop, options(dstOpts, 0), options(dstOpts, 0), options(routing, 0), srh(sid), mark("after three")),
			"after many": ipv6(c, s, dstOpts, options(dstOpts, 0), options(dstOpts, 0), options(dstOpts, 0),
				options(dstOpts, 0), options(dstOpts, 0), options(routing, 0), srh(sid), mark("after many")),
		}
		harmless := map[string][]byte{
			"plain":        ipv6(c, s, noNext, mark("plain")),
			"to the VIP":   ipv6(c, b.VIP, noNext, mark("to the VIP")),
			"options":      ipv6(c, s, hopByHop, options(dstOpts, 1), options(noNext, 2), mark("options")),
			"looks routed": ipv6(c, s, hopByHop, options(noNext, 0), srh(sid), mark("looks routed")),
		}
		got := arrivals(t, b, hostile)
		for name := range hostile {
			if got[name] != open {
				t.Errorf("edge open %v: %q arrived: %v", open, name, got[name])
			}
		}
		for name, arrived := range arrivals(t, b, harmless) {
			if !arrived {
				t.Errorf("edge open %v: %q did not arrive", open, name)
			}
		}
		want := uint64(len(hostile))
		if open {
			want = 0
		}
		if n, err := b.EdgeDrops(); n != want || err != nil {
			t.Errorf("edge open %v: %d drops (%v), want %d", open, n, err, want)
		}
	}
}

// What is cut off where a header begins does the edge no harm.
func TestEdgeOfShortFrames(t *testing.T) {
	b := up(t, Config{Servers: 1})
	whole := ipv6(b.ClientAddrs[0], b.Servers[0].Addr, hopByHop, options(dstOpts, 0), options(routing, 0), srh(b.VIP))
	for n := range len(whole) - len(srh(b.VIP)) {
		inject(t, b, b.Client, whole[:n])
	}
	if n, err := b.EdgeDrops(); n != 0 || err != nil {
		t.Errorf("%d drops of packets without a routing header (%v)", n, err)
	}
	connect(t, b.Client, b.Servers[0], b.Servers[0].Addr)
}

// The domain itself is free: the edge is the client's link only.
func TestInsideTheEdge(t *testing.T) {
	b := up(t, Config{Servers: 2})
	connect(t, b.LBs[0], b.Servers[0], b.Servers[0].Loopback())
	connect(t, b.Servers[0], b.Servers[1], b.Servers[1].Loopback())
	connect(t, b.Client, b.Servers[1], b.Servers[1].Addr4)
	if n, err := b.EdgeDrops(); n != 0 || err != nil {
		t.Errorf("%d drops (%v)", n, err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.EdgeDrops(); err == nil {
		t.Error("a closed bed counts")
	}
}

// TestEdgeBed: the client and the world reach each other by the LB's kernel while it has no programs, and
// each node reaches both; the world takes no packet to the sink; nothing stays after Close.
func TestEdgeBed(t *testing.T) {
	bed, err := EdgeUp(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := bed.Close(); err != nil {
			t.Error(err)
		}
		wantNothingLeft(t)
	}()
	connect(t, bed.Client, bed.World, EdgeWorld)
	for _, addr := range EdgeClient {
		connect(t, bed.World, bed.Client, addr)
	}
	for i, n := range bed.Nodes {
		connect(t, bed.LB, n, EdgeNodeAddr(i))
		connect(t, n, bed.LB, EdgeLBAddr(i))
		connect(t, n, bed.World, EdgeWorld)
		connect(t, n, bed.Client, EdgeClient[1])
	}
	err = bed.Client.Do(func() error {
		conn, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(EdgeSink.Addr().Next(), 9)))
		if err != nil {
			return err
		}
		defer conn.Close()
		if _, err := conn.Write([]byte("gone")); err != nil {
			return err
		}
		conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if n, err := conn.Read(make([]byte, 9)); err == nil || !err.(net.Error).Timeout() {
			t.Errorf("the sink answers %d bytes, %v", n, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	p, err := bed.World.Start(t.Context(), "echo", "hello")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err != nil || !bytes.Contains([]byte(p.Log()), []byte("hello")) {
		t.Errorf("%v: %s", err, p.Log())
	}
}

func TestEdgeBedRefuses(t *testing.T) {
	for _, nodes := range []int{0, MaxEdgeNodes + 1} {
		if _, err := EdgeUp(t.Context(), nodes); err == nil {
			t.Errorf("a bed with %d nodes is built", nodes)
		}
	}
}
