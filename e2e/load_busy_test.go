package e2e

import (
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"proffer/lab/testbed"
)

// TestAsking: load: busy counts a connection while a request is in
// progress on it, and no longer, however the request ends.
func TestAsking(t *testing.T) {
	bed := up(t, testbed.Config{Servers: 1})
	obedient(t, bed)
	farm := start(t, bed, settings(t, "hunt:static:4"))
	asking := func(want uint32) {
		t.Helper()
		eventuallyIs(t, "requests in progress", want, func() uint32 { return loadAt(t, farm, bed.Servers[0]).Asking })
	}
	gone := func(c net.Conn) { // the server has closed it
		t.Helper()
		c.SetReadDeadline(time.Now().Add(patience))
		if _, err := io.Copy(io.Discard, c); err != nil {
			t.Errorf("waiting for the close: %v", err)
		}
	}

	idle := dial(t, bed)
	asking(0)
	for range 3 { // keep-alive
		say(t, idle, "quiet")
		asking(1)
		ask(t, idle)
		asking(0)
	}
	ends := []struct {
		how string
		end func(c *net.TCPConn)
	}{
		{"answer", func(c *net.TCPConn) { ask(t, c) }},
		{"client's RST", func(c *net.TCPConn) { reset(t, c) }},
		{"client's close", func(c *net.TCPConn) { c.Close() }},
		{"server's close without an answer", func(c *net.TCPConn) { say(t, c, "close"); gone(c) }},
		{"server's abort", func(c *net.TCPConn) { say(t, c, "abort") }},
	}
	for _, e := range ends {
		t.Run(e.how, func(t *testing.T) {
			c := dial(t, bed)
			say(t, c, "quiet")
			asking(1)
			e.end(c)
			asking(0)
		})
	}
	t.Run("many at once", func(t *testing.T) {
		const conns = 100
		var open []*net.TCPConn
		for range conns {
			c := dial(t, bed)
			say(t, c, "quiet")
			open = append(open, c)
		}
		asking(conns)
		for i, c := range open {
			ends[i%len(ends)].end(c)
		}
		asking(0)
	})
	if got := ask(t, idle); got != "s1" {
		t.Errorf("the idle connection is dead: %q", got)
	}
}

// TestAskingOutlivesHalfClose: a client that has said all waits for its answer;
// the server is as busy as before.
func TestAskingOutlivesHalfClose(t *testing.T) {
	bed := up(t, testbed.Config{Servers: 1})
	l := listenAt(t, bed, bed.Servers[0], 8)
	farm := start(t, bed, settings(t, "hunt:static:4"))
	c := dial(t, bed)
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	say(t, c, "request")
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(s); err != nil || string(got) != "request\n" {
		t.Fatalf("the server got %q, %v", got, err)
	}
	// Both the request and the FIN have passed the agent.
	if n := loadAt(t, farm, bed.Servers[0]).Asking; n != 1 {
		t.Errorf("%d requests in progress after the client's FIN, want 1", n)
	}
	fmt.Fprint(s, "answer")
	s.Close()
	if got, err := io.ReadAll(c); err != nil || string(got) != "answer" {
		t.Fatalf("the client got %q, %v", got, err)
	}
	eventuallyIs(t, "requests in progress", 0, func() uint32 { return loadAt(t, farm, bed.Servers[0]).Asking })
}

// TestBusyIsRequestsInProgress: static:3 lets a server have three.
func TestBusyIsRequestsInProgress(t *testing.T) {
	bed := up(t, testbed.Config{Servers: 3})
	obedient(t, bed)
	farm := start(t, bed, settings(t, "hunt:static:3"))
	made := uint32(0)
	wantStatic(t, farm, 3, 24, func() {
		say(t, dial(t, bed), "quiet")
		made++
		eventuallyIs(t, "requests in progress", made, func() uint32 { return loadOfAll(t, farm).Asking })
	}, func(i int) uint64 { return uint64(loadAt(t, farm, bed.Servers[i]).Asking) })
}

// TestBusyIsAcceptQueue: connections that the application has not taken yet are
// load, whether they ask for something or not.
func TestBusyIsAcceptQueue(t *testing.T) {
	bed := up(t, testbed.Config{Servers: 3})
	for _, n := range bed.Servers {
		listenAt(t, bed, n, 128)
	}
	farm := start(t, bed, settings(t, "hunt:static:3"))
	wantStatic(t, farm, 3, 24, func() {
		dial(t, bed)
		eventuallyIs(t, "accepted, not arrived", 0, func() uint32 { return loadOfAll(t, farm).Expected })
	}, func(i int) uint64 { return uint64(acceptQueue(t, bed, bed.Servers[i])) })
	if n := loadOfAll(t, farm).Asking; n != 0 {
		t.Errorf("%d requests in progress on connections without a request", n)
	}
}

// TestAskingIsExact: after thousands of connections, resets on the heels of a
// request among them, nothing is in progress.
func TestAskingIsExact(t *testing.T) {
	bed := up(t, testbed.Config{Servers: 2})
	obedient(t, bed)
	farm := start(t, bed, settings(t, "hunt:static:4"))
	churn(t, bed, 4000)
	eventuallyIs(t, "requests in progress", 0, func() uint32 { return loadOfAll(t, farm).Asking })
	eventuallyIs(t, "accepted, not arrived", 0, func() uint32 { return loadOfAll(t, farm).Expected })
}
