package agents

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
	"proffer/lab/traffic"
	"proffer/topo"
)

// TestOwnerTable: sockets that the agent cannot see, in containers on the
// server's link or behind it: its own table names a flow's owner, before and
// after other LBs, before and after its own death.
func TestOwnerTable(t *testing.T) {
	const flows = 60
	for _, spelt := range []string{testbed.VIP, testbed.VIP4} {
		t.Run(spelt, func(t *testing.T) {
			bed := kit.Up(t, testbed.Config{Servers: 3, LBs: 2})
			vip := netip.MustParseAddr(spelt)
			apps := map[*testbed.Node]*testbed.Node{}
			for i, kind := range []testbed.Kind{testbed.Macvlan, testbed.RoutedVeth} {
				apps[bed.Servers[i]] = behind(t, bed, bed.Servers[i], kind)
			}
			shared, err := apps[bed.Servers[0]].MAC()
			if err != nil {
				t.Fatal(err)
			}
			kit.Echo(t, apps[bed.Servers[0]], vip)
			kit.Echo(t, apps[bed.Servers[1]], vip)
			kit.Echo(t, bed.Servers[2], vip)
			s := kit.Settings(t, "hunt:static:0") // not the first candidate
			kit.FamilyOf(&s, vip)
			family := s.Agent
			s.Agent = func(n *testbed.Node, a *topo.Agent) {
				family(n, a)
				if apps[n] != nil {
					a.Services[0].Owner = topo.Table
				}
				if n == bed.Servers[0] {
					a.Services[0].MAC = topo.MAC(shared)
				}
			}
			farm := kit.Start(t, bed, s)
			if err := bed.Announce(bed.LBs[0]); err != nil {
				t.Fatal(err)
			}
			old := kit.OpenTo(t, bed, vip, kit.ClientsOf(bed, vip), 20000, flows)
			wantAll(t, bed, old)
			if err := bed.Announce(bed.LBs[1]); err != nil {
				t.Fatal(err)
			}
			kit.Alive(t, "over another LB", old)
			if n := kit.Counter(t, farm, "stickiness_recovered", bed.LBs[1]); n < flows {
				t.Errorf("the other LB learnt %d flows, want %d", n, flows)
			}
			for _, n := range bed.Servers {
				kit.Kill(t, farm.Daemon(n))
				if err := farm.Launch(t.Context(), n); err != nil {
					t.Fatal(err)
				}
				if !kit.Status(t, farm, n).Adopted {
					t.Errorf("the new agent of %s did not take over what the old one left", n.Name)
				}
			}
			kit.Alive(t, "under new agents", old)
			if err := bed.Announce(bed.LBs[0]); err != nil {
				t.Fatal(err)
			}
			kit.Alive(t, "over the first LB again", old)
			wantAll(t, bed, kit.OpenTo(t, bed, vip, kit.ClientsOf(bed, vip), 30000, flows))
			for _, name := range []string{"give_back_not_mine", "unowned", "pass_on_no_listener"} {
				if n := kit.Counter(t, farm, name, bed.Servers...); n > 0 {
					t.Errorf("%s: %d", name, n)
				}
			}
		})
	}
}

// behind puts an application's namespace behind a server.
func behind(t *testing.T, bed *testbed.Bed, server *testbed.Node, kind testbed.Kind) *testbed.Node {
	t.Helper()
	app, err := bed.Behind(server, kind)
	if err != nil {
		t.Fatal(err)
	}
	return app
}

// wantAll wants every server, or what is behind it, to have some of the flows.
func wantAll(t *testing.T, bed *testbed.Bed, flows *traffic.Flows) {
	t.Helper()
	share := map[string]int{}
	for _, name := range flows.Servers() {
		share[name]++
	}
	if len(share) != len(bed.Servers) {
		t.Errorf("the flows are at %v", share)
	}
}

