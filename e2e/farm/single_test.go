package farm

import (
	"strings"
	"testing"

	"proffer/e2e/kit"
	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/topo"
)

// poolChange drains the first server, then adds the last.
type poolChange struct {
	drain, add bool
}

func (c poolChange) pool(bed *testbed.Bed) []topo.Server {
	var servers []topo.Server
	last := len(bed.Servers) - 1
	for i, n := range bed.Servers {
		s := topo.Server{Name: n.Name, Locator: n.Locator, Weight: 1}
		if c.drain && i == 0 {
			s.Weight = 0
		}
		if i < last || c.add {
			servers = append(servers, s)
		}
	}
	return servers
}

// change reloads the LBs with another pool, and the pool before in the history.
func change(t *testing.T, farm *farmrun.Farm, servers []topo.Server) {
	t.Helper()
	svc := &farm.Service
	svc.History = append([]topo.Version{{Version: svc.Version, Servers: svc.Servers}}, svc.History...)
	svc.Version++
	svc.Servers = servers
	for _, lb := range farm.Bed.LBs {
		if err := farm.Reload(t.Context(), lb); err != nil {
			t.Fatal(err)
		}
	}
}

// singleFarm is a farm of five servers, the last of them in reserve, with agents or with
// the kernel's own End.DT6 alone.
func singleFarm(t *testing.T, spelt string, agents bool, lbs int, more ...func(*topo.LB)) (*testbed.Bed, *farmrun.Farm) {
	t.Helper()
	bed := kit.Up(t, testbed.Config{Servers: 5, LBs: lbs})
	kit.Echoes(t, bed, bed.Servers...)
	s := kit.Settings(t, spelt)
	s.LB = func(lb *topo.LB) {
		for _, m := range more {
			m(lb)
		}
		if lb.Services[0].Version == 0 {
			lb.Services[0].Servers = poolChange{}.pool(bed)
		}
	}
	farm := kit.Start(t, bed, s)
	if !agents {
		for _, n := range bed.Servers {
			kit.Agentless(t, bed, farm.Daemon(n).Stop, n, testbed.DT6)
		}
	}
	farm.Service.Servers = poolChange{}.pool(bed)
	if err := bed.Announce(bed.LBs[0]); err != nil {
		t.Fatal(err)
	}
	return bed, farm
}

// drainAndAdd opens flows, drains a server and adds one; it returns how many flows were at
// the drained server, and how many died.
func drainAndAdd(t *testing.T, bed *testbed.Bed, farm *farmrun.Farm) (drained, dead int) {
	t.Helper()
	flows := kit.Open(t, bed, 20000, kit.SingleFlows)
	at := flows.Servers()
	for _, name := range at {
		if name == bed.Servers[0].Name {
			drained++
		}
	}
	change(t, farm, poolChange{drain: true}.pool(bed))
	dead, moved := kit.Lost(t, flows, at)
	fresh := kit.Open(t, bed, 30000, kit.SingleFlows)
	for _, name := range fresh.Servers() {
		if name == bed.Servers[0].Name {
			t.Errorf("a new flow went to %s, which drains", name)
		}
	}
	change(t, farm, poolChange{drain: true, add: true}.pool(bed))
	late, movedLate := kit.Lost(t, flows, at)
	freshDead, freshMoved := kit.Lost(t, fresh, fresh.Servers())
	t.Logf("%d of %d flows at the drained server; dead after the drain %d, after the addition %d of the old and %d of the new",
		drained, kit.SingleFlows, dead, late, freshDead)
	if moved+movedLate+freshMoved > 0 {
		t.Errorf("%d flows were answered by another server", moved+movedLate+freshMoved)
	}
	return drained, late + freshDead
}

// TestSingleKeepsItsFlows: a drained and an added server reset no connection of a server
// that is still there, with agents and with kernels alone.
func TestSingleKeepsItsFlows(t *testing.T) {
	for name, agents := range map[string]bool{"agents": true, "kernels": false} {
		t.Run(name, func(t *testing.T) {
			bed, farm := singleFarm(t, "single", agents, 1)
			drained, dead := drainAndAdd(t, bed, farm)
			if drained == 0 || dead != 0 {
				t.Errorf("%d flows at the drained server; %d died, want 0", drained, dead)
			}
		})
	}
}

// TestStatelessLosesFlows: the documented price of `stateless`, which the test above shows
// to be the table's work.
func TestStatelessLosesFlows(t *testing.T) {
	bed, farm := singleFarm(t, "stateless", true, 1)
	if drained, dead := drainAndAdd(t, bed, farm); dead < drained || drained == 0 {
		t.Errorf("%d of %d flows at the drained server died: the changes prove nothing", dead, drained)
	}
}

// TestSingleRecovers: another LB, that never saw the flows, finds their servers: by the
// history of the pools with kernels alone, by asking with agents.
func TestSingleRecovers(t *testing.T) {
	for _, c := range []struct {
		name     string
		agents   bool
		recovery topo.Recovery
		counter  string
	}{
		{"history", false, topo.HistoryRecovery, "recover_presumed"},
		{"agents", true, topo.AgentsRecovery, "stickiness_recovered"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bed, farm := singleFarm(t, "single", c.agents, 2, func(lb *topo.LB) { lb.Services[0].Recovery = c.recovery })
			flows := kit.Open(t, bed, 20000, kit.SingleFlows)
			at := flows.Servers()
			change(t, farm, poolChange{drain: true}.pool(bed))
			if err := bed.Announce(bed.LBs[1]); err != nil {
				t.Fatal(err)
			}
			change(t, farm, poolChange{drain: true, add: true}.pool(bed))
			for range 2 {
				if dead, moved := kit.Lost(t, flows, at); dead+moved > 0 {
					t.Errorf("%d flows died, %d were answered by another server", dead, moved)
				}
			}
			if n := kit.Counter(t, farm, c.counter, bed.LBs[1]); n < kit.SingleFlows {
				t.Errorf("%s: %d, want %d flows", c.counter, n, kit.SingleFlows)
			}
		})
	}
}

// TestPoolsAreRemembered: no configuration names an earlier pool, and yet an LB that never saw
// the flows finds them: by the pools that it has served itself, on disk, and after a restart.
// A lower version is refused, by reload and start.
func TestPoolsAreRemembered(t *testing.T) {
	bed, farm := singleFarm(t, "single", false, 2)
	flows := kit.Open(t, bed, 20000, kit.SingleFlows)
	at := flows.Servers()
	svc, second := &farm.Service, bed.LBs[1]
	for _, c := range []poolChange{{drain: true}, {drain: true, add: true}} {
		svc.Version++
		svc.Servers = c.pool(bed)
		for _, lb := range bed.LBs {
			if err := farm.Reload(t.Context(), lb); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := farm.Daemon(second).Stop(); err != nil {
		t.Fatal(err)
	}
	if err := farm.Launch(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	if err := bed.Announce(second); err != nil {
		t.Fatal(err)
	}
	if dead, moved := kit.Lost(t, flows, at); dead+moved > 0 {
		t.Errorf("%d flows died, %d were answered by another server", dead, moved)
	}
	if n := kit.Counter(t, farm, "recover_presumed", second); n < kit.SingleFlows {
		t.Errorf("%d flows presumed, want %d", n, kit.SingleFlows)
	}
	svc.Version--
	if err := farm.Reload(t.Context(), second); err == nil || !strings.Contains(err.Error(), "services[0].version: 1 is below 2") {
		t.Errorf("a lower version: %v", err)
	}
}
