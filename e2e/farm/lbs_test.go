package farm

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
)

// TestLBDaemonDies: without a daemon the LB's programs go on steering, and the
// next daemon takes over their flows: nothing has to be recovered.
func TestLBDaemonDies(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 4})
	kit.Echoes(t, bed, bed.Servers...)
	farm := kit.Start(t, bed, kit.Settings(t, "hunt:static:1"))
	lb := bed.LBs[0]
	flows := kit.Open(t, bed, 20000, 200)

	kit.Kill(t, farm.Daemon(lb))
	kit.Alive(t, "without a daemon", flows)
	more := kit.Open(t, bed, 30000, 20) // new ones, too
	if err := farm.Launch(t.Context(), lb); err != nil {
		t.Fatal(err)
	}
	if s := kit.Status(t, farm, lb); !s.Adopted {
		t.Error("the new daemon did not take over what the old one left")
	}
	kit.Alive(t, "under the new daemon", flows)
	kit.Alive(t, "under the new daemon", more)
	if n := kit.Counter(t, farm, "recover", lb); n > 0 {
		t.Errorf("%d packets had to ask for their flow: the entries are gone", n)
	}
	if n := kit.Counter(t, farm, "steer", lb); n < 220 {
		t.Errorf("the new program steered %d packets, want at least 220", n)
	}
}

// TestAgentDies: the same for a server's agent.
func TestAgentDies(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 2})
	kit.Echoes(t, bed, bed.Servers...)
	farm := kit.Start(t, bed, kit.Settings(t, "hunt:static:1"))
	flows := kit.Open(t, bed, 20000, 100)
	for _, s := range bed.Servers {
		kit.Kill(t, farm.Daemon(s))
	}
	kit.Alive(t, "without agents", flows)
	kit.Open(t, bed, 30000, 10)
	for _, s := range bed.Servers {
		if err := farm.Launch(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if !kit.Status(t, farm, s).Adopted {
			t.Errorf("the new agent of %s did not take over what the old one left", s.Name)
		}
	}
	kit.Alive(t, "under new agents", flows)
	for _, name := range []string{"steered_adopted", "give_back_not_mine"} {
		if n := kit.Counter(t, farm, name, bed.Servers...); n > 0 {
			t.Errorf("%s: %d: the agents' tables are gone", name, n)
		}
	}
}

// TestLBHostsComeAndGo: three LBs behind the router's ECMP; one dies, a cold one
// joins, all flows are rehashed, and each goes on through whichever LB it meets.
func TestLBHostsComeAndGo(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 4, LBs: 3})
	kit.Echoes(t, bed, bed.Servers...)
	farm := kit.Start(t, bed, kit.Settings(t, "hunt:static:1"))
	if err := bed.Announce(bed.LBs[0], bed.LBs[1]); err != nil {
		t.Fatal(err)
	}
	flows := kit.Open(t, bed, 20000, 300)
	for _, lb := range bed.LBs[:2] {
		if kit.Counter(t, farm, "offer", lb) == 0 {
			t.Fatalf("%s saw no flow: the router does not spread them", lb.Name)
		}
	}
	if err := bed.Kill(bed.LBs[0]); err != nil {
		t.Fatal(err)
	}
	kit.Alive(t, "after lb1 died", flows)
	if err := bed.Announce(bed.LBs[1], bed.LBs[2]); err != nil {
		t.Fatal(err)
	}
	kit.Alive(t, "after lb3 joined", flows)
	if kit.Counter(t, farm, "stickiness_recovered", bed.LBs[2]) == 0 {
		t.Error("lb3 recovered no flow")
	}
	if err := bed.Revive(t.Context(), bed.LBs[0]); err != nil {
		t.Fatal(err)
	}
	if err := farm.Launch(t.Context(), bed.LBs[0]); err != nil {
		t.Fatal(err)
	}
	if err := bed.Announce(bed.LBs[0]); err != nil {
		t.Fatal(err)
	}
	kit.Alive(t, "after all moved to a new lb1", flows)
	if n := kit.Counter(t, farm, "unowned", bed.Servers...); n > 0 {
		t.Errorf("%d packets reached a stack that did not know them", n)
	}
}

