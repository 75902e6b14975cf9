package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"proffer/lab/testbed"
	"proffer/lab/traffic/responder"
)

// TestLBKilled: connections in use survive the death of the LB and of all that
// it knew. A new one finds each connection's owner among its candidates, here
// the last of three, and steers again.
func TestLBKilled(t *testing.T) {
	const streams = 12
	bed := up(t, testbed.Config{Servers: 5})
	serve(t, bed)
	s := settings(t, "hunt:static:0")
	s.Choices = 3
	farm := start(t, bed, s)
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

	eventually(t, "every stream runs", all(5))
	if n := counter(t, farm, "recover", lb); n > 0 {
		t.Errorf("the LB asked %d times whose a flow is before it had lost anything", n)
	}
	forget(t, farm.Daemon(lb))
	restart(t, bed, lb, "lb")
	eventually(t, "every stream goes on", all(5))

	recovered := counter(t, farm, "recovered", bed.Servers...)
	asked, learnt := counter(t, farm, "recover", lb), counter(t, farm, "stickiness_recovered", lb)
	if asked < streams || recovered < streams || learnt != streams {
		t.Errorf("the new LB asked %d times, %d answers, %d flows learnt; want %d", asked, recovered, learnt, streams)
	}
	if n := counter(t, farm, "pass_on_not_mine", bed.Servers...); n < 2*streams {
		t.Errorf("%d times a server passed the question on, want at least %d", n, 2*streams)
	}
	if n := counter(t, farm, "steer", lb); n < 4*streams {
		t.Errorf("the new LB steered %d packets, want at least %d", n, 4*streams)
	}
	done.Store(true)
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
}

// stream exchanges data every 100 ms on one connection until done, and counts.
func stream(ctx context.Context, n *testbed.Node, done *atomic.Bool, rounds *atomic.Int64) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
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
		if err := getBytes(ctx, transport, 1000); err != nil {
			return fmt.Errorf("after %d exchanges: %w", rounds.Load(), err)
		}
		rounds.Add(1)
		time.Sleep(100 * time.Millisecond)
	}
	return nil
}

// getBytes asks for /bytes/size and compares.
func getBytes(ctx context.Context, transport http.RoundTripper, size int64) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s/bytes/%d", url, size), nil)
	if err != nil {
		return err
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	want, err := io.ReadAll(responder.Bytes(size))
	if err == nil && string(got) != string(want) {
		err = fmt.Errorf("%d bytes, not those of /bytes/%d", len(got), size)
	}
	return err
}
