package control

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"proffer/dataplane"
	"proffer/topo"
)

// TestRunReadsByTimer: next hops that no message reported are copied by the timer, even if a
// target cannot be resolved.
func TestRunReadsByTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, c := newBench(t)
		b.fails["Refresh"] = errors.New("no route")
		stop := running(t, b, c)
		defer stop()
		b.with(func() { b.hops[netip.PrefixFrom(server, 64)] = router })
		time.Sleep(refreshEvery + time.Millisecond)
		synctest.Wait()
		if hops, _ := b.given(); hops[netip.PrefixFrom(server, 64)] != router {
			t.Errorf("the plane has %v", hops)
		}
	})
}

// TestLacking: status and log name each address without a next hop, and why; an address
// leaves the list when it has one, or no packet for it comes.
func TestLacking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, c := newBench(t)
		stop := running(t, b, c)
		defer stop()
		c.update(c.links["eth0"])
		list := func(want ...string) {
			t.Helper()
			synctest.Wait()
			if got := c.Lacking(); !slices.Equal(got, want) {
				t.Errorf("no next hop to %q, want %q", got, want)
			}
		}
		logs := func(part string, times int) {
			t.Helper()
			if n := strings.Count(b.logged(), part); n != times {
				t.Errorf("the log has %q %d times, want %d:\n%s", part, n, times, b.logged())
			}
		}
		list("5f00:0:2:1::")
		b.lost <- other
		list("5f00:0:2:1::", "5f00:0:2:2::")
		logs("address=5f00:0:2:2::", 0) // its neighbour may answer yet
		b.with(func() { b.fails["Resolve"] = errors.New("no route to host") })
		for range 3 {
			b.lost <- netip.MustParseAddr("2001:db8::9")
		}
		list("2001:db8::9 (no route to host)", "5f00:0:2:1::", "5f00:0:2:2::")
		logs(`address=2001:db8::9 reason="no route to host"`, 1)
		time.Sleep(refreshEvery + time.Millisecond)
		list("2001:db8::9 (no route to host)", "5f00:0:2:1::", "5f00:0:2:2::")
		logs(`address=5f00:0:2:2:: reason="its neighbour does not answer"`, 1)
		b.learn(other)
		b.learn(server)
		list("2001:db8::9 (no route to host)")
		time.Sleep(refreshEvery)
		list()
		for i := range 3 * mostLacking {
			b.lost <- netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", i+1))
		}
		synctest.Wait()
		if n := len(c.Lacking()); n != mostLacking {
			t.Errorf("%d addresses are listed", n)
		}
	})
}

// TestGatewaysAreNamed: status and log name the gateways that a server without a next hop waits for, and a gateway that
// is on the way to no server.
func TestGatewaysAreNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, c := newBench(t)
		far, first, second := netip.MustParsePrefix("2001:db8:9::/48"), netip.MustParseAddr("2001:db8:1::3"), netip.MustParseAddr("2001:db8:1::4")
		own := netip.PrefixFrom(server, 64)
		b.hops[own], b.hops[far] = topo.MAC{}, topo.MAC{}
		b.waiting = topo.Waiting{own: {first}, far: {first, second}}
		defer running(t, b, c)()
		b.lost <- far.Addr()
		synctest.Wait()
		b.changes <- struct{}{}
		synctest.Wait()
		want := []string{"2001:db8:1::4 (the gateway of 2001:db8:9::/48)", "2001:db8:9:: (by gateway 2001:db8:1::3 2001:db8:1::4)", "5f00:0:2:1:: (by gateway 2001:db8:1::3)"}
		if got := c.Lacking(); !slices.Equal(got, want) {
			t.Errorf("no next hop to %q, want %q", got, want)
		}
		if part := `missing=2 addresses="5f00:0:2:1:: (by gateway 2001:db8:1::3) 2001:db8:1::4 (the gateway of 2001:db8:9::/48)"`; !strings.Contains(b.logged(), part) {
			t.Errorf("the log has no %s:\n%s", part, b.logged())
		}
		b.with(func() { b.waiting = nil })
		b.learn(server)
		b.changes <- struct{}{}
		synctest.Wait()
		if got := c.Lacking(); !slices.Equal(got, []string{"2001:db8:9::"}) {
			t.Errorf("no next hop to %q after the gateways answered", got)
		}
	})
}

// TestLostTargets: the log names a server when its next hop is lost, once, and when it is known
// again.
func TestLostTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, c := newBench(t)
		b.learn(server)
		defer running(t, b, c)()
		c.update(c.links["eth0"])
		logged := func(want ...int) {
			t.Helper()
			synctest.Wait()
			for i, part := range []string{`"next hops are lost" missing=1 addresses=5f00:0:2:1::`, `"next hops are known again" addresses=5f00:0:2:1::`} {
				if n := strings.Count(b.logged(), part); n != want[i] {
					t.Errorf("the log has %s %d times, want %d:\n%s", part, n, want[i], b.logged())
				}
			}
		}
		logged(0, 0)
		b.with(func() { clear(b.hops) })
		b.changes <- struct{}{}
		logged(1, 0)
		time.Sleep(3 * refreshEvery)
		logged(1, 0)
		b.learn(server)
		logged(1, 1)
	})
}

// TestSuspects: the log names a sender without a valid tag, and again only if more come.
func TestSuspects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, c := newBench(t)
		defer running(t, b, c)()
		sender := netip.MustParsePrefix("5f00:0:2:7::/64")
		for i, packets := range []uint64{3, 3, 4, 4} {
			b.with(func() { b.suspects = []dataplane.Suspect{{Sender: sender, Packets: packets}} })
			time.Sleep(refreshEvery)
			synctest.Wait()
			if n, want := strings.Count(b.logged(), "sender=5f00:0:2:7::/64"), 1+i/2; n != want {
				t.Errorf("look %d: logged %d times, want %d:\n%s", i, n, want, b.logged())
			}
		}
	})
}
