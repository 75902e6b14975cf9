package control

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"proffer/dataplane"
	"proffer/topo"
)

// checked is a farm of servers of which the last drains, or which are all of a UDP service.
type checked struct {
	h      *Health
	now    time.Duration
	counts []dataplane.Health
	agents bool         // that answer checks
	dead   map[int]bool // servers that answer nothing
	hangs  map[int]bool // those that answer checks alone
	events []HealthChange
	checks int // sent
}

func newChecked(protocol topo.Protocol, change ...func(*topo.Service)) *checked {
	f := &checked{h: NewHealth(), counts: make([]dataplane.Health, 4), agents: true, dead: map[int]bool{}, hangs: map[int]bool{}}
	svc := topo.Service{VIP: topo.VIP{Port: 80, Protocol: protocol}, Dispatch: topo.Hunt, Servers: agentPool(4)}
	for _, c := range change {
		c(&svc)
	}
	f.h.Configure([]topo.Service{svc})
	return f
}

// agentPool is a pool of servers with agents.
func agentPool(n int) (servers []topo.Server) {
	for i := range n {
		locator := netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0x5f, 6: byte(i >> 8), 7: byte(i)}), 64)
		servers = append(servers, topo.Server{Name: fmt.Sprint("s", i), Locator: locator, Weight: 1})
	}
	return servers
}

// drains: the last server of a pool does.
func drains(s *topo.Service) { s.Servers[len(s.Servers)-1].Weight = 0 }

// run lets time pass, in which clients come to the servers with weight, or not.
func (f *checked) run(d time.Duration, clients bool) {
	for end := f.now + d; f.now < end; {
		f.now += healthTick
		for i := range f.counts[:3] {
			if clients && !f.dead[i] && !f.hangs[i] {
				f.counts[i].Offered++
				f.counts[i].Answered++
			}
		}
		f.events = append(f.events, f.h.Observe(f.now, f.counts)...)
		for _, s := range f.h.Checks(f.now) {
			f.checks++
			for i, o := range f.h.Servers() {
				if o.At() == s.Server.At() && f.agents && !f.dead[i] {
					f.counts[i].Alive++
				}
			}
		}
	}
}

func (f *checked) want(t *testing.T, label string, downs ...bool) {
	t.Helper()
	got := []bool{}
	for _, e := range f.events {
		got = append(got, e.Down)
	}
	if len(got) != len(downs) {
		t.Fatalf("%s: %+v, want %v", label, f.events, downs)
	}
	for i := range got {
		if got[i] != downs[i] {
			t.Fatalf("%s: %+v, want %v", label, f.events, downs)
		}
	}
}

// TestDrainedServerIsOff: a server that drains gets no connection, and is down within 1.2 s all the same
// when its host is off, with clients and without; a check brings it back.
func TestDrainedServerIsOff(t *testing.T) {
	for _, clients := range []bool{true, false} {
		f := newChecked(topo.TCP, drains)
		f.run(10*time.Second, clients)
		f.want(t, "while it lives")
		f.dead[3] = true
		f.run(1200*time.Millisecond, clients)
		f.want(t, "off", true)
		f.run(time.Minute, clients)
		f.want(t, "off for a minute", true)
		f.dead[3] = false
		f.run(time.Second, clients)
		f.want(t, "back", true, false)
	}
}

