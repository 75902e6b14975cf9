package daemon

import (
	"os"
	"strings"
	"testing"
	"time"

	"proffer/dataplane"
	"proffer/policy"
	"proffer/topo"
)

// answersFor has connections offered to both servers for a time; s2 answers as long as it lives.
func (m *machine) answersFor(from, to time.Duration, alive bool) {
	m.t.Helper()
	for now := from; now < to; now += healthEvery {
		m.mu.Lock()
		for _, name := range []string{"s1", "s2"} {
			h := m.healths[name]
			down := len(m.down) > 0 && m.down[0].Name == name
			if !down || len(m.probes) > 0 && m.probes[len(m.probes)-1].IsValid() {
				h.Offered += 4
			}
			if name == "s1" || alive {
				h.Answered += 4
			}
			m.healths[name] = h
		}
		m.mu.Unlock()
		m.clock.set(now)
		m.clock.tick(m.t, healthEvery)
		m.clock.tick(m.t, healthEvery) // the one before has ended
	}
}

func (m *machine) weightsNow() (weights []int, history []topo.Version) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.applied.Services[0].Servers {
		weights = append(weights, s.Weight)
	}
	return weights, m.applied.Services[0].History
}

// TestHealth: a server that answers nothing has no weight any more, without a word in the record; its
// flows are still asked for; it is probed, and back with its first answer; then flows of meanwhile
// are asked for. The status and the log explain it, and a reload changes nothing.
func TestHealth(t *testing.T) {
	m := newMachine(t, lbFile)
	m.weightless = true
	m.healths = map[string]dataplane.Health{}
	p := m.running(LB)
	record, err := os.ReadFile(m.pools())
	if err != nil {
		t.Fatal(err)
	}
	m.answersFor(time.Second, 3*time.Second, true)
	m.answersFor(3*time.Second, 3900*time.Millisecond, false)
	if line := m.logs("a server answers nothing"); !strings.Contains(line, "server=s2") {
		t.Errorf("the log has %q", line)
	}
	weights, past := m.weightsNow()
	if weights[0] != 1 || weights[1] != 0 || len(past) != 1 || past[0].Servers[1].Weight != 1 {
		t.Errorf("weights %v, earlier pools %+v; want s2 without weight, and the whole pool asked", weights, past)
	}
	m.mu.Lock()
	if len(m.down) != 1 || m.down[0].Name != "s2" {
		t.Errorf("down in the data plane: %+v", m.down)
	}
	m.mu.Unlock()
	m.hangup()
	m.logs("configuration reloaded")
	if weights, _ := m.weightsNow(); weights[1] != 0 {
		t.Errorf("weights after a reload: %v", weights)
	}
	s := m.status().Servers
	if len(s) != 2 || s[0].State != "answers" || s[1].State != "down" || s[1].Pause != 1 || s[1].Offered == 0 || s[0].Answered <= s[1].Answered {
		t.Errorf("status: %+v", s)
	}
	if of := m.status().Services[0].Servers; len(of) != 2 || of[0].State != "answers" || of[1].State != "down" {
		t.Errorf("the service's servers: %+v", of)
	}
	m.answersFor(4*time.Second, 7*time.Second, false)
	m.mu.Lock()
	probes := len(m.probes)
	m.mu.Unlock()
	if probes == 0 {
		t.Error("no probe in three seconds")
	}
	m.answersFor(7*time.Second, 8*time.Second, true)
	m.logs("a server answers again")
	weights, past = m.weightsNow()
	if weights[1] != 1 || len(past) != 1 || past[0].Servers[1].Weight != 0 {
		t.Errorf("weights %v, earlier pools %+v; want the whole pool, and that of meanwhile asked", weights, past)
	}
	if now, err := os.ReadFile(m.pools()); err != nil || string(now) != string(record) {
		t.Errorf("the record was changed: %s, %v", now, err)
	}
	m.fail("health")
	m.answersFor(8*time.Second, 8100*time.Millisecond, true)
	m.logs("health is broken")
	p.end()
}

// TestHealthOfLearned: without a weight, a server of a service that learns gets no new flows by its
// speed, either.
func TestHealthOfLearned(t *testing.T) {
	m := newMachine(t, learningFile())
	m.weightless = true
	m.healths = map[string]dataplane.Health{}
	p := m.running(LB)
	m.answersFor(time.Second, 3*time.Second, true)
	m.answersFor(3*time.Second, 4*time.Second, false)
	m.logs("a server answers nothing")
	m.clock.tick(t, readEvery)
	m.clock.tick(t, readEvery)
	if last, n := m.lastSpread(); n == 0 || last.Inverses[0] == policy.NoInverse || last.Inverses[1] != policy.NoInverse {
		t.Errorf("%d times spread, last by %+v", n, last)
	}
	if why := m.status().Services[0].Learning.Servers[1].Why; why != "down: it answers nothing" {
		t.Errorf("why: %q", why)
	}
	p.end()
}
