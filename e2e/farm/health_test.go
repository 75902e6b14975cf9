package farm

import (
	"net/netip"
	"sync"
	"testing"
	"time"

	"proffer/api"
	"proffer/e2e/kit"
	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/lab/traffic/raw"
)

// callers open connections one after another, each as soon as it is due, and keep all results. With
// as many under way as atOnce, a machine is too slow for the rate: those that are due are left out.
type callers struct {
	bed  *testbed.Bed
	mu   sync.Mutex
	all  []opened
	stop chan struct{}
	wait sync.WaitGroup
}

// atOnce is more connections than are ever under way on a machine that keeps the rate: those that
// wait for a dead server until it is found out, too.
const atOnce = 150

// opened is a connection: when it was begun, how long it took to the answer, and whose that was.
type opened struct {
	began  time.Time
	took   time.Duration
	server string
	err    error
}

// begin opens so many connections a second until the test ends.
func (s *callers) begin(t *testing.T, rate int) {
	s.stop = make(chan struct{})
	under := make(chan struct{}, atOnce)
	due := time.NewTicker(time.Second / time.Duration(rate))
	s.wait.Go(func() {
		defer due.Stop()
		for {
			select {
			case <-s.stop:
				return
			case <-due.C:
				select {
				case under <- struct{}{}:
					s.wait.Go(func() { s.one(t); <-under })
				default:
				}
			}
		}
	})
	t.Cleanup(s.end)
}

func (s *callers) end() {
	s.mu.Lock()
	stop := s.stop
	s.stop = nil
	s.mu.Unlock()
	if stop != nil {
		close(stop)
	}
	s.wait.Wait()
}

func (s *callers) one(t *testing.T) {
	o := opened{began: time.Now()}
	conn, err := s.bed.Client.DialContext(t.Context(), "tcp", netip.AddrPortFrom(s.bed.VIP, testbed.Port).String())
	if o.err = err; err == nil {
		o.server, o.err = kit.AskLine(conn, "work")
		conn.Close()
	}
	o.took = time.Since(o.began)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, o)
}

// since counts the connections that were begun after a time: all, those that failed or took as long
// as a lost SYN, and those that a server answered.
func (s *callers) since(from time.Time, server string) (all, slow, its int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.all {
		if o.began.Before(from) {
			continue
		}
		all++
		if o.err != nil || o.took > 900*time.Millisecond {
			slow++
		}
		if o.server == server {
			its++
		}
	}
	return all, slow, its
}

// healthOf is how a server answers, as the LB sees it.
func healthOf(t *testing.T, farm *farmrun.Farm, name string) api.HealthStatus {
	t.Helper()
	for _, s := range kit.Status(t, farm, farm.Bed.LBs[0]).Servers {
		if s.Name == name {
			return s
		}
	}
	return api.HealthStatus{}
}

func downOf(t *testing.T, farm *farmrun.Farm) (names []string) {
	t.Helper()
	for _, s := range kit.Status(t, farm, farm.Bed.LBs[0]).Services[0].Servers {
		if s.State == "down" {
			names = append(names, s.Name)
		}
	}
	return names
}

// offeredBy is how many connections the LB has offered to a server until now: by counts that were read
// later than another server's of before.
func offeredBy(t *testing.T, farm *farmrun.Farm, name string) (offered uint64) {
	t.Helper()
	var first map[string]uint64
	kit.Eventually(t, "the counts are read", func() bool {
		news, all := false, map[string]uint64{}
		for _, s := range kit.Status(t, farm, farm.Bed.LBs[0]).Servers {
			all[s.Name] = uint64(s.Offered)
			news = news || first != nil && s.Name != name && all[s.Name] > first[s.Name]
		}
		if first == nil {
			first = all
		}
		offered = all[name]
		return news
	})
	return offered
}

// silence has the router swallow all packets to a server: its host is dead for the LB.
func silence(t *testing.T, bed *testbed.Bed, n *testbed.Node, kind string) {
	t.Helper()
	kit.In(t, bed.Router, "ip", "-6", "route", "add", kind, n.Locator.String(), "metric", "1")
}

func revive(t *testing.T, bed *testbed.Bed, n *testbed.Node, kind string) {
	t.Helper()
	kit.In(t, bed.Router, "ip", "-6", "route", "del", kind, n.Locator.String(), "metric", "1")
}

// TestSilentServer: a server behind a host that swallows everything gets no new connections any more
// but probes, and with an agent none: of those that begin after it is down no others lose their SYN. Flows of the other
// servers go on, and it serves again when it is back. By offers to agents, and without agents.
func TestSilentServer(t *testing.T) {
	for _, c := range []struct {
		dispatch string
		agents   bool
		kind     string // of the router's route: without a word, or with an ICMP error
	}{{"hunt:always", true, "blackhole"}, {"single", false, "blackhole"}, {"learned", false, "unreachable"}} {
		t.Run(c.dispatch, func(t *testing.T) {
			bed := kit.Up(t, testbed.Config{Servers: 4})
			farm := kit.Start(t, bed, kit.Settings(t, c.dispatch))
			for _, n := range bed.Servers {
				if !c.agents {
					kit.Agentless(t, bed, farm.Daemon(n).Stop, n, testbed.DT6)
				}
				kit.Workshop(t, bed, n, 15*time.Millisecond)
			}
			silentServer(t, bed, farm, c.agents, c.kind)
		})
	}
}

