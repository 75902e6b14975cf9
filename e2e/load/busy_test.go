package load

import (
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
)

// TestAsking: load: busy counts a connection while a request is in
// progress on it, and no longer, however the request ends.
func TestAsking(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 1})
	kit.Obedient(t, bed)
	farm := kit.Start(t, bed, kit.Settings(t, "hunt:static:4"))
	asking := func(want uint32) {
		t.Helper()
		kit.EventuallyIs(t, "requests in progress", want, func() uint32 { return kit.LoadAt(t, farm, bed.Servers[0]).Asking })
	}
	gone := func(c net.Conn) { // the server has closed it
		t.Helper()
		c.SetReadDeadline(time.Now().Add(kit.Patience))
		if _, err := io.Copy(io.Discard, c); err != nil {
			t.Errorf("waiting for the close: %v", err)
		}
	}

	idle := kit.Dial(t, bed)
	asking(0)
	for range 3 { // keep-alive
		kit.Say(t, idle, "quiet")
		asking(1)
		kit.Ask(t, idle)
		asking(0)
	}
	ends := []struct {
		how string
		end func(c *net.TCPConn)
	}{
		{"answer", func(c *net.TCPConn) { kit.Ask(t, c) }},
		{"client's RST", func(c *net.TCPConn) { kit.Reset(t, c) }},
		{"client's close", func(c *net.TCPConn) { c.Close() }},
		{"server's close without an answer", func(c *net.TCPConn) { kit.Say(t, c, "close"); gone(c) }},
		{"server's abort", func(c *net.TCPConn) { kit.Say(t, c, "abort") }},
	}
	for _, e := range ends {
		t.Run(e.how, func(t *testing.T) {
			c := kit.Dial(t, bed)
			kit.Say(t, c, "quiet")
			asking(1)
			e.end(c)
			asking(0)
		})
	}
	t.Run("many at once", func(t *testing.T) {
		const conns = 100
		var open []*net.TCPConn
		for range conns {
			c := kit.Dial(t, bed)
			kit.Say(t, c, "quiet")
			open = append(open, c)
		}
		asking(conns)
		for i, c := range open {
			ends[i%len(ends)].end(c)
		}
		asking(0)
	})
	if got := kit.Ask(t, idle); got != "s1" {
		t.Errorf("the idle connection is dead: %q", got)
	}
}

// TestAskingOutlivesHalfClose: a client that has said all waits for its answer;
// the server is as busy as before.
func TestAskingOutlivesHalfClose(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 1})
	l := kit.ListenAt(t, bed, bed.Servers[0], 8)
	farm := kit.Start(t, bed, kit.Settings(t, "hunt:static:4"))
	c := kit.Dial(t, bed)
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	kit.Say(t, c, "request")
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(s); err != nil || string(got) != "request\n" {
		t.Fatalf("the server got %q, %v", got, err)
	}
	// Both the request and the FIN have passed the agent.
	if n := kit.LoadAt(t, farm, bed.Servers[0]).Asking; n != 1 {
		t.Errorf("%d requests in progress after the client's FIN, want 1", n)
	}
	fmt.Fprint(s, "answer")
	s.Close()
	if got, err := io.ReadAll(c); err != nil || string(got) != "answer" {
		t.Fatalf("the client got %q, %v", got, err)
	}
	kit.EventuallyIs(t, "requests in progress", 0, func() uint32 { return kit.LoadAt(t, farm, bed.Servers[0]).Asking })
}

// TestBusyIsRequestsInProgress: static:3 lets a server have three.
func TestBusyIsRequestsInProgress(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 3})
	kit.Obedient(t, bed)
	farm := kit.Start(t, bed, kit.Settings(t, "hunt:static:3"))
	made := uint32(0)
	kit.WantStatic(t, farm, 3, 24, func() {
		kit.Say(t, kit.Dial(t, bed), "quiet")
		made++
		kit.EventuallyIs(t, "requests in progress", made, func() uint32 { return kit.LoadOfAll(t, farm).Asking })
	}, func(i int) uint64 { return uint64(kit.LoadAt(t, farm, bed.Servers[i]).Asking) })
}

// TestBusyIsAcceptQueue: connections that the application has not taken yet are
// load, whether they ask for something or not.
func TestBusyIsAcceptQueue(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 3})
	for _, n := range bed.Servers {
		kit.ListenAt(t, bed, n, 128)
	}
	farm := kit.Start(t, bed, kit.Settings(t, "hunt:static:3"))
	kit.WantStatic(t, farm, 3, 24, func() {
		kit.Dial(t, bed)
		kit.EventuallyIs(t, "accepted, not arrived", 0, func() uint32 { return kit.LoadOfAll(t, farm).Expected })
	}, func(i int) uint64 { return uint64(kit.AcceptQueue(t, bed, bed.Servers[i])) })
	if n := kit.LoadOfAll(t, farm).Asking; n != 0 {
		t.Errorf("%d requests in progress on connections without a request", n)
	}
}

// TestAskingIsExact: after thousands of connections, resets on the heels of a
// request among them, nothing is in progress.
func TestAskingIsExact(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 2})
	kit.Obedient(t, bed)
	farm := kit.Start(t, bed, kit.Settings(t, "hunt:static:4"))
	churn(t, bed, 4000)
	kit.EventuallyIs(t, "requests in progress", 0, func() uint32 { return kit.LoadOfAll(t, farm).Asking })
	kit.EventuallyIs(t, "accepted, not arrived", 0, func() uint32 { return kit.LoadOfAll(t, farm).Expected })
}
