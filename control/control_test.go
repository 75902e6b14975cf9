package control

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"proffer/dataplane"
	"proffer/topo"
)

var (
	server = netip.MustParseAddr("5f00:0:2:1::")
	other  = netip.MustParseAddr("5f00:0:2:2::")
	router = topo.MAC{2, 0, 0, 0, 0, 1}
)

func TestStartWaitsForNextHops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, c := newBench(t)
		ended := make(chan error, 1)
		go func() { ended <- c.Start(t.Context()) }()
		synctest.Wait()
		if len(ended) > 0 || b.refreshed != 1 {
			t.Fatalf("started without its target's next hop; asked for it %d times", b.refreshed)
		}
		b.learn(other)
		synctest.Wait()
		if len(ended) > 0 {
			t.Fatal("started with another's next hop")
		}
		b.learn(server)
		synctest.Wait()
		if len(ended) == 0 {
			t.Fatal("still waits with every next hop known")
		}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if hops, _ := b.given(); hops[netip.PrefixFrom(server, 64)] != router {
			t.Fatalf("the plane was not given the next hop: %v", hops)
		}
	})
}

// TestStartWaitsForGateways: those of other routes count as missing, too.
func TestStartWaitsForGateways(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, c := newBench(t)
		c.ways = Ways{"eth0": nil}
		b.waiting = topo.Waiting{netip.PrefixFrom(other, 64): {netip.MustParseAddr("2001:db8::1")}}
		ended := make(chan error, 1)
		go func() { ended <- c.Start(t.Context()) }()
		synctest.Wait()
		if len(ended) > 0 {
			t.Fatal("started while a gateway was unknown")
		}
		b.mu.Lock()
		b.waiting = nil
		b.mu.Unlock()
		b.changes <- struct{}{}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	})
}

func TestStartDoesNotWaitForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, c := newBench(t)
		b.fails["Refresh"] = errors.New("no route")
		begin := time.Now()
		if err := c.Start(t.Context()); err != nil {
			t.Fatalf("a silent neighbour stops the start: %v", err)
		}
		if took := time.Since(begin); took != resolveWithin {
			t.Errorf("waited %v, want %v", took, resolveWithin)
		}
		for _, want := range []string{"some next hops do not answer yet", "missing=1", "no route"} {
			if !strings.Contains(b.logged(), want) {
				t.Errorf("the log does not say %q:\n%s", want, b.logged())
			}
		}
	})
}

func TestStartFails(t *testing.T) {
	for _, method := range []string{"Read", "Reach"} {
		b, c := newBench(t)
		b.fails[method] = errors.New("broken")
		if err := c.Start(t.Context()); !errors.Is(err, b.fails[method]) {
			t.Errorf("%s broken: %v", method, err)
		}
	}
}

// running starts Run and Listen, and returns the function that ends them.
func running(t *testing.T, b *bench, c *Controller) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	work.Go(func() { c.Run(ctx) })
	work.Go(func() { c.Listen(ctx) })
	return func() {
		cancel()
		close(b.lost)
		work.Wait()
	}
}

func TestRunResolvesWhatPacketsLacked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, c := newBench(t)
		stop := running(t, b, c)
		defer stop()
		b.lost <- other
		b.lost <- server
		synctest.Wait()
		if !slices.Equal(b.resolved, []netip.Addr{other, server}) {
			t.Fatalf("resolved %v", b.resolved)
		}
	})
}

func TestRunFollowsChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, c := newBench(t)
		stop := running(t, b, c)
		defer stop()
		b.learn(other)
		synctest.Wait()
		if hops, n := b.given(); n != 1 || hops[netip.PrefixFrom(other, 64)] != router {
			t.Fatalf("given %d times, last %v", n, hops)
		}
	})
}

func TestRunSweepsAndRefreshes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, c := newBench(t)
		stop := running(t, b, c)
		defer stop()
		time.Sleep(60*time.Second + time.Millisecond)
		synctest.Wait()
		if len(b.sweeps) != 60 || c.Flows() != 60 {
			t.Errorf("%d sweeps in a minute, the last kept %d", len(b.sweeps), c.Flows())
		}
		if b.refreshed != 4 {
			t.Errorf("%d refreshes in a minute", b.refreshed)
		}
	})
}

