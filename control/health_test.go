package control

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"proffer/dataplane"
	"proffer/topo"
)

const healthTick = 50 * time.Millisecond

// healthFarm is a farm in virtual time: connections come at a rate to each server, and servers that
// live answer after a round trip. Forged SYNs are never answered.
type healthFarm struct {
	t       *testing.T
	h       *Health
	cfg     *topo.LB
	rng     *rand.Rand
	rate    float64 // real connections a second and server
	forged  float64 // forged SYNs a second and server
	trip    time.Duration
	dead    map[string]bool
	counts  []dataplane.Health
	pending []pendingAnswer
	probes  map[netip.Addr]bool // that stand in the data plane
	sent    map[string][]time.Duration
	events  []healthEvent
	now     time.Duration
}

type pendingAnswer struct {
	at     time.Duration
	server int
}

type healthEvent struct {
	HealthChange
	at time.Duration
}

func newHealthFarm(t *testing.T, dispatch topo.Dispatch, servers int) *healthFarm {
	t.Helper()
	const seed = 17
	svc := topo.Service{Name: "web", VIP: topo.VIP{Addr: netip.MustParseAddr("2001:db8::1"), Port: 80}, Dispatch: dispatch, Servers: healthPool(servers)}
	f := &healthFarm{
		t: t, h: NewHealth(), cfg: &topo.LB{Services: []topo.Service{svc}}, rng: rand.New(rand.NewPCG(seed, 0)),
		rate: 20, trip: 5 * time.Millisecond, dead: map[string]bool{}, counts: make([]dataplane.Health, servers),
		probes: map[netip.Addr]bool{}, sent: map[string][]time.Duration{},
	}
	for i := range f.counts { // counts wrap
		f.counts[i] = dataplane.Health{Offered: math.MaxUint32 - 10, Answered: math.MaxUint32 - 20}
	}
	f.h.Configure(f.cfg.Services)
	return f
}

// healthPool is n servers.
func healthPool(n int) (servers []topo.Server) {
	for i := range n {
		servers = append(servers, topo.Server{Name: fmt.Sprint("s", i), Address: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), Delivery: topo.ByL2, Weight: 1})
	}
	return servers
}

// arrivals is a number of a Poisson process in a tick.
func (f *healthFarm) arrivals(rate float64) (n int) {
	for p := f.rng.ExpFloat64(); p < rate*healthTick.Seconds(); p += f.rng.ExpFloat64() {
		n++
	}
	return n
}

// run lets time pass.
func (f *healthFarm) run(d time.Duration) {
	f.t.Helper()
	for end := f.now + d; f.now < end; {
		f.now += healthTick
		for i, s := range f.h.Servers() {
			f.arrive(i, s)
		}
		f.answer()
		for _, c := range f.h.Observe(f.now, f.counts) {
			f.events = append(f.events, healthEvent{c, f.now})
		}
		for _, p := range f.h.Probes() {
			f.probes = map[netip.Addr]bool{p.Server: p.Server.IsValid()}
		}
	}
}

// arrive is a tick's connections to a server: none but probes if it is down.
func (f *healthFarm) arrive(i int, s topo.Server) {
	probe := f.probes[s.At()] && f.rate > 0
	if probe {
		delete(f.probes, s.At())
		f.sent[s.Name] = append(f.sent[s.Name], f.now)
		f.offer(i, s)
	}
	if f.h.Down(s.At()) {
		return
	}
	for range f.arrivals(f.rate) {
		f.offer(i, s)
	}
	f.counts[i].Offered += uint32(f.arrivals(f.forged))
}

func (f *healthFarm) offer(i int, s topo.Server) {
	f.counts[i].Offered++
	if !f.dead[s.Name] {
		f.pending = append(f.pending, pendingAnswer{f.now + f.trip, i})
	}
}

func (f *healthFarm) answer() {
	var later []pendingAnswer
	for _, p := range f.pending {
		if p.at > f.now {
			later = append(later, p)
		} else {
			f.counts[p.server].Answered++
		}
	}
	f.pending = later
}

func (f *healthFarm) down() (names []string) {
	for _, s := range f.h.Servers() {
		if f.h.Down(s.At()) {
			names = append(names, s.Name)
		}
	}
	return names
}