// TestRouteFlaps: two LBs take turns, each with stale entries of the other's
// time, while flows end and their ports are used again.
func TestRouteFlaps(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 4, LBs: 2})
	kit.Echoes(t, bed, bed.Servers...)
	farm := kit.Start(t, bed, kit.Settings(t, "hunt:static:0")) // the second candidate always
	for turn := range 5 {
		if err := bed.Announce(bed.LBs[turn%2]); err != nil {
			t.Fatal(err)
		}
		flows := kit.Open(t, bed, 20000, 50) // the same ports each time
		if err := bed.Announce(bed.LBs[(turn+1)%2]); err != nil {
			t.Fatal(err)
		}
		kit.Alive(t, "over the other LB", flows)
		if err := flows.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1100 * time.Millisecond) // the client's kernel keeps a port for a second
	}
	for _, name := range []string{"give_back_not_mine", "steered_other_generation"} {
		t.Logf("%s: %d", name, kit.Counter(t, farm, name, bed.Servers...))
	}
	if kit.Counter(t, farm, "stale_removed", bed.LBs...) == 0 {
		t.Error("no entry was ever stale: the test did not happen")
	}
}

// TestServerDiesBeforeHealth: the first candidate's host is down and no node
// knows: its flows start on the second, after SYNs without an answer.
func TestServerDown(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 2})
	kit.Echoes(t, bed, bed.Servers...)
	farm := kit.Start(t, bed, kit.Settings(t, "hunt:static:1000")) // the first candidate always
	if err := bed.Kill(bed.Servers[0]); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	kit.Open(t, bed, 20000, 40)
	t.Logf("40 flows in %v", time.Since(begun))
	if n := kit.Counter(t, farm, "offer_retry", bed.LBs[0]); n == 0 {
		t.Error("no SYN came twice: no first candidate was down")
	}
}

// TestPoolChanges: a server is replaced at the same moment as the LB, five
// times; flows of the servers that stay go on, by the shared history.
func TestPoolReload(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 4})
	kit.Echoes(t, bed, bed.Servers...)
	farm := kit.Start(t, bed, kit.Settings(t, "hunt:static:1"))
	flows := kit.Open(t, bed, 20000, 100)
	lb := bed.LBs[0]
	farm.Service.Version = 1
	farm.Service.Servers[3].Weight = 0 // drains: old flows go on, no new ones
	if err := farm.Reload(t.Context(), lb); err != nil {
		t.Fatal(err)
	}
	before := kit.Counter(t, farm, "accept_avail", bed.Servers[3]) + kit.Counter(t, farm, "accept_force", bed.Servers[3])
	kit.Alive(t, "while s4 drains", flows)
	kit.Open(t, bed, 30000, 100)
	after := kit.Counter(t, farm, "accept_avail", bed.Servers[3]) + kit.Counter(t, farm, "accept_force", bed.Servers[3])
	if after != before {
		t.Errorf("s4 drains and took %d new flows", after-before)
	}
}

// TestServerClosesThroughDeadLB: the LB to which a server signals the end of a
// flow is dead; the client learns of it all the same, without sending.
func TestServerClosesThroughDeadLB(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 2, LBs: 2})
	all := kit.Echoes(t, bed, bed.Servers...)
	farm := kit.Start(t, bed, kit.Settings(t, "hunt:static:1"))
	if err := bed.Announce(bed.LBs[0]); err != nil {
		t.Fatal(err)
	}
	var conns []net.Conn
	for i := range 8 {
		conn, err := bed.Client.DialContext(t.Context(), "tcp", netip.AddrPortFrom(bed.VIP, testbed.Port).String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if err := conn.SetDeadline(time.Now().Add(kit.Within)); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintf(conn, "%d 1\n", i); err != nil {
			t.Fatal(err)
		}
		if _, err := bufio.NewReader(conn).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	if err := bed.Announce(bed.LBs[1]); err != nil {
		t.Fatal(err)
	}
	if err := bed.Kill(bed.LBs[0]); err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for i, conn := range conns {
		if _, err := io.ReadAll(conn); err != nil {
			t.Errorf("connection %d: %v", i, err)
		}
	}
	if n := kit.Counter(t, farm, "signal_remove", bed.Servers...); n < uint64(len(conns)) {
		t.Errorf("%d ends were signalled, want %d", n, len(conns))
	}
}
