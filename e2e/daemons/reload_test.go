package daemons

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"proffer/e2e/kit"
	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/lab/traffic"
	"proffer/lab/traffic/responder"
	"proffer/topo"
)

// steadily makes 200 requests a second to the service until stop is closed, in
// runs of half a second. Every one must be answered; it returns how many were.
func steadily(t *testing.T, bed *testbed.Bed, stop <-chan struct{}) (requests int, err error) {
	client := traffic.Client{To: kit.VIP(bed), Enter: bed.Client.Enter, Timeout: kit.Patience}
	for {
		run, err := client.Run(t.Context(), traffic.Steady(200, 500*time.Millisecond))
		if err != nil {
			return requests, err
		}
		for _, row := range run.Rows {
			if row.Outcome != traffic.OK {
				return requests, fmt.Errorf("request %d from %s to %s: %s: %s", row.ID, row.From, row.Server, row.Outcome, row.Cause)
			}
		}
		requests += len(run.Rows)
		select {
		case <-stop:
			return requests, nil
		default:
		}
	}
}

// underLoad does something while the service is in use.
func underLoad(t *testing.T, bed *testbed.Bed, something func()) {
	t.Helper()
	stop, requests := make(chan struct{}), 0
	var group errgroup.Group
	group.Go(func() (err error) {
		requests, err = steadily(t, bed, stop)
		return err
	})
	func() {
		defer close(stop)
		something()
	}()
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
	t.Logf("%d requests meanwhile", requests)
}

// TestReloadsUnderLoad: weights and pools change a hundred times, as an operator
// changes them, and no connection, long or short, sees anything of it.
func TestReloadsUnderLoad(t *testing.T) {
	const reloads, long = 100, 60
	bed := kit.Up(t, testbed.Config{Servers: 4})
	kit.Serve(t, bed)
	s := kit.Settings(t, "hunt:static:2")
	const echoPort = testbed.Port + 1
	both(&s, echoPort)
	two := s.LB
	s.LB = func(lb *topo.LB) {
		two(lb)
		for i := range lb.Services {
			lb.Services[i].Buckets = 4099 // computed a thousand times
		}
	}
	farm := kit.Start(t, bed, s)
	lb, guest := bed.LBs[0], bed.Servers[3] // comes and goes
	all := farm.Service.Servers
	reload := func(servers []topo.Server) {
		before := topo.Version{Version: farm.Service.Version, Servers: farm.Service.Servers}
		history := append([]topo.Version{before}, farm.Service.History...)
		farm.Service.Version++
		farm.Service.Servers, farm.Service.History = servers, history[:min(4, len(history))]
		if err := farm.Reload(t.Context(), lb); err != nil {
			t.Fatal(err)
		}
	}
	reload(all[:3]) // 1
	flows := openEchoes(t, bed, echoPort, long)
	underLoad(t, bed, func() {
		for i := 1; i < reloads; i += 3 {
			reload(weighted(all, i, 1))
			reload(weighted(all, i+1, 0)) // the guest drains
			kit.Eventually(t, "the guest has no connection left", func() bool {
				return len(kit.TCP6(t, bed, guest, "01"))+len(kit.TCP6(t, bed, guest, "03")) == 0
			})
			reload(weighted(all, i+2, 0)[:3])
			if i%30 == 1 {
				kit.Alive(t, fmt.Sprintf("after %d reloads", i+3), flows)
			}
		}
	})
	kit.Alive(t, "after all reloads", flows)
	if s := kit.Status(t, farm, lb); s.Reloads != reloads || s.Refused != 0 {
		t.Errorf("%d reloads and %d refused, want %d and 0", s.Reloads, s.Refused, reloads)
	}
	if n := kit.Counter(t, farm, "accept_avail", guest) + kit.Counter(t, farm, "accept_force", guest); n == 0 {
		t.Errorf("%s never took a connection: the pool did not change", guest.Name)
	}
}

// weighted are all servers with the i-th weights, and the last one with its own.
func weighted(all []topo.Server, i, last int) []topo.Server {
	servers := slices.Clone(all)
	for k := range servers {
		servers[k].Weight = 1 + (i+k)%3
	}
	servers[len(servers)-1].Weight = last
	return servers
}

// both offers the farm's service on a second port, too.
func both(s *farmrun.Settings, port uint16) {
	s.LB = func(lb *topo.LB) {
		second := lb.Services[0]
		second.Name, second.VIP.Port = "echo", port
		lb.Services = append(lb.Services, second)
	}
	s.Agent = func(_ *testbed.Node, a *topo.Agent) {
		second := a.Services[0]
		second.Name, second.VIP.Port = "echo", port
		a.Services = append(a.Services, second)
	}
}

