package daemon

import (
	"math"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"proffer/api"
	"proffer/dataplane"
	"proffer/listeners"
	"proffer/topo"
)

// TestSpeed: status has the cores of a service's processes, those that are idle, and the service time
// that the agent learns: at most the cores run, and requests that wait for something else run, too.
func TestSpeed(t *testing.T) {
	m := newMachine(t, agentFile)
	m.cores = 0.5
	m.listens = map[topo.VIP][]listeners.Process{{Addr: netip.MustParseAddr("2001:db8:f::1"), Port: 80}: {{PID: 7, Name: "web"}}}
	p := m.running(Agent)
	sampled := func(samples int, answers uint64, work dataplane.Work) {
		t.Helper()
		for range samples {
			m.mu.Lock()
			m.loads.Busy, m.loads.Known, m.loads.Work = work.Busy(), true, &work
			m.loads.Answered += answers
			m.mu.Unlock()
			m.clock.set(m.clock.Now() + sampleEvery)
			m.clock.tick(t, sampleEvery)
		}
		m.clock.tick(t, coresEvery) // the last sample has ended
	}
	web := func() *api.LoadStatus {
		t.Helper()
		return m.status().Services[0].Load
	}
	wantSoon(t, "the cores are not known", func() bool { return web().Cores == 0.5 })
	if l := web(); l.Busy != nil || l.Idle != nil || l.ServiceTime != nil {
		t.Errorf("nothing is known but the cores: %+v", l)
	}
	sampled(100, 0, dataplane.Work{})
	if l := web(); *l.Busy != 0 || *l.Idle != 0.5 || l.ServiceTime != nil {
		t.Errorf("idle: %+v", l)
	}
	sampled(1000, 1, dataplane.Work{Unread: 3, Run: 2, Blocked: 1}) // an answer a sample
	l := web()
	if *l.Busy != 6 || *l.Idle != 0 || l.Answers != 1000 {
		t.Errorf("busy: %+v", l)
	}
	if want := (0.5 + 1) * sampleEvery.Seconds(); l.ServiceTime == nil || math.Abs(l.ServiceTime.Mean/want-1) > 0.01 || l.ServiceTime.Error > 0.05 || l.ServiceTime.Answers < 100 {
		t.Errorf("the service time is %+v, want %v s", l.ServiceTime, want)
	}
	m.mu.Lock()
	m.cores = 1000
	m.mu.Unlock()
	for range 2 {
		m.clock.tick(t, coresEvery)
	}
	if l := web(); l.Cores != float64(runtime.NumCPU()) {
		t.Errorf("more cores than the configured ones: %+v", l)
	}
	m.clock.set(m.clock.Now() + time.Hour)
	m.mu.Lock()
	m.loads.Known = false
	m.mu.Unlock()
	if l := web(); l.Busy != nil || l.Idle != nil || l.ServiceTime == nil {
		t.Errorf("an unknown load: %+v", l)
	}
	p.end()
}
