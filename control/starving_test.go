package control

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"proffer/topo"
)

// leastFarm is a farm that gives each new flow to the server with the fewest, as `learned` does, of
// several to the one that was not chosen for longest: those that wait for an answer count. Flows of a server that answers nothing wait until their client's SYN
// comes again while the server is down, or for ten seconds.
type leastFarm struct {
	*healthFarm
	servers []topo.Server
	open    [][]openFlow // of each server
	turns   []int        // servers, the one that was chosen last at the end
	lost    int          // flows that a dead server got
}

type openFlow struct {
	begun, ends time.Duration
	dead        bool // its server answers nothing
}

func newLeastFarm(t *testing.T, servers int, rate float64, seed uint64) *leastFarm {
	f := &leastFarm{healthFarm: newHealthFarm(t, topo.Learned, servers), open: make([][]openFlow, servers)}
	f.servers = f.h.Servers()
	f.rng = rand.New(rand.NewPCG(seed, 0))
	f.turns = f.rng.Perm(servers)
	f.rate = rate
	return f
}

// run lets time pass.
func (f *leastFarm) run(d time.Duration) {
	f.t.Helper()
	for end := f.now + d; f.now < end; {
		f.now += healthTick
		for range f.arrivals(f.rate) {
			f.begin(f.next())
		}
		f.answer()
		for i := range f.open {
			f.pass(i)
		}
		for _, c := range f.h.Observe(f.now, f.counts) {
			f.events = append(f.events, healthEvent{c, f.now})
		}
		for _, p := range f.h.Probes() {
			clear(f.probes)
			f.probes[p.Server] = p.Server.IsValid()
		}
	}
}

// next is the server of a new flow: that of a probe, or that with the fewest flows.
func (f *leastFarm) next() int {
	least := -1
	for _, i := range f.turns {
		s := f.servers[i]
		if f.probes[s.At()] {
			delete(f.probes, s.At())
			f.sent[s.Name] = append(f.sent[s.Name], f.now)
			return i
		}
		if !f.h.Down(s.At()) && (least < 0 || len(f.open[i]) < len(f.open[least])) {
			least = i
		}
	}
	return least
}

func (f *leastFarm) begin(server int) {
	s := f.servers[server]
	f.turns = append(slices.DeleteFunc(f.turns, func(i int) bool { return i == server }), server)
	f.offer(server, s)
	flow := openFlow{begun: f.now, ends: f.now + 50*time.Millisecond}
	if f.dead[s.Name] {
		flow.ends, flow.dead = f.now+10*time.Second, true
		f.lost++
	}
	f.open[server] = append(f.open[server], flow)
}

// pass ends the flows of a server, and repeats the SYNs of those that wait, after one second and three.
func (f *leastFarm) pass(server int) {
	down := f.h.Down(f.servers[server].At())
	f.open[server] = slices.DeleteFunc(f.open[server], func(flow openFlow) bool {
		age := f.now - flow.begun
		if over := f.now >= flow.ends; over || !flow.dead || age != time.Second && age != 3*time.Second {
			return over
		}
		f.counts[server].Repeated++
		return down
	})
}

// TestSilentAmongLeast: a server that is chosen by its flows has few that it does not answer, too few
// to be sure that it answers nothing. It gets a few more at once, and is down soon.
func TestSilentAmongLeast(t *testing.T) {
	const seeds = 20
	for _, c := range []struct {
		servers int
		rate    float64 // of the farm
		most    time.Duration
	}{{4, 150, 900 * time.Millisecond}, {12, 150, time.Second}, {4, 40, 1300 * time.Millisecond}, {12, 40, time.Second}, {12, 5, 6 * time.Second}} {
		var took []time.Duration
		lost := 0
		for seed := range uint64(seeds) {
			f := newLeastFarm(t, c.servers, c.rate, seed)
			f.run(10 * time.Second)
			if len(f.events)+len(f.sent) > 0 {
				t.Fatalf("%+v: %+v and probes %v of servers that answer", c, f.events, f.sent)
			}
			f.dead["s1"] = true
			died := f.now
			for len(f.events) == 0 && f.now < died+15*time.Second {
				f.run(healthTick)
			}
			if len(f.events) > 0 && f.events[0].Server != "s1" {
				t.Fatalf("%+v: %+v", c, f.events)
			}
			took = append(took, f.now-died)
			lost += f.lost
		}
		slices.Sort(took)
		t.Logf("%d servers, %v flows a second: down after %v, in nine of ten runs within %v, with %.1f flows that lost a SYN", c.servers, c.rate, took[seeds/2], took[seeds*9/10], float64(lost)/seeds)
		if took[seeds*9/10] > c.most {
			t.Errorf("%+v: down after %v", c, took)
		}
	}
}

// TestDrainedIsNotProbed: a server that drains gets no new flow, whatever it answers, be it down or not
// yet.
func TestDrainedIsNotProbed(t *testing.T) {
	f := newLeastFarm(t, 12, 20, 1)
	drain := func(weight int) {
		f.cfg.Services[0].Servers[1].Weight = weight
		f.h.Configure(f.cfg.Services)
		clear(f.probes) // another table
		clear(f.sent)
		f.run(15 * time.Second)
	}
	f.run(10 * time.Second)
	f.dead["s1"] = true
	for f.lost == 0 {
		f.run(healthTick)
	}
	for round := range 2 {
		drain(0)
		if sent := f.sent["s1"]; len(sent) > 0 {
			t.Errorf("round %d: it drains, and gets new flows at %v", round, sent)
		}
		drain(1)
		if len(f.sent["s1"]) == 0 || !f.h.Down(f.servers[1].At()) {
			t.Errorf("round %d: without the drain it gets none, either", round)
		}
	}
}

// TestFarClientsMakeFewSuspects: where answers take long, a server is no suspect for that, but for few
// connections: else most new flows went to servers that have some already.
func TestFarClientsMakeFewSuspects(t *testing.T) {
	for _, trip := range []time.Duration{50 * time.Millisecond, 150 * time.Millisecond, 300 * time.Millisecond} {
		f := newLeastFarm(t, 12, 40, 1)
		f.trip = trip
		f.run(time.Minute)
		probes := 0
		for _, sent := range f.sent {
			probes += len(sent)
		}
		t.Logf("answers after %v: %d probes for 2400 connections in a minute", trip, probes)
		if probes > 48 || len(f.events) > 0 {
			t.Errorf("answers after %v: %d probes in a minute, %+v", trip, probes, f.events)
		}
		f.dead["s1"] = true
		if f.run(15 * time.Second); len(f.events) != 1 || !f.events[0].Down || f.events[0].Server != "s1" {
			t.Errorf("answers after %v: %+v, want s1 down alone", trip, f.events)
		}
	}
}

// TestFloodMakesNoSuspects: forged SYNs bring a server that answers no probes.
func TestFloodMakesNoSuspects(t *testing.T) {
	for _, forged := range []float64{20, 100, 5000} {
		f := newHealthFarm(t, topo.Learned, 8)
		f.rate, f.forged = 5, forged
		f.run(time.Minute)
		probes := 0
		for _, sent := range f.sent {
			probes += len(sent)
		}
		if probes > 0 || f.events != nil {
			t.Errorf("%v forged SYNs a second: %d probes in a minute; %+v", forged, probes, f.events)
		}
	}
}