func silentServer(t *testing.T, bed *testbed.Bed, farm *farmrun.Farm, agents bool, kind string) {
	dead, lb := bed.Servers[1], bed.LBs[0]
	s := &callers{bed: bed}
	s.begin(t, 150)
	conns := map[string]int{}
	held := keepOpen(t, bed, conns)
	kit.Eventually(t, "all servers answer", func() bool { return healthOf(t, farm, dead.Name).Answered > 20 })
	probes := func() uint64 { return kit.Counter(t, farm, "offer_probe", lb) + kit.Counter(t, farm, "flow_probe", lb) }
	silence(t, bed, dead, kind)
	died := time.Now()
	kit.Eventually(t, "the server is down", func() bool { return healthOf(t, farm, dead.Name).State == "down" })
	down, probed := time.Now(), probes()
	offered := offeredBy(t, farm, dead.Name)
	if agents {
		lost := func() uint64 { return kit.Counter(t, farm, "check", lb) - kit.Counter(t, farm, "check_answered", lb) }
		before := lost()
		kit.Eventually(t, "it is checked for longer than until the first probe", func() bool { return lost() >= before+15 })
	} else {
		kit.Eventually(t, "it is probed", func() bool { return probes() > probed })
	}
	for name, ask := range held {
		if name != dead.Name && ask() != name {
			t.Errorf("a flow of %s is lost", name)
		}
	}
	kit.Eventually(t, "new connections are answered", func() bool { all, _, _ := s.since(down, ""); return all >= 200 })
	more := offeredBy(t, farm, dead.Name) - offered
	had := probes() - probed
	all, slow, its := s.since(down, dead.Name)
	begun, before, _ := s.since(died, "")
	begun, before = begun-all, before-slow
	t.Logf("down %v after its death, by its status; until then %d of %d connections lost their SYN (%.0f %%), and then %d of %d (%.1f %%), by %d probes",
		down.Sub(died).Round(time.Millisecond), before, begun, 100*float64(before)/float64(max(begun, 1)), slow, all, 100*float64(slow)/float64(max(all, 1)), had)
	if its > 0 || more > had {
		t.Errorf("of %d connections after it was down %d went to the server, which answered %d, with %d probes", all, more, its, had)
	}
	if agents && had > 0 {
		t.Errorf("%d clients were sent to a host that answers no check", had)
	}
	if kind == "unreachable" && healthOf(t, farm, dead.Name).Unreachable == 0 {
		t.Error("the router's errors do not count")
	}
	revive(t, bed, dead, kind)
	kit.Eventually(t, "the server is back", func() bool { return len(downOf(t, farm)) == 0 })
	back := time.Now()
	kit.Eventually(t, "it serves again", func() bool { _, _, its := s.since(back, dead.Name); return its > 10 })
	if held[dead.Name]() != dead.Name {
		t.Error("its flow of before is lost")
	}
	s.end()
	if down := downOf(t, farm); down != nil {
		t.Errorf("down at the end: %v", down)
	}
}

// keepOpen opens a connection with each server, and returns how to ask it.
func keepOpen(t *testing.T, bed *testbed.Bed, seen map[string]int) map[string]func() string {
	t.Helper()
	held := map[string]func() string{}
	for len(held) < len(bed.Servers) && len(seen) < 1000 {
		conn, err := bed.Client.DialContext(t.Context(), "tcp", netip.AddrPortFrom(bed.VIP, testbed.Port).String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		name, err := kit.AskLine(conn, "stay")
		if err != nil {
			t.Fatal(err)
		}
		seen[name]++
		held[name] = func() string {
			answer, err := kit.AskLine(conn, "still here")
			if err != nil {
				return err.Error()
			}
			return answer
		}
	}
	return held
}

// TestFloodTakesNoServerOut: forged SYNs, five to each real one, that no client acknowledges.
func TestFloodTakesNoServerOut(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 4})
	farm := kit.Start(t, bed, kit.Settings(t, "single"))
	for _, n := range bed.Servers {
		kit.Agentless(t, bed, farm.Daemon(n).Stop, n, testbed.DT6)
		kit.Workshop(t, bed, n, 15*time.Millisecond)
	}
	s := &callers{bed: bed}
	s.begin(t, 60)
	flood := raw.Flood{
		Interface: "eth0", To: netip.AddrPortFrom(bed.VIP, testbed.Port), Clients: testbed.ClientNet(),
		Rate: 300, For: 4 * time.Second, Seed: 1, Enter: bed.Client.Enter,
	}
	if _, err := flood.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.end()
	for _, server := range kit.Status(t, farm, bed.LBs[0]).Servers {
		if server.State != "answers" || server.Probes > 0 || server.Offered < 2*server.Answered || server.Answered == 0 {
			t.Errorf("%+v", server)
		}
	}
}