// TestUncountedServerIsOff: so is one of which no connection shows anything: of UDP services alone, with
// services of TCP that no client uses, or of a mode that knows no flows.
func TestUncountedServerIsOff(t *testing.T) {
	beside := func(f *checked) {
		web := topo.Service{VIP: topo.VIP{Port: 80, Protocol: topo.TCP}, Dispatch: topo.Single, Servers: agentPool(4)}
		dns := topo.Service{VIP: topo.VIP{Port: 53, Protocol: topo.UDP}, Dispatch: topo.Rr, Servers: agentPool(4)}
		f.h.Configure([]topo.Service{web, dns})
	}
	stateless := func(s *topo.Service) { s.Dispatch = topo.Stateless }
	for label, f := range map[string]*checked{
		"UDP": newChecked(topo.UDP), "UDP in turn": newChecked(topo.UDP, func(s *topo.Service) { s.Dispatch = topo.Rr }),
		"stateless": newChecked(topo.TCP, stateless), "stateless UDP": newChecked(topo.UDP, stateless), "beside TCP": newChecked(topo.TCP),
	} {
		if label == "beside TCP" {
			beside(f)
		}
		f.run(10*time.Second, false)
		f.dead[1] = true
		f.run(1200*time.Millisecond, false)
		f.want(t, label+": off", true)
		f.dead[2] = true
		f.run(1200*time.Millisecond, false)
		f.want(t, label+": another off", true, true)
		f.dead[1] = false
		f.run(time.Second, false)
		f.want(t, label+": back", true, true, false)
	}
}

// TestNeighbourIsGone: a server without an agent, and without connections that count, is down while the kernel has no
// next hop for it, also one that never had one; not while none has.
func TestNeighbourIsGone(t *testing.T) {
	h, counts := NewHealth(), make([]dataplane.Health, 4)
	h.Configure([]topo.Service{{VIP: topo.VIP{Port: 53, Protocol: topo.UDP}, Dispatch: topo.Rr, Servers: healthPool(4)}})
	var now time.Duration
	after := func(d time.Duration, without ...int) (downs []string) {
		for end := now + d; now < end; {
			now += healthTick
			for i := range counts {
				counts[i].Reached = !slices.Contains(without, i)
			}
			h.Observe(now, counts)
			h.Checks(now)
		}
		for _, s := range h.Servers() {
			if h.Down(s.At()) {
				downs = append(downs, s.Name)
			}
		}
		return downs
	}
	for _, c := range []struct {
		during  time.Duration
		without []int
		downs   string
	}{
		{2 * time.Second, []int{3}, "[s3]"}, {time.Second, nil, "[]"}, {time.Second, []int{1}, "[s1]"}, {time.Second, nil, "[]"},
		{time.Minute, []int{0, 1, 2, 3}, "[]"},
	} {
		if downs := fmt.Sprint(after(c.during, c.without...)); downs != c.downs {
			t.Errorf("%v without next hops of %v: down are %s, want %s", c.during, c.without, downs, c.downs)
		}
	}
}

// TestNeverAlive: a server that never gave a sign is down, if checks come back from another; also one that joins.
func TestNeverAlive(t *testing.T) {
	f := newChecked(topo.UDP)
	f.dead[2] = true
	f.run(2*time.Second, false)
	f.want(t, "dead at the start", true)
	f.dead[2] = false
	f.run(time.Second, false)
	f.want(t, "it starts", true, false)

	f = newChecked(topo.UDP)
	f.agents = false
	f.run(time.Minute, false)
	f.want(t, "no check comes back")
}

// TestChecksOfManyServers: one of a thousand that is off is found as soon as it was asked once, in their turn.
func TestChecksOfManyServers(t *testing.T) {
	const n = 1000
	f := newChecked(topo.UDP, func(s *topo.Service) { s.Servers = agentPool(n) })
	f.counts = make([]dataplane.Health, n)
	f.run(10*time.Second, false)
	f.dead[700] = true
	f.run(n/mostChecks*healthTick+2*time.Second, false)
	f.want(t, "off", true)
	if most := int(f.now/healthTick) * mostChecks; f.checks > most {
		t.Errorf("%d checks in %v, more than %d", f.checks, f.now, most)
	}
}

