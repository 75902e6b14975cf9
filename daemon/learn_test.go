package daemon

import (
	"errors"
	"strings"
	"testing"
	"time"

	"proffer/dataplane"
	"proffer/policy"
	"proffer/topo"
)

// learningFile is lbFile with a service that learns, of two servers.
func learningFile() string {
	at := strings.Index(lbFile, "services:")
	return lbFile[:at] + `services:
  - name: web
    vip: 2001:db8:f::1
    port: 80
    dispatch: learned
    servers:
      - {name: s1, locator: "5f00:0:2:1::/64"}
      - {name: s2, locator: "5f00:0:2:2::/64"}
`
}

// durations are n of each, of each server.
func (m *machine) durations(n int, each ...time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.seats
	m.seats = nil
	for i, d := range each {
		s := dataplane.Seat{Ready: true, Established: uint32(i) + 3, Begun: 100, Lived: 100}
		if i < len(before) {
			s.Begun, s.Lived = before[i].Begun+100, before[i].Lived+100
		}
		for range n {
			s.Durations = append(s.Durations, d)
		}
		m.seats = append(m.seats, s)
	}
}

func (m *machine) lastSpread() (last dataplane.Spread, all int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.spread) > 0 {
		last = m.spread[len(m.spread)-1]
	}
	return last, len(m.spread)
}

// TestLearning: the tallies are read each 100 ms and weights written each `learn_every`, which the
// status explains; counts are set right at the start and every minute; a reload keeps the knowledge.
func TestLearning(t *testing.T) {
	m := newMachine(t, learningFile())
	p := m.running(LB)
	now := time.Duration(0)
	tick := func(after time.Duration) {
		now += after
		m.clock.set(now)
		m.clock.tick(t, readEvery)
		m.clock.tick(t, readEvery) // the one before has ended
	}
	m.durations(20, 100*time.Millisecond, 300*time.Millisecond)
	tick(time.Second)
	last, n := m.lastSpread()
	if n != 1 || last.Inverses[0] != policy.InverseOne || last.Inverses[1] < policy.InverseOne*2 || last.Counting != topo.AllCounting {
		t.Errorf("%d times spread, last by %+v; want once, the second server the slower", n, last)
	}
	tick(100 * time.Millisecond)
	if _, n := m.lastSpread(); n != 1 {
		t.Errorf("%d times spread within learn_every", n)
	}
	s := m.status().Services[0].Learning
	if s == nil || len(s.Servers) != 2 || s.Servers[1].Established != 4 || *s.Servers[1].Mean < 0.29 || s.Servers[1].Weight >= s.Servers[0].Weight || s.Counting != "all" {
		t.Fatalf("status: %+v", s)
	}
	if want := "flows last 1.50 of the average"; s.Servers[1].Why != want {
		t.Errorf("why %q, want %q", s.Servers[1].Why, want)
	}
	m.logs("counts of flows were wrong, and are right again")
	if s.Wrong != 1 {
		t.Errorf("%d wrong counts", s.Wrong)
	}
	m.mu.Lock()
	before := m.recounts
	m.mu.Unlock()
	tick(time.Minute)
	m.mu.Lock()
	if m.recounts != before+1 {
		t.Errorf("%d recounts, want another one after a minute", m.recounts)
	}
	m.mu.Unlock()
	m.change(`{name: s1, locator: "5f00:0:2:1::/64"}`, `{name: s1, locator: "5f00:0:2:1::/64", weight: 0}`)
	m.hangup()
	m.logs("configuration reloaded")
	tick(time.Second)
	if last, _ := m.lastSpread(); last.Inverses[0] != policy.NoInverse || last.Inverses[1] != policy.InverseOne {
		t.Errorf("after the first server drains, spread by %+v", last)
	}
	if s := m.status().Services[0].Learning; s.Servers[0].Why != "draining: no new flows" || s.Servers[0].Samples == 0 {
		t.Errorf("the server that drains: %+v", s.Servers[0])
	}
	m.mu.Lock()
	m.fails["spread"] = errors.New("no such map")
	m.mu.Unlock()
	tick(time.Second)
	m.logs(`level=ERROR msg="learn the servers' speeds" error="no such map"`)
	p.end()
}

// TestFloodIsLogged: the log has the begin and the end of a flood of SYNs.
func TestFloodIsLogged(t *testing.T) {
	m := newMachine(t, learningFile())
	p := m.running(LB)
	now := time.Duration(0)
	tick := func(begun, lived uint32) {
		m.mu.Lock()
		seats := []dataplane.Seat{{Ready: true}, {Ready: true}}
		if len(m.seats) > 0 {
			seats[0].Begun, seats[0].Lived = m.seats[0].Begun, m.seats[0].Lived
		}
		seats[0].Begun += begun
		seats[0].Lived += lived
		m.seats = seats
		m.mu.Unlock()
		now += time.Second
		m.clock.set(now)
		m.clock.tick(t, readEvery)
		m.clock.tick(t, readEvery)
	}
	tick(0, 0)
	tick(1000, 100)
	m.logs("most SYNs do not come to life")
	if last, _ := m.lastSpread(); last.Counting != topo.FloodCounting {
		t.Errorf("in a flood, spread by %+v", last)
	}
	for range 4 {
		tick(1000, 1000)
	}
	m.logs("most SYNs come to life again")
	p.end()
}