// TestRunOutlivesErrors: packets flow on whatever upkeep meets.
func TestRunOutlivesErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, c := newBench(t)
		for _, method := range []string{"Read", "Reach", "SweepTurn", "Resolve", "Refresh", "Follow", "Problems"} {
			b.fails[method] = errors.New(method + " is broken")
		}
		stop := running(t, b, c)
		defer stop()
		b.learn(server)
		b.lost <- server
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if len(b.sweeps) != 20 || len(b.resolved) != 1 || b.refreshed != 1 {
			t.Errorf("%d sweeps, %v resolved, %d refreshes", len(b.sweeps), b.resolved, b.refreshed)
		}
		for _, method := range []string{"Read", "SweepTurn", "Resolve", "Refresh", "Follow", "Problems"} {
			if !strings.Contains(b.logged(), method+" is broken") {
				t.Errorf("an error of %s is not logged", method)
			}
		}
		if c.Flows() != 0 {
			t.Errorf("a failed sweep reports %d flows", c.Flows())
		}
	})
}

// TestRunFollowsLink: a change is followed within a second, and logged once; a link that is gone
// ends the upkeep, and so the daemon.
func TestRunFollowsLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, c := newBench(t)
		ended := make(chan error, 1)
		go func() { ended <- c.Run(t.Context()) }()
		b.with(func() { b.change = "MTU 1500 is now 1400" })
		time.Sleep(3*sweepEvery + time.Millisecond)
		if n := strings.Count(b.logged(), `msg="a change is followed" change="MTU 1500 is now 1400"`); n != 1 {
			t.Errorf("logged %d times:\n%s", n, b.logged())
		}
		b.with(func() { b.fails["Follow"] = fmt.Errorf("eth0: %w", dataplane.ErrLinkGone) })
		time.Sleep(sweepEvery)
		synctest.Wait()
		select {
		case err := <-ended:
			if !errors.Is(err, dataplane.ErrLinkGone) {
				t.Errorf("upkeep ended with %v", err)
			}
		default:
			t.Fatal("upkeep goes on without its link")
		}
	})
}

// TestRunRetries: a target without a next hop is asked for each second until it has one.
func TestRunRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, c := newBench(t)
		defer running(t, b, c)()
		b.learn(other) // the target's is still missing
		time.Sleep(3*sweepEvery + time.Millisecond)
		synctest.Wait()
		if want := []netip.Addr{server, server, server}; !slices.Equal(b.resolved, want) {
			t.Errorf("asked for %v, want %v", b.resolved, want)
		}
		b.learn(server)
		time.Sleep(3 * sweepEvery)
		synctest.Wait()
		if len(b.resolved) != 3 {
			t.Errorf("asked for %v after it was known", b.resolved)
		}
	})
}

// TestRunChecks: a problem is logged when it comes and when it goes, and listed meanwhile.
func TestRunChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, c := newBench(t)
		defer running(t, b, c)()
		const problem = "eth0 has another program before ours"
		b.with(func() { b.problems = []string{problem} })
		time.Sleep(3*sweepEvery + time.Millisecond)
		synctest.Wait()
		if n := strings.Count(b.logged(), "level=ERROR"); n != 1 || !slices.Equal(c.Problems(), []string{problem}) {
			t.Errorf("%d errors, problems %q:\n%s", n, c.Problems(), b.logged())
		}
		b.with(func() { b.problems = nil })
		time.Sleep(2 * sweepEvery)
		synctest.Wait()
		if n := strings.Count(b.logged(), "meet the programs again"); n != 1 || len(c.Problems()) > 0 {
			t.Errorf("%d ends, problems %q:\n%s", n, c.Problems(), b.logged())
		}
	})
}

// TestListenEndsWithAnAddressInHand: the bubble would not end if Listen waited
// for a Run that has ended.
func TestListenEndsWithAnAddressInHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, c := newBench(t)
		ctx, cancel := context.WithCancel(t.Context())
		go c.Listen(ctx)
		b.lost <- other
		cancel()
	})
}

// TestStartEndsWithItsContext: an interrupted daemon does not wait for silent
// neighbours.
func TestStartEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, c := newBench(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		begin := time.Now()
		if err := c.Start(ctx); err != nil || time.Since(begin) > 0 || b.logged() != "" {
			t.Errorf("after %v: %v\n%s", time.Since(begin), err, b.logged())
		}
	})
}

// TestSetWays: new ones are resolved at once and kept known from then on.
func TestSetWays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, c := newBench(t)
		c.SetWays(Ways{"eth0": {other}})
		if b.refreshed != 1 || !slices.Equal(b.targets, []netip.Addr{other}) {
			t.Fatalf("%d refreshes, the last of %v", b.refreshed, b.targets)
		}
		defer running(t, b, c)()
		time.Sleep(refreshEvery + time.Millisecond)
		synctest.Wait()
		if b.refreshed != 2 || !slices.Equal(b.targets, []netip.Addr{other}) {
			t.Errorf("%d refreshes, the last of %v", b.refreshed, b.targets)
		}
	})
}
