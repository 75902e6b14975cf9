package wire

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
)

const (
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
	for k := range kit.Connections {
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
func setECN(t *testing.T, n *testbed.Node) { kit.SetSysctl(t, n, "net/ipv4/tcp_ecn", "1") }

func oneConnection(ctx context.Context, n *testbed.Node, k int) error {
	ctx, cancel := context.WithTimeout(ctx, kit.Patience)
	defer cancel()
	once := k%2 == 0
	transport := &http.Transport{
		DialContext:       dialer(n, k/2%2*kit.Class),
		MaxConnsPerHost:   1,
		DisableKeepAlives: once,
	}
	defer transport.CloseIdleConnections()
	requests := 3
	if once {
		requests = 1
	}
	for range requests {
		if err := kit.GetBytes(ctx, transport, answer); err != nil {
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
