package farm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
)

// TestLBKilled: connections in use survive the death of the LB and of all that
// it knew. A new one finds each connection's owner among its candidates, here
// the last of three, and steers again.
func TestLBKilled(t *testing.T) {
	const streams = 12
	bed := kit.Up(t, testbed.Config{Servers: 5})
	kit.Serve(t, bed)
	s := kit.Settings(t, "hunt:static:0")
	s.Choices = 3
	farm := kit.Start(t, bed, s)
	lb := bed.LBs[0]

	var done atomic.Bool
	rounds := make([]atomic.Int64, streams)
	group, ctx := errgroup.WithContext(t.Context())
	for i := range streams {
		group.Go(func() error { return stream(ctx, bed.Client, &done, &rounds[i]) })
	}
	t.Cleanup(func() { done.Store(true); group.Wait() }) // whatever fails below
	all := func(more int64) func() bool {
		var goal [streams]int64
		for i := range rounds {
			goal[i] = rounds[i].Load() + more
		}
		return func() bool {
			if ctx.Err() != nil {
				t.Fatal(context.Cause(ctx))
			}
			for i := range rounds {
				if rounds[i].Load() < goal[i] {
					return false
				}
			}
			return true
		}
	}

	kit.Eventually(t, "every stream runs", all(5))
	if n := kit.Counter(t, farm, "recover", lb); n > 0 {
		t.Errorf("the LB asked %d times whose a flow is before it had lost anything", n)
	}
	kit.Forget(t, farm.Daemon(lb))
	kit.Restart(t, bed, lb, "lb")
	kit.Eventually(t, "every stream goes on", all(5))

	recovered := kit.Counter(t, farm, "recovered", bed.Servers...)
	asked, learnt := kit.Counter(t, farm, "recover", lb), kit.Counter(t, farm, "stickiness_recovered", lb)
	if asked < streams || recovered < streams || learnt != streams {
		t.Errorf("the new LB asked %d times, %d answers, %d flows learnt; want %d", asked, recovered, learnt, streams)
	}
	if n := kit.Counter(t, farm, "pass_on_not_mine", bed.Servers...); n < 2*streams {
		t.Errorf("%d times a server passed the question on, want at least %d", n, 2*streams)
	}
	if n := kit.Counter(t, farm, "steer", lb); n < 4*streams {
		t.Errorf("the new LB steered %d packets, want at least %d", n, 4*streams)
	}
	done.Store(true)
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
}

// stream exchanges data every 100 ms on one connection until done, and counts.
func stream(ctx context.Context, n *testbed.Node, done *atomic.Bool, rounds *atomic.Int64) error {
	ctx, cancel := context.WithTimeout(ctx, kit.Patience)
	defer cancel()
	conns := 0
	transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		if conns++; conns > 1 {
			return nil, errors.New("the connection is gone")
		}
		return n.DialContext(ctx, network, address)
	}}
	defer transport.CloseIdleConnections()
	for !done.Load() {
		if err := kit.GetBytes(ctx, transport, 1000); err != nil {
			return fmt.Errorf("after %d exchanges: %w", rounds.Load(), err)
		}
		rounds.Add(1)
		time.Sleep(100 * time.Millisecond)
	}
	return nil
}