// TestDeadServerIsOut: at 20 connections a second and server, a server that answers nothing is down
// within a second, in nine of ten runs, however many peers it has; and never one that answers.
func TestDeadServerIsOut(t *testing.T) {
	const runs = 50
	for _, c := range []struct {
		dispatch topo.Dispatch
		servers  int
	}{{topo.Single, 2}, {topo.Single, 3}, {topo.Single, 12}, {topo.Hunt, 2}, {topo.Hunt, 12}, {topo.Ecmp, 4}} {
		var took []time.Duration
		for run := range uint64(runs) {
			f := newHealthFarm(t, c.dispatch, c.servers)
			f.rng = rand.New(rand.NewPCG(17, run))
			f.run(10 * time.Second)
			f.dead["s1"] = true
			died := f.now
			f.run(2 * time.Second)
			if len(f.events) != 1 || !f.events[0].Down || f.events[0].Server != "s1" {
				t.Fatalf("%v of %d servers: %+v, want s1 down alone", c.dispatch, c.servers, f.events)
			}
			if n := f.events[0].Counts; n.Answered != 0 || n.Offered == 0 || n.Offered > 100 {
				t.Fatalf("%v of %d servers: %+v since the last answer", c.dispatch, c.servers, n)
			}
			took = append(took, f.events[0].at-died)
		}
		slices.Sort(took)
		t.Logf("%v, %d servers: down after %v, in nine of ten runs within %v", c.dispatch, c.servers, took[runs/2], took[runs*9/10])
		if took[runs*9/10] > time.Second {
			t.Errorf("%v of %d servers: down after %v", c.dispatch, c.servers, took)
		}
	}
}

// TestEvidence: the numbers of connections that suffice.
func TestEvidence(t *testing.T) {
	for _, c := range []struct {
		name     string
		n, hints uint64
		m, k     uint64
		is       bool
	}{
		{"three of a large farm", 3, 0, 300, 300, true},
		{"two of a large farm", 2, 0, 300, 300, false},
		{"three of twelve servers", 3, 0, 33, 33, false},
		{"four of twelve servers", 4, 0, 44, 44, true},
		{"two that were repeated", 2, 2, 1000, 1000, true},
		{"one that was repeated often", 1, 100, 1000, 1000, false},
		{"ICMP alone", 0, 1000, 1000, 1000, false},
		{"seven with one peer", 7, 0, 7, 7, true},
		{"six with one peer", 6, 0, 6, 6, false},
		{"in a flood of five forged SYNs to one", 60, 0, 600, 100, false},
		{"the same, longer", 80, 0, 800, 133, true},
		{"no server answers", 1000, 1000, 1000, 0, false},
		{"no peers", 1000, 1000, 0, 0, false},
	} {
		if e := evidence(c.n, c.hints, c.m, c.k); (e >= enough) != c.is {
			t.Errorf("%s: evidence %.1f, enough is %.1f", c.name, e, enough)
		}
	}
}

// TestSlowTraffic: at one connection in two seconds a dead server is found, too, later.
func TestSlowTraffic(t *testing.T) {
	f := newHealthFarm(t, topo.Single, 6)
	f.rate = 0.5
	f.run(60 * time.Second)
	f.dead["s2"] = true
	f.run(40 * time.Second)
	if down := f.down(); len(down) != 1 || down[0] != "s2" {
		t.Errorf("down: %v", down)
	}
}

// TestProbes: a server that is down is probed ever more seldom, and is back by its first answer. One
// that dies again at once is probed as seldom as before, and after steady service often again.
func TestProbes(t *testing.T) {
	f := newHealthFarm(t, topo.Single, 4)
	f.dead["s3"] = true
	f.run(40 * time.Second)
	sent := f.sent["s3"]
	if len(sent) < 6 || len(sent) > 8 {
		t.Fatalf("%d probes in 40 s: %v", len(sent), sent)
	}
	for i, want := range []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second, 8 * time.Second} {
		if gap := sent[i+1] - sent[i]; gap < want || gap > want+3*healthTick {
			t.Errorf("probe %d came %v after the one before, want %v", i+2, gap, want)
		}
	}
	f.dead["s3"] = false
	f.run(9 * time.Second)
	if f.down() != nil {
		t.Fatalf("down although it answers: %v", f.down())
	}
	f.dead["s3"] = true
	f.run(3 * time.Second)
	before := len(f.sent["s3"])
	f.run(5 * time.Second)
	if n := len(f.sent["s3"]); f.down() == nil || n != before {
		t.Errorf("%d probes within 8 s of a server that flaps; down: %v", n-before, f.down())
	}
	f.dead["s3"] = false
	f.run(50 * time.Second)
	f.dead["s3"] = true
	before = len(f.sent["s3"])
	f.run(4 * time.Second)
	if n := len(f.sent["s3"]); n == before {
		t.Error("no probe within 4 s after steady service")
	}
}

// TestProbeSetAgain: the data plane forgets a probe with the table that it stands beside; as long as no
// connection has come, it is set again each second.
func TestProbeSetAgain(t *testing.T) {
	f := newHealthFarm(t, topo.Single, 4)
	f.dead["s3"] = true
	f.run(5 * time.Second)
	for range 3 {
		f.rate = 0 // so that a probe waits
		f.run(10 * time.Second)
		clear(f.probes) // another table
		f.run(1100 * time.Millisecond)
		before := len(f.sent["s3"])
		f.rate = 20
		f.run(200 * time.Millisecond)
		if n := len(f.sent["s3"]) - before; n != 1 {
			t.Fatalf("%d probes after the first was forgotten", n)
		}
	}
}

