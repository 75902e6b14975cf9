package control

import (
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
	events []HealthChange
}

func newChecked(protocol topo.Protocol, drains bool) *checked {
	f := &checked{h: NewHealth(), counts: make([]dataplane.Health, 4), agents: true, dead: map[int]bool{}}
	svc := topo.Service{VIP: topo.VIP{Port: 80, Protocol: protocol}, Dispatch: topo.Hunt, Servers: healthPool(4)}
	if drains {
		svc.Servers[3].Weight = 0
	}
	f.h.Configure([]topo.Service{svc})
	return f
}

// run lets time pass, in which clients come to the servers with weight, or not.
func (f *checked) run(d time.Duration, clients bool) {
	for end := f.now + d; f.now < end; {
		f.now += healthTick
		for i := range f.counts[:3] {
			if clients && !f.dead[i] {
				f.counts[i].Offered++
				f.counts[i].Answered++
			}
		}
		f.events = append(f.events, f.h.Observe(f.now, f.counts)...)
		for _, s := range f.h.Checks(f.now) {
			for i, o := range f.h.Servers() {
				if o.At() == s.At() && f.agents && !f.dead[i] {
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
		f := newChecked(topo.TCP, true)
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

// TestServerOfDatagramsIsOff: so is one that has services of UDP alone.
func TestServerOfDatagramsIsOff(t *testing.T) {
	f := newChecked(topo.UDP, false)
	f.run(10*time.Second, false)
	f.dead[1] = true
	f.run(1200*time.Millisecond, false)
	f.want(t, "off", true)
}

// TestChecksTakeNoOtherOut: no server is down by its checks that gets connections, that never answered
// a check, or while no server answers anything.
func TestChecksTakeNoOtherOut(t *testing.T) {
	f := newChecked(topo.TCP, true)
	f.agents = false
	f.run(time.Minute, true)
	f.want(t, "no agents")

	f = newChecked(topo.TCP, true)
	f.run(10*time.Second, false)
	f.agents = false
	f.run(time.Minute, false)
	f.want(t, "the network")

	f = newChecked(topo.TCP, false)
	f.run(10*time.Second, false)
	f.agents = false
	f.run(time.Minute, true)
	f.want(t, "clients come, without agents")
}
