package dataplane

import (
	"bytes"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"proffer/policy"
	"proffer/topo"
)

// oneSet is an agent that remembers eight openings.
func oneSet(t *testing.T, change func(*ebpf.CollectionSpec) error) *agentRig {
	newAgentRig(t, hits{}, offering(huntPort)) // for its namespace
	cfg := agentConfig(64, offering(huntPort, byTable, func(o *topo.Offering) { o.Acceptance = topo.Always }))
	cfg.Flows.Embryonic = waitPlaces
	return loadAgentRig(t, hits{}, cfg, change)
}

func openingOf(flow int) packet {
	p := inward(huntPort, syn)
	p.src, p.seq = netip.AddrPortFrom(clientAddr, uint16(1+flow)), uint32(flow)*7919
	return p
}

// TestWaitsOldest: a newcomer takes a free place, or that of the opening that was
// not seen for longest; the client's next packet frees its own.
func TestWaitsOldest(t *testing.T) {
	const begin = 15<<36 - 990*time.Millisecond // dates begin anew in between: nobody's is one of the youngest
	r := oneSet(t, inVirtualTime)
	waits := waitsOf(t, r.Agent)
	stay := func(step string, flows ...int) {
		t.Helper()
		for _, flow := range flows {
			if _, known := waits.get(t, openingOf(flow).flow()); !known {
				t.Errorf("%s: opening %d is forgotten", step, flow)
			}
		}
		if n := waits.count(t); n != len(flows) {
			t.Errorf("%s: %d openings, want %d", step, n, len(flows))
		}
	}
	order := []int{3, 0, 5, 1, 7, 2, 6, 4}
	for i, flow := range order {
		r.at(t, begin+time.Duration(i)*10*time.Millisecond)
		r.accept(t, openingOf(flow))
	}
	stay("full", order...)
	dumped, err := dumpWaits(waits.m)
	if err != nil {
		t.Fatal(err)
	}
	r.at(t, begin+time.Second)
	again := to(openingOf(3), policy.Generation(openingOf(3).seq), 0xcf)
	r.send(t, again.frame()).is(t, "again", xdpPass, delivered(openingOf(3)), "accept_repeated")
	if later, err := dumpWaits(waits.m); err != nil || !slices.EqualFunc(later, dumped, bytes.Equal) {
		t.Errorf("when an opening was last seen counts in a dump (%v)", err)
	}
	r.accept(t, openingOf(8))
	stay("a ninth", 3, 5, 1, 7, 2, 6, 4, 8)
	r.acknowledge(t, openingOf(7))
	stay("acknowledged", 3, 5, 1, 2, 6, 4, 8)
	r.accept(t, openingOf(9))
	stay("a free place", 3, 5, 1, 2, 6, 4, 8, 9)
}

// TestWaitsCrowd: CPUs that take places of one set at once never write into one
// place together. (In real time: who comes in one tick takes the same place.)
func TestWaitsCrowd(t *testing.T) {
	const crowd, rounds, openings = 4, 10, 3000
	r := oneSet(t, func(spec *ebpf.CollectionSpec) error {
		return spec.Variables["stalls"].Set(true)
	})
	waits, flow := waitsOf(t, r.Agent), 0
	for range rounds {
		var wg sync.WaitGroup
		for i := range crowd {
			first := flow + i*openings
			wg.Go(func() {
				for k := range openings {
					p := openingOf((first + k) % 60000)
					o := ebpf.RunOptions{Data: to(p, policy.Generation(p.seq), 0xcf).frame(), DataOut: make([]byte, 512)}
					if _, err := r.objs.AgentIn.Run(&o); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		flow += crowd * openings
		set := waits.set(t, 0)
		for i, place := range set.Place {
			if set.Mark[i] <= freeMark {
				continue
			}
			number := int(portBits(place.T.ClientPortBe)) - 1
			p := openingOf(number)
			at, mark := waits.place(p.flow())
			if at != 0 || set.Mark[i]&^0xffff != mark || place.C.Generation != policy.Generation(p.seq) || place.C.NextIn != p.seq+1 {
				t.Fatalf("place %d has mark %x and %+v", i, set.Mark[i], place)
			}
		}
	}
}

// TestWaitsHalfFull: a table of sets displaces flows before it is full, but few.
func TestWaitsHalfFull(t *testing.T) {
	const openings = 2048
	newAgentRig(t, hits{}, offering(huntPort)) // for its namespace
	cfg := agentConfig(64, offering(huntPort, byTable, func(o *topo.Offering) { o.Acceptance = topo.Always }))
	cfg.Flows.Embryonic = 2 * openings
	r := loadAgentRig(t, hits{}, cfg, inVirtualTime)
	for i := range openings {
		r.accept(t, openingOf(i))
	}
	if n := waitsOf(t, r.Agent).count(t); n > openings || n < openings*97/100 {
		t.Errorf("%d of %d openings are remembered in twice as many places", n, openings)
	}
}