// TestHalfStay: of servers that die, half are taken out at most; and none if all die, as then it is
// the network.
func TestHalfStay(t *testing.T) {
	f := newHealthFarm(t, topo.Single, 6)
	f.run(5 * time.Second)
	for i := range 5 {
		f.dead[fmt.Sprint("s", i)] = true
	}
	f.run(20 * time.Second)
	if down := f.down(); len(down) != 3 {
		t.Errorf("down: %v, want three", down)
	}
	f = newHealthFarm(t, topo.Single, 6)
	f.run(5 * time.Second)
	for i := range 6 {
		f.dead[fmt.Sprint("s", i)] = true
	}
	f.run(60 * time.Second)
	if f.events != nil {
		t.Errorf("although no server answers: %+v", f.events)
	}
	f = newHealthFarm(t, topo.Single, 1)
	f.run(5 * time.Second)
	f.dead["s0"] = true
	f.run(20 * time.Second)
	if f.events != nil {
		t.Errorf("the only server: %+v", f.events)
	}
}

// TestForgedSYNs: a flood of SYNs that no client acknowledges takes no server out, at any rate, nor
// while few real clients come; and a dead one is found in it.
func TestForgedSYNs(t *testing.T) {
	for _, forged := range []float64{5, 100, 5000} {
		for _, rate := range []float64{1, 20} {
			f := newHealthFarm(t, topo.Single, 8)
			f.rate, f.forged = rate, forged
			f.run(2 * time.Minute)
			if f.events != nil {
				t.Fatalf("%v forged SYNs a second beside %v: %+v", forged, rate, f.events)
			}
			f.dead["s5"] = true
			died := f.now
			f.run(time.Minute)
			if len(f.events) == 0 || f.events[0].Server != "s5" {
				t.Fatalf("%v forged SYNs a second beside %v: a dead server is not found: %+v", forged, rate, f.events)
			}
			t.Logf("%v forged beside %v: down after %v", forged, rate, f.events[0].at-died)
		}
	}
}

// TestFarClients: clients farther away than was known take servers out at first, but these are back
// with the first late answer, and then for good.
func TestFarClients(t *testing.T) {
	f := newHealthFarm(t, topo.Single, 4)
	f.run(10 * time.Second)
	f.trip = 900 * time.Millisecond
	f.run(10 * time.Second)
	early := len(f.events)
	if down := f.down(); down != nil {
		t.Errorf("down: %v", down)
	}
	f.run(time.Minute)
	if len(f.events) != early {
		t.Errorf("later: %+v", f.events[early:])
	}
}

// TestConfiguredAgain: a server that is down stays so through a reload, one that is gone is
// forgotten, and a new one is observed.
func TestConfiguredAgain(t *testing.T) {
	f := newHealthFarm(t, topo.Hunt, 5)
	f.dead["s4"] = true
	f.run(10 * time.Second)
	f.cfg.Services[0].Servers = healthPool(7)[1:]
	f.counts = append(f.counts[1:], dataplane.Health{}, dataplane.Health{})
	f.h.Configure(f.cfg.Services)
	f.run(time.Second)
	if down := f.down(); len(down) != 1 || down[0] != "s4" {
		t.Errorf("down after the reload: %v", down)
	}
	served := f.h.Served(f.cfg).Services[0].Servers
	for _, s := range served {
		if (s.Weight == 0) != (s.Name == "s4") {
			t.Errorf("%s has weight %d", s.Name, s.Weight)
		}
	}
	if f.cfg.Services[0].Servers[3].Weight != 1 {
		t.Error("the configuration itself was changed")
	}
	f.dead["s6"] = true
	f.run(3 * time.Second)
	if down := f.down(); len(down) != 2 {
		t.Errorf("down: %v, want s4 and s6", down)
	}
	f.cfg.Services[0].Servers = healthPool(5)[3:] // s3, s4
	f.counts = f.counts[2:4]
	f.h.Configure(f.cfg.Services)
	if f.h.Served(f.cfg).Services[0].Servers[1].Weight != 0 {
		t.Error("half of the servers may be down")
	}
	f.cfg.Services[0].Servers = healthPool(5)[4:]
	f.h.Configure(f.cfg.Services)
	if f.h.Served(f.cfg).Services[0].Servers[0].Weight == 0 {
		t.Error("the only server is out")
	}
}

// TestUnseen: services that keep no flows, or carry datagrams, take no server out: no answer to them
// is seen.
func TestUnseen(t *testing.T) {
	for _, change := range []func(*topo.Service){
		func(s *topo.Service) { s.Dispatch = topo.Stateless },
		func(s *topo.Service) { s.VIP.Protocol = topo.UDP },
	} {
		f := newHealthFarm(t, topo.Single, 4)
		change(&f.cfg.Services[0])
		f.h.Configure(f.cfg.Services)
		f.counts = make([]dataplane.Health, len(f.h.Servers()))
		f.dead["s1"] = true
		f.run(10 * time.Second)
		if f.events != nil {
			t.Errorf("%+v", f.events)
		}
	}
}
