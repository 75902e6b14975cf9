package agents

import (
	"errors"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
	"proffer/lab/traffic"
	"proffer/topo"
)

// TestApplicationDown: while another candidate lives, no client is refused
// because a server's application is gone and its host is not.
func TestApplicationDown(t *testing.T) {
	const requests = 600
	bed := kit.Up(t, testbed.Config{Servers: 3})
	servers := kit.Serve(t, bed)
	farm := kit.Start(t, bed, kit.Settings(t, "hunt:static:65535")) // none is ever too busy
	down := func(done, _ int) {
		if done > requests/3 {
			servers.All[0].Close()
		}
	}
	client := traffic.Client{To: kit.VIP(bed), Enter: bed.Client.Enter, Progress: down, Timeout: kit.Patience}
	run, err := client.Run(t.Context(), kit.Every(3*time.Millisecond, requests))
	if err != nil {
		t.Fatal(err)
	}
	answered := map[string]int{}
	for _, row := range run.Rows {
		answered[row.Server]++
		// What was open when the application ended ends with it.
		if row.Outcome != traffic.OK && row.Connected == 0 {
			t.Errorf("request %d did not get a connection: %s: %s", row.ID, row.Outcome, row.Cause)
		}
	}
	if n := kit.Counter(t, farm, "pass_on_no_listener", bed.Servers[0]); n == 0 {
		t.Error("the server without a listener passed nothing on")
	}
	if n := kit.Counter(t, farm, "refuse_no_listener", bed.Servers...); n != 0 {
		t.Errorf("%d offers refused", n)
	}
	t.Logf("answered by %v", answered)
	for _, s := range servers.All[1:] {
		s.Close()
	}
	if _, err := kit.TryDial(t, bed, kit.Patience); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("with no application left: %v", err)
	}
	if n := kit.Counter(t, farm, "refuse_no_listener", bed.Servers...); n != 1 {
		t.Errorf("%d offers refused for want of a listener, want 1", n)
	}
}

// TestAcceptQueueFull: a server whose application does not keep up passes offers
// on, though its policy would take them.
func TestAcceptQueueFull(t *testing.T) {
	const conns = 60
	bed := kit.Up(t, testbed.Config{Servers: 2})
	full, free := bed.Servers[0], bed.Servers[1]
	kit.ListenAt(t, bed, full, 1) // holds two
	kit.Obedient(t, bed, free)
	farm := kit.Start(t, bed, kit.Settings(t, "hunt:always"))
	queue(t, bed, full, 2)
	for range conns {
		if got := kit.Ask(t, kit.Dial(t, bed)); got != free.Name {
			t.Errorf("answered by %q", got)
		}
	}
	if n := kit.AcceptQueue(t, bed, full); n != 2 {
		t.Errorf("%d connections wait at the full server, want 2", n)
	}
	if n := kit.Counter(t, farm, "pass_on_full", full); n == 0 {
		t.Error("the full server passed nothing on")
	}
	if n := kit.Counter(t, farm, "accept_avail", bed.Servers...) + kit.Counter(t, farm, "accept_force", bed.Servers...); n < 2+conns {
		t.Errorf("%d connections taken, want %d", n, 2+conns)
	}
}

// queue opens connections until so many wait at a node.
func queue(t *testing.T, bed *testbed.Bed, n *testbed.Node, want int) {
	t.Helper()
	for k := range 1000 {
		if kit.AcceptQueue(t, bed, n) == want {
			return
		}
		kit.Dial(t, bed)
		kit.Eventually(t, "the connection is counted", func() bool {
			open := 0
			for _, s := range bed.Servers {
				open += len(kit.TCP6(t, bed, s, "01"))
			}
			return open > k
		})
	}
	t.Fatalf("%d connections wait at %s, want %d", kit.AcceptQueue(t, bed, n), n.Name, want)
}

// TestFullEverywhere: what the last candidate does is the operator's choice.
func TestFullEverywhere(t *testing.T) {
	timeout := func(err error) bool {
		var e net.Error
		return errors.As(err, &e) && e.Timeout()
	}
	refused := func(err error) bool { return errors.Is(err, unix.ECONNREFUSED) }
	for _, c := range []struct {
		choice  topo.OnFull
		counter string
		limit   time.Duration
		want    func(error) bool
	}{
		{topo.Reset, "refuse_full_reset", kit.Patience, refused},
		{topo.Drop, "refuse_full_drop", 1500 * time.Millisecond, timeout},
	} {
		t.Run(c.choice.String(), func(t *testing.T) {
			bed := kit.Up(t, testbed.Config{Servers: 2})
			for _, n := range bed.Servers {
				kit.ListenAt(t, bed, n, 1) // holds two
			}
			s := kit.Settings(t, "hunt:always")
			s.OnFull = c.choice
			farm := kit.Start(t, bed, s)
			for _, n := range bed.Servers {
				queue(t, bed, n, 2)
			}
			for range 3 {
				if _, err := kit.TryDial(t, bed, c.limit); !c.want(err) {
					t.Errorf("with every queue full: %v", err)
				}
			}
			for _, name := range []string{"refuse_full_reset", "refuse_full_drop", "refuse_no_listener"} {
				if n := kit.Counter(t, farm, name, bed.Servers...); (n >= 3) != (name == c.counter) || name != c.counter && n > 0 {
					t.Errorf("%s is %d", name, n)
				}
			}
			if n := kit.Counter(t, farm, "pass_on_full", bed.Servers...); n < 3 {
				t.Errorf("the first candidates passed on %d of 3", n)
			}
		})
	}
}

// TestResetConnectionsLeaveTheTable: a client that ends by RST leaves an entry
// that nothing will use any more. Kept for the idle time, 5 minutes, such
// entries fill the agent's table and later connections go without one.
func TestResetConnectionsLeaveTheTable(t *testing.T) {
	const conns = 200
	bed := kit.Up(t, testbed.Config{Servers: 1})
	kit.Obedient(t, bed)
	farm := kit.Start(t, bed, kit.Settings(t, "hunt:always"))
	for range conns {
		c := kit.Dial(t, bed)
		kit.Ask(t, c)
		kit.Reset(t, c)
	}
	kit.EventuallyIs(t, "connections of the kernel", 0, func() int { return len(kit.TCP6(t, bed, bed.Servers[0], "01")) })
	// It reports its last sweep's counts, and lets entries linger for some sweeps.
	kit.Eventually(t, "the agent has entries", func() bool { return kit.Status(t, farm, bed.Servers[0]).Flows > 0 })
	kit.EventuallyIs(t, "entries of the agent", 0, func() uint64 { return kit.Status(t, farm, bed.Servers[0]).Flows })
}