// openEchoes runs an Echo on a port of every server and opens flows to it.
func openEchoes(t *testing.T, bed *testbed.Bed, port uint16, k int) *traffic.Flows {
	t.Helper()
	at := netip.AddrPortFrom(bed.VIP, port)
	for _, n := range bed.Servers {
		e := responder.NewEcho(n.Name)
		t.Cleanup(func() { e.Close() })
		l, err := n.Listen("tcp6", at.String())
		if err != nil {
			t.Fatal(err)
		}
		go e.Serve(l) // ends with Close
	}
	flows, err := traffic.OpenFlows(t.Context(), traffic.Dial{
		To: at, From: kit.Ends(bed.ClientAddrs, 20000, k), Timeout: kit.Within, Enter: bed.Client.Enter,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { flows.Close() })
	kit.Alive(t, "after opening", flows)
	return flows
}

// TestReloadRefused: a configuration with a mistake changes nothing, and the log
// names the place of the mistake.
func TestReloadRefused(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 2})
	kit.Serve(t, bed)
	farm := kit.Start(t, bed, kit.Settings(t, "hunt:static:2"))
	lb := bed.LBs[0]
	file := kit.Configuration(bed, lb)
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	refused := uint64(0)
	for _, c := range []struct{ was, is, says string }{
		{"choices: 2", "choices: 9", "choices"},
		{"    dispatch: hunt", "    dispatch: hunter", "hunter"},
		{"weight: 1", "weight: heavy", "heavy"},
		{"flow_table:", "flow_tables:", "flow_tables"},
	} {
		before, _, found := strings.Cut(string(good), c.was)
		if !found {
			t.Fatalf("no %q in\n%s", c.was, good)
		}
		if err := os.WriteFile(file, []byte(strings.Replace(string(good), c.was, c.is, 1)), 0o644); err != nil {
			t.Fatal(err)
		}
		hangUp(t, farm, lb)
		refused++
		kit.EventuallyIs(t, "configurations refused", refused, func() uint64 { return kit.Status(t, farm, lb).Refused })
		where := fmt.Sprintf("%s:%d:", file, 1+strings.Count(before, "\n"))
		kit.Eventually(t, fmt.Sprintf("the log's last line has %q and %q", where, c.says), func() bool {
			lines := strings.Split(farm.Daemon(lb).Log(), "\n")
			last := lines[len(lines)-1]
			return strings.Contains(last, where) && strings.Contains(last, c.says)
		})
		kit.In(t, bed.Client, "curl", "-sS", "--fail", kit.URL+"/")
	}
	if n := kit.Status(t, farm, lb).Reloads; n != 0 {
		t.Errorf("%d of them were applied", n)
	}
	if err := farm.Reload(t.Context(), lb); err != nil {
		t.Errorf("the right configuration after wrong ones: %v", err)
	}
}

// hangUp makes a node's daemon read its files again.
func hangUp(t *testing.T, farm *farmrun.Farm, n *testbed.Node) {
	t.Helper()
	if err := farm.Daemon(n).Signal(unix.SIGHUP); err != nil {
		t.Fatal(err)
	}
}

// TestSuperPackets: a server in full flow sends segments by the dozen, which
// cannot be signalled; an LB that knows nothing of the stream learns it all the
// same, from a small packet or by asking on.
func TestSuperPackets(t *testing.T) {
	const streams, size = 3, 20_000_000
	bed := kit.Up(t, testbed.Config{Servers: 3, LBs: 2})
	kit.Bulks(t, bed, bed.Servers...)
	farm := kit.Start(t, bed, kit.Settings(t, "hunt:static:0"))
	if err := bed.Announce(bed.LBs[0]); err != nil {
		t.Fatal(err)
	}
	down := kit.Begin(t, bed, bed.VIP, false, 20000, streams)
	kit.Move(t, "before", down, size)
	if err := bed.Announce(bed.LBs[1]); err != nil {
		t.Fatal(err)
	}
	if err := bed.Kill(bed.LBs[0]); err != nil {
		t.Fatal(err)
	}
	kit.Move(t, "by another LB", down, size)
	kit.Finish(t, "by another LB", down)
	if n := kit.Counter(t, farm, "recover", bed.LBs[1]); n == 0 {
		t.Error("the other LB asked for no owner")
	}
	if n := kit.Counter(t, farm, "signal_deferred", bed.Servers...); n == 0 {
		t.Error("no answer was too large for a signal: the test did not happen")
	}
	if n := kit.Counter(t, farm, "recovered", bed.Servers...); n == 0 {
		t.Error("no server knew its stream")
	}
}
