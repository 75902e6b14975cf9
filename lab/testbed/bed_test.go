package testbed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// up builds a bed that the test closes. Without root it fails: a test that
// skips itself proves nothing.
func up(t *testing.T, c Config) *Bed {
	t.Helper()
	start := time.Now()
	b, err := Up(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("up with %d servers: %v", c.Servers, time.Since(start).Round(time.Millisecond))
	t.Cleanup(func() {
		start := time.Now()
		if err := b.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		t.Logf("close: %v", time.Since(start).Round(time.Millisecond))
	})
	return b
}

// remains lists what runs of this process have on the machine: other runs
// come and go as they like.
func remains(t *testing.T) []string {
	t.Helper()
	var found []string
	for dir, prefix := range map[string]string{namespaceDir: "proffer-", stateDir: "", pinDir: "proffer-bed-"} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		for _, e := range entries {
			if strings.HasPrefix(strings.ReplaceAll(e.Name(), ".", "-"), prefix+pidPrefix()) {
				found = append(found, e.Name())
			}
		}
	}
	return found
}

func wantNothingLeft(t *testing.T) {
	t.Helper()
	if left := remains(t); len(left) > 0 {
		t.Fatalf("left behind: %v", left)
	}
}

// connect dials from a node to a listener at another's address and passes
// bytes both ways.
func connect(t *testing.T, from, to *Node, addr netip.Addr) {
	t.Helper()
	l, err := to.Listen("tcp", netip.AddrPortFrom(addr, Port).String())
	if err != nil {
		t.Fatalf("listen on %s: %v", to.Name, err)
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			io.Copy(c, c)
			c.Close()
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c, err := from.DialContext(ctx, "tcp", l.Addr().String())
	if err != nil {
		t.Fatalf("connect %s to %s: %v", from.Name, to.Name, err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Write([]byte("hunt")); err != nil {
		t.Fatal(err)
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(c); err != nil || string(got) != "hunt" {
		t.Fatalf("echo from %s: %q, %v", to.Name, got, err)
	}
}

func TestEveryServerIsReached(t *testing.T) {
	b := up(t, Config{Servers: 12})
	for _, s := range b.Servers {
		connect(t, b.Router, s, s.Loopback())
		connect(t, b.Client, s, s.Addr)
		connect(t, b.Client, s, s.Addr4)
		connect(t, b.LBs[0], s, s.Loopback())
	}
	connect(t, b.Servers[0], b.LBs[0], b.LBs[0].Loopback())
	for _, a := range slices.Concat(b.ClientAddrs, b.ClientAddrs4) {
		connect(t, b.Servers[1], b.Client, a)
	}
}

func TestClientSpeaksFromItsFirstAddress(t *testing.T) {
	b := up(t, Config{Servers: 1, Clients: 2})
	for vip, want := range map[netip.Addr]netip.Addr{b.VIP: b.ClientAddrs[0], b.VIP4: b.ClientAddrs4[0]} {
		c := dial(t, b.Client, "udp", vip)
		if got := c.LocalAddr().(*net.UDPAddr).AddrPort().Addr(); got != want {
			t.Errorf("client speaks to %s from %s, want %s", vip, got, want)
		}
	}
}

// dial connects to the service's port; the test closes it.
func dial(t *testing.T, from *Node, network string, to netip.Addr) net.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c, err := from.DialContext(ctx, network, netip.AddrPortFrom(to, Port).String())
	if err != nil {
		t.Fatalf("%s to %s: %v", from.Name, to, err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestVIPGoesToTheLB(t *testing.T) {
	b := up(t, Config{Servers: 1})
	for _, vip := range []netip.Addr{b.VIP, b.VIP4} {
		lb, server := counters(t, b.LBs[0]), counters(t, b.Servers[0])
		c := dial(t, b.Client, "udp", vip)
		const packets = 20
		for range packets {
			if _, err := c.Write(make([]byte, 100)); err != nil {
				t.Fatal(err)
			}
		}
		// The LB runs no balancer, so its kernel drops them in silence.
		if n := counters(t, b.LBs[0]).RxPackets - lb.RxPackets; n < packets {
			t.Errorf("LB got %d packets of %d to %s", n, packets, vip)
		}
		if n := counters(t, b.Servers[0]).RxPackets - server.RxPackets; n >= packets {
			t.Errorf("server got %d packets for %s without an LB", n, vip)
		}
	}
}

func counters(t *testing.T, n *Node) Traffic {
	t.Helper()
	c, err := n.Counters()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestLinksCarryWholePackets(t *testing.T) {
	b := up(t, Config{Servers: 1})
	connect(t, b.Client, b.Servers[0], b.Servers[0].Addr)
	for _, n := range b.Nodes() {
		own, link := counters(t, n), Traffic{}
		link, err := n.LinkCounters()
		if err != nil {
			t.Fatal(err)
		}
		if own.RxDropped+own.TxDropped+link.RxDropped+link.TxDropped != 0 {
			t.Errorf("%s: frames dropped: %+v, router %+v", n.Name, own, link)
		}
		if own.RxBytes == 0 || link.RxBytes == 0 {
			t.Errorf("%s: link is silent: %+v, router %+v", n.Name, own, link)
		}
	}
}

func Test48ServersLeaveNothing(t *testing.T) {
	b := up(t, Config{Servers: 48})
	connect(t, b.Client, b.Servers[47], b.Servers[47].Addr)
	if n := len(remains(t)); n != 48+3+2 {
		t.Fatalf("%d namespaces and directories, want 53", n)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	wantNothingLeft(t)
	if err := b.Close(); err != nil {
		t.Fatalf("second close: %v", err)
	}
}

func TestTwoBedsAtOnce(t *testing.T) {
	a, b := up(t, Config{Servers: 2}), up(t, Config{Servers: 2})
	if a.Run == b.Run {
		t.Fatal("two beds of one name")
	}
	connect(t, a.Client, a.Servers[1], a.Servers[1].Addr)
	connect(t, b.Client, b.Servers[1], b.Servers[1].Addr)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	connect(t, b.Client, b.Servers[0], b.Servers[0].Addr)
}

func TestInterruptedUpLeavesNothing(t *testing.T) {
	for _, after := range []time.Duration{0, time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(t.Context(), after)
		b, err := Up(ctx, Config{Servers: 48})
		cancel()
		switch {
		case err == nil: // faster than we thought
			err = b.Close()
		case errors.Is(err, context.DeadlineExceeded):
			err = nil
		}
		if err != nil {
			t.Errorf("interrupted after %v: %v", after, err)
		}
		wantNothingLeft(t)
	}
}

func TestImpossibleConfigs(t *testing.T) {
	for _, c := range []Config{{}, {Servers: -1}, {Servers: MaxServers + 1}, {Servers: 1, Clients: -1},
		{Servers: 1, Clients: MaxClients + 1}, {Servers: 1, Delay: Delay{Mean: -1}}, {Servers: 1, Delay: Delay{Mean: time.Hour}},
		{Servers: 1, Delay: Delay{Mean: 1, Deviation: 2}}, {Servers: 1, Delay: Delay{Deviation: -1}},
		{Servers: 1, Delay: Delay{Mean: 1, Correlation: 1}}, {Servers: 1, Delay: Delay{Mean: 1, Correlation: math.NaN()}},
		{Servers: 1, LBs: -1}, {Servers: 1, LBs: MaxLBs + 1}, {Servers: 1, Transits: -1}, {Servers: 1, Transits: MaxTransits + 1},
		{Servers: 1, Loss: -0.1}, {Servers: 1, Loss: 0.6}, {Servers: 1, Loss: math.NaN()},
		{Servers: 1, ClientMTU: 1279}, {Servers: 1, ClientMTU: MTU + 1}} {
		b, err := Up(t.Context(), c)
		if err == nil {
			b.Close()
			t.Errorf("%+v: no error", c)
			continue
		}
		if !strings.Contains(err.Error(), "say ") {
			t.Errorf("%+v: error without a remedy: %v", c, err)
		}
	}
	wantNothingLeft(t)
}

func TestNodesAreNamedAndNumbered(t *testing.T) {
	b := up(t, Config{Servers: 2, LBs: 2, Transits: 1})
	var got []string
	for _, n := range b.Nodes() {
		got = append(got, fmt.Sprint(n.Name, " ", n.Locator, " ", n.Addr, " ", n.Addr4, " ", strings.TrimPrefix(n.Namespace, "proffer-"+b.Run)))
	}
	want := []string{
		"client invalid Prefix 2001:db8:1::2 10.0.0.2 -client",
		"lb1 5f00:0:1:1::/64 2001:db8:1:101::2 10.1.1.2 -lb1",
		"lb2 5f00:0:1:2::/64 2001:db8:1:102::2 10.1.2.2 -lb2",
		"s1 5f00:0:2:1::/64 2001:db8:1:201::2 10.2.1.2 -s1",
		"s2 5f00:0:2:2::/64 2001:db8:1:202::2 10.2.2.2 -s2",
		"t1 5f00:0:3:1::/64 2001:db8:1:301::2 10.3.1.2 -t1",
	}
	if !slices.Equal(got, want) {
		t.Fatalf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestClientAddresses(t *testing.T) {
	b := up(t, Config{Servers: 1, Clients: 300})
	if len(b.ClientAddrs) != 300 || len(b.ClientAddrs4) != MaxClients4 {
		t.Fatalf("%d and %d addresses", len(b.ClientAddrs), len(b.ClientAddrs4))
	}
	connect(t, b.Servers[0], b.Client, netip.MustParseAddr("2001:db8:c::12c"))
	connect(t, b.Servers[0], b.Client, netip.MustParseAddr("198.51.100.200"))
}