// TestChecksWhoIsJudged: servers whose connections show how they are get no checks but one that is answered, or as
// witnesses for one that is in doubt; and one that answers is checked a few times a second.
func TestChecksWhoIsJudged(t *testing.T) {
	f := newChecked(topo.TCP)
	f.run(10*time.Second, false)
	if f.checks != 4 {
		t.Errorf("%d checks of four servers that have services of TCP alone", f.checks)
	}
	f = newChecked(topo.UDP)
	f.run(10*time.Second, false)
	if f.checks > 4*10*5 {
		t.Errorf("%d checks of four servers in 10 s", f.checks)
	}
}

// TestDoubted: a server that drains is doubted with the first check that it leaves without an answer.
func TestDoubted(t *testing.T) {
	f := newChecked(topo.UDP, drains)
	f.run(10*time.Second, false)
	if d := f.h.Doubted(); len(d) > 0 {
		t.Errorf("doubted while all answer: %v", d)
	}
	f.dead[3] = true
	f.run(2*healthTick, false)
	if d := f.h.Doubted(); len(d) != 1 || d[0].Name != "s3" {
		t.Errorf("off for two readings, and doubted are %v", d)
	}
	f.run(1200*time.Millisecond, false)
	f.want(t, "off", true)
	if d := f.h.Doubted(); len(d) > 0 {
		t.Errorf("down and doubted: %v", d)
	}
}

// TestDeadServerIsNotProbed: a client's connection is offered to a server that is down, and has answered checks, once
// a minute before it answers them again; then the next is. Where no check comes back, it is probed as ever.
func TestDeadServerIsNotProbed(t *testing.T) {
	web := topo.Service{VIP: topo.VIP{Port: 80, Protocol: topo.TCP}, Dispatch: topo.Hunt, Servers: agentPool(4)}
	dns := topo.Service{VIP: topo.VIP{Port: 53, Protocol: topo.UDP}, Dispatch: topo.Hunt, Servers: agentPool(4)}
	for _, services := range [][]topo.Service{{web}, {web, dns}} {
		deadServer(t, services)
	}
}

func deadServer(t *testing.T, services []topo.Service) {
	t.Helper()
	begin := func() *checked {
		f := newChecked(topo.TCP)
		f.h.Configure(services)
		return f
	}
	f := begin()
	f.run(10*time.Second, true)
	f.dead[1] = true
	probed := func(d time.Duration) (n int) {
		for end := f.now + d; f.now < end; {
			f.counts[1].Offered++
			f.run(healthTick, true)
			for _, p := range f.h.Probes() {
				if p.Server.IsValid() {
					n++
				}
			}
		}
		return n
	}
	probed(2 * time.Second)
	f.want(t, "dead", true)
	if n := probed(50 * time.Second); n > 0 {
		t.Errorf("%d probes in 50 s of a host that is dead", n)
	}
	f.dead[1], f.hangs[1] = false, true
	if n := probed(time.Second); n == 0 {
		t.Error("no probe of a host that answers checks")
	}
	f.want(t, "it answers no connection", true)
	f.hangs[1] = false
	probed(time.Second)
	f.want(t, "back", true, false)

	for _, answered := range []bool{false, true} { // and then kernels serve in the place of all agents
		f = begin()
		f.agents = answered
		f.run(10*time.Second, true)
		f.agents, f.dead[1] = false, true
		if n := probed(10 * time.Second); n < 3 {
			t.Errorf("%d probes in 10 s, where no check comes back", n)
		}
	}
}

// TestChecksTakeNoOtherOut: no server is down by its checks that gets connections, that never answered
// a check, or while no server answers anything.
func TestChecksTakeNoOtherOut(t *testing.T) {
	f := newChecked(topo.TCP, drains)
	f.agents = false
	f.run(time.Minute, true)
	f.want(t, "no agents")

	f = newChecked(topo.TCP, drains)
	f.run(10*time.Second, false)
	f.agents = false
	f.run(time.Minute, false)
	f.want(t, "the network")

	f = newChecked(topo.TCP)
	f.run(10*time.Second, false)
	f.agents = false
	f.run(time.Minute, true)
	f.want(t, "clients come, without agents")
}
