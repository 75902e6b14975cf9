package e2e

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proffer/lab/testbed"
)

const (
	connections = 200
	// class is the traffic class of every second connection: DSCP EF; the
	// kernel adds the ECN bits of a connection that uses ECN (RFC 3168).
	class = 46 << 2
	// answer is what one initial window holds, so that no FIN waits for room
	// and shares a segment with data.
	answer = 8000
)

// exchange makes many connections to the service: half of them for one request
// each (the server closes), half kept alive for three (the client closes). It
// returns when all are closed.
func exchange(t *testing.T, bed *testbed.Bed) {
	t.Helper()
	setECN(t, bed.Client)
	var group sync.WaitGroup
	for k := range connections {
		group.Go(func() {
			if err := oneConnection(t.Context(), bed.Client, k); err != nil {
				t.Errorf("connection %d: %v", k, err)
			}
		})
		time.Sleep(time.Millisecond) // some at once, not all
	}
	group.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// setECN makes a node ask for ECN; the servers agree by default.
func setECN(t *testing.T, n *testbed.Node) { setSysctl(t, n, "net/ipv4/tcp_ecn", "1") }

func oneConnection(ctx context.Context, n *testbed.Node, k int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	once := k%2 == 0
	transport := &http.Transport{
		DialContext:       dialer(n, k/2%2*class),
		MaxConnsPerHost:   1,
		DisableKeepAlives: once,
	}
	defer transport.CloseIdleConnections()
	requests := 3
	if once {
		requests = 1
	}
	for range requests {
		if err := getBytes(ctx, transport, answer); err != nil {
			return err
		}
	}
	return nil
}

// dialer dials from inside a node with a traffic class.
func dialer(n *testbed.Node, class int) func(context.Context, string, string) (net.Conn, error) {
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
		outer := c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_TCLASS, class)
		})
		return errors.Join(outer, err)
	}}
	return func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		err = n.Do(func() error {
			conn, err = d.DialContext(ctx, network, address)
			return err
		})
		return conn, err
	}
}

// setSysctl sets a value below /proc/sys in a node.
func setSysctl(t *testing.T, n *testbed.Node, path, value string) {
	t.Helper()
	err := n.Do(func() error { return os.WriteFile("/proc/sys/"+path, []byte(value), 0o644) })
	if err != nil {
		t.Fatalf("set %s on %s: %v", path, n.Name, err)
	}
}