// TestOwnerNetns: sockets of a container that the agent can look into: it knows
// the listeners there and how many connections wait.
func TestOwnerNetns(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 2, LBs: 2})
	server, other := bed.Servers[0], bed.Servers[1]
	app := behind(t, bed, server, testbed.RoutedVeth)
	const threshold = 2
	s := kit.Settings(t, fmt.Sprintf("hunt:static:%d", threshold))
	s.Agent = func(n *testbed.Node, a *topo.Agent) {
		if n == server {
			a.Services[0].Owner, a.Services[0].Netns = topo.Netns, filepath.Join("/run/netns", app.Namespace)
		}
	}
	farm := kit.Start(t, bed, s)
	if err := bed.Announce(bed.LBs[0]); err != nil {
		t.Fatal(err)
	}
	kit.Echo(t, other, bed.VIP)
	only := func(port int) { // while no process listens in the container
		t.Helper()
		for _, name := range kit.Open(t, bed, port, 30).Servers() {
			if name != other.Name {
				t.Errorf("answered by %q", name)
			}
		}
	}
	only(20000)
	if n := kit.Counter(t, farm, "pass_on_no_listener", server); n == 0 {
		t.Error("an agent without a listener in its container passed nothing on")
	}
	l := kit.ListenAt(t, bed, app, 8) // no process accepts
	// A connection that waits to be accepted is load.
	kit.Eventually(t, "a connection waits in the container's queue", func() bool {
		kit.TryDial(t, bed, kit.Within)
		return kit.Counter(t, farm, "pass_on_busy", server) > 0
	})
	if n := kit.AcceptQueue(t, bed, app); n < threshold {
		t.Errorf("%d connections wait in the container, %d are the threshold", n, threshold)
	}
	l.Close()
	kit.Echo(t, app, bed.VIP)
	flows := kit.Open(t, bed, 30000, 60)
	wantAll(t, bed, flows)
	if err := bed.Announce(bed.LBs[1]); err != nil {
		t.Fatal(err)
	}
	kit.Alive(t, "over another LB", flows)
	if kit.Counter(t, farm, "recovered", server) == 0 {
		t.Error("the agent found none of the container's sockets")
	}
	kit.Kill(t, farm.Daemon(server))
	if err := farm.Launch(t.Context(), server); err != nil {
		t.Fatal(err)
	}
	kit.Alive(t, "under a new agent", flows)
	for _, name := range []string{"give_back_not_mine", "unowned"} {
		if n := kit.Counter(t, farm, name, bed.Servers...); n > 0 {
			t.Errorf("%s: %d", name, n)
		}
	}
}

// TestOwnerNetnsRestarts: a container restarts, and its network namespace is another under
// the same name; the agent asks that one within seconds, and the flows at other servers do
// not notice.
func TestOwnerNetnsRestarts(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 2})
	server, other := bed.Servers[0], bed.Servers[1]
	app := behind(t, bed, server, testbed.RoutedVeth)
	s := kit.Settings(t, "hunt:static:30")
	s.Agent = func(n *testbed.Node, a *topo.Agent) {
		if n == server {
			a.Services[0].Owner, a.Services[0].Netns = topo.Netns, filepath.Join("/run/netns", app.Namespace)
		}
	}
	kit.Echo(t, other, bed.VIP)
	inside := kit.Echo(t, app, bed.VIP)
	farm := kit.Start(t, bed, s)
	kit.Open(t, bed, 20000, 30)
	for i := range 3 {
		inside.Close()
		next, err := bed.Restart(app)
		if err != nil {
			t.Fatal(err)
		}
		app, inside = next, kit.Echo(t, next, bed.VIP)
		first := 21000 + 1000*i
		kit.Eventually(t, fmt.Sprintf("restart %d: the container has connections", i+1), func() bool {
			flows := kit.Open(t, bed, first, 9)
			first += 9
			return slices.Contains(flows.Servers(), app.Name)
		})
	}
	kit.Eventually(t, "the agent's log names the change of the namespace", func() bool {
		return strings.Contains(farm.Daemon(server).Log(), "the network namespace at /run/netns/"+app.Namespace)
	})
}
