package testbed

import (
	"net/netip"
	"strings"
	"testing"

	"proffer/wire"
)

// encapsulate makes the kernel of an LB send what is for a VIP through
// segments.
func encapsulate(t *testing.T, lb *Node, vip netip.Addr, segments ...netip.Addr) {
	t.Helper()
	if err := lb.Do(func() error { return setAll(srv6()) }); err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, s := range segments {
		list = append(list, s.String())
	}
	p := start(t, lb, "ip", "route", "replace", single(vip).String(), "encap", "seg6", "mode", "encap", "segs", strings.Join(list, ","), "dev", device)
	if err := p.Wait(); err != nil {
		t.Fatalf("%v: %s", err, p.Log())
	}
}

func agentless(t *testing.T, b *Bed, server *Node, action Action) {
	t.Helper()
	if err := b.Agentless(server, action); err != nil {
		t.Fatal(err)
	}
}

// Every action takes connections that a kernel encapsulated, straight and
// through transits; answers go to the client past the LB.
func TestAgentless(t *testing.T) {
	b := up(t, Config{Servers: 3, Transits: 2})
	lb, plain, routed := b.LBs[0], b.Servers[0], b.Servers[2]
	app := behind(t, b, routed, RoutedVeth)
	for _, c := range []struct {
		server, listener *Node
		action           Action
		vip              netip.Addr
	}{
		{plain, plain, DT6, b.VIP},
		{plain, plain, DX4, b.VIP4},
		{routed, app, DX6, b.VIP},
		{routed, app, DX4, b.VIP4},
		{plain, plain, DT6, b.VIP}, // again, in the place of DX4
	} {
		agentless(t, b, c.server, c.action)
		if want := function(c.server.Locator, wire.Deliver); c.server.SID != want {
			t.Fatalf("SID %s, want %s", c.server.SID, want)
		}
		for _, way := range [][]netip.Addr{
			{c.server.SID},
			{b.Transits[0].SID, c.server.SID},
			{b.Transits[1].SID, b.Transits[0].SID, c.server.SID},
		} {
			encapsulate(t, lb, c.vip, way...)
			before := counters(t, b.Transits[0]).RxPackets
			connect(t, b.Client, c.listener, c.vip)
			if n := counters(t, b.Transits[0]).RxPackets - before; (n >= 4) != (len(way) > 1) {
				t.Errorf("%v to %s: t1 got %d packets", way, c.vip, n)
			}
		}
	}
}

func TestImpossibleActions(t *testing.T) {
	b := up(t, Config{Servers: 3})
	behind(t, b, b.Servers[1], RoutedVeth)
	behind(t, b, b.Servers[2], Macvlan)
	for _, c := range []struct {
		n      *Node
		action Action
	}{
		{b.Servers[0], DX6}, {b.Servers[1], DT6}, {b.Servers[2], DT6}, {b.Servers[2], DX4}, {b.Servers[0], 17}, {b.LBs[0], DT6},
	} {
		if err := b.Agentless(c.n, c.action); err == nil || c.n.SID.IsValid() {
			t.Errorf("%s took action %d", c.n.Name, c.action)
		}
	}
}

func TestRevivedServerIsNotAgentless(t *testing.T) {
	b := up(t, Config{Servers: 1})
	agentless(t, b, b.Servers[0], DT6)
	kill(t, b, b.Servers[0])
	revive(t, b, b.Servers[0])
	if b.Servers[0].SID.IsValid() {
		t.Errorf("the kernel of a new server ends %s", b.Servers[0].SID)
	}
}

func TestTransits(t *testing.T) {
	b := up(t, Config{Servers: 1, Transits: MaxTransits})
	for i, n := range b.Transits {
		if want := function(TransitLocator(i+1), transitFunction); n.SID != want {
			t.Errorf("SID of %s is %s, want %s", n.Name, n.SID, want)
		}
		connect(t, b.Servers[0], n, n.Loopback())
	}
	kill(t, b, b.Transits[3])
	revive(t, b, b.Transits[3])
	agentless(t, b, b.Servers[0], DT6)
	encapsulate(t, b.LBs[0], b.VIP, b.Transits[3].SID, b.Servers[0].SID)
	connect(t, b.Client, b.Servers[0], b.VIP)
}
