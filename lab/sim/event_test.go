package sim

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"proffer/table"
)

// troubled is a farm where everything happens that can.
func troubled() Farm {
	f := smallFarm()
	f.Default.Requests = 3000
	f.Events = []Event{
		{At: 500 * time.Millisecond, Kind: Drain, Servers: []int{3}},
		{At: 800 * time.Millisecond, Kind: Join, Servers: []int{5, 0}},
		{At: time.Second, Kind: Fail, Servers: []int{1, 4}},
		{At: 1200 * time.Millisecond, Kind: FailLB, LB: 0},
		{At: 1201 * time.Millisecond, Kind: Fail, Servers: []int{2, 6}}, // with flows that were reset just before
		{At: 1500 * time.Millisecond, Kind: Fail, Servers: []int{5}},
		{At: 2 * time.Second, Kind: Join, Servers: []int{1, 3}},
		{At: 2500 * time.Millisecond, Kind: FailLB, LB: 2},
	}
	return f
}

// TestEveryRequestEndsOnce: whatever happens to servers and LBs, every request is
// answered, refused, lost or reset, once, and no server takes flows while it is out.
func TestEveryRequestEndsOnce(t *testing.T) {
	uneven, staged, tabled := troubled(), troubled(), troubled()
	for i := range uneven.Servers {
		uneven.Servers[i].Weight = 1 + i%3
	}
	staged.Default.Stages, staged.Default.IO, staged.FlowTable = 3, Exponential(5*time.Millisecond), 8
	tabled.Table = 64
	for name, f := range map[string]Farm{"plain": troubled(), "weights": uneven, "stages and flow table": staged, "table": tabled} {
		for _, policy := range Policies() {
			p := mustParse(t, policy)
			if p.Choices > len(f.Servers) {
				continue
			}
			e := newEngine(f, p, f.Load(1.2), 5)
			for n := 0; e.step(); n++ {
				r := &e.result
				if int(e.sent) != r.done+r.rejected+r.lost+r.reset+r.open {
					t.Fatalf("%s, %s at %v (seed 5): %d sent, %d answered, %d refused, %d lost, %d reset, %d in flight",
						name, policy, dur(e.now), e.sent, r.done, r.rejected, r.lost, r.reset, r.open)
				}
				for i, s := range e.servers {
					if present := e.stations[i].present(); present > s.taken || s.taken > s.assigned || s.taken < 0 {
						t.Fatalf("%s, %s at %v (seed 5): server %d has %d, accepted %d, was given %d", name, policy, dur(e.now), i, present, s.taken, s.assigned)
					}
				}
				if n > 1_000_000 {
					t.Fatalf("%s, %s does not end (seed 5)", name, policy)
				}
			}
			if e.result.open != 0 || e.fault != nil {
				t.Fatalf("%s, %s (seed 5): %d open, %v", name, policy, e.result.open, e.fault)
			}
			r := e.close()
			count(t, name+", "+policy, f, r)
		}
	}
}

func count(t *testing.T, name string, f Farm, r Result) {
	t.Helper()
	answered, refused, lost, reset := 0, 0, 0, 0
	for i, row := range r.Rows {
		ends := 0
		for _, end := range []struct {
			is bool
			n  *int
		}{{row.FCT >= 0, &answered}, {row.Refused, &refused}, {row.Lost, &lost}, {row.Reset, &reset}} {
			if end.is {
				*end.n++
				ends++
			}
		}
		if ends != 1 {
			t.Fatalf("%s: request %d ends %d times: %+v (seed 5)", name, i, ends, row)
		}
		for _, v := range f.Events {
			if v.Kind == Fail && slices.Contains(v.Servers, row.Server) && row.FCT >= 0 && row.Begun < v.At && row.Ended > v.At+2*hopMax {
				t.Errorf("%s: request %d was answered by server %d, which had failed meanwhile (seed 5)", name, i, row.Server)
			}
		}
		if row.At > 510*time.Millisecond && row.At < 1900*time.Millisecond && row.Server == 3 && !row.Refused && row.FCT < time.Second {
			t.Errorf("%s: request %d of %v went to the drained server (seed 5)", name, i, row.At)
		}
	}
	if answered != len(r.Latencies) || refused != r.Refused || lost != r.Lost || reset != r.Reset {
		t.Errorf("%s: rows say %d answered, %d refused, %d lost, %d reset; the result %d, %d, %d, %d (seed 5)",
			name, answered, refused, lost, reset, len(r.Latencies), r.Refused, r.Lost, r.Reset)
	}
	if lost+r.Reset+r.Recovered == 0 {
		t.Errorf("%s: %d lost, %d reset, %d recovered: the events did nothing (seed 5)", name, lost, reset, r.Recovered)
	}
}

// TestLBFails: the next LB finds every flow of a policy that goes by the flow's
// hash or hunts, and hardly any of the others.
func TestLBFails(t *testing.T) {
	for name, found := range map[string]bool{"single": true, "wcmp": true, "hunt:static:2": true, "guided": true, "rr": false, "lsq": false, "jsq": false} {
		f := smallFarm()
		f.Default.Requests = 3000
		f.Events = []Event{{At: time.Second, Kind: FailLB, LB: 1}}
		r := mustRun(t, f, mustParse(t, name), f.Load(1.3), 1)
		if found && (r.Reset > 0 || r.Recovered == 0) || !found && r.Reset <= r.Recovered {
			t.Errorf("%s: %d flows recovered, %d reset (seed 1)", name, r.Recovered, r.Reset)
		}
	}
}

// TestDrainLosesNothing: a drained server finishes its flows.
func TestDrainLosesNothing(t *testing.T) {
	for _, name := range Policies() {
		f := smallFarm()
		f.Events = []Event{{At: 300 * time.Millisecond, Kind: Drain, Servers: []int{2, 3}}}
		p := mustParse(t, name)
		if p.Choices > len(f.Servers) {
			continue
		}
		if r := mustRun(t, f, p, f.Load(0.5), 1); r.Lost+r.Reset+r.Repeated > 0 {
			t.Errorf("%s: %d lost, %d reset, %d SYNs repeated (seed 1)", name, r.Lost, r.Reset, r.Repeated)
		}
	}
}

// TestWeights: single gives each server its share, with and without a table.
func TestWeights(t *testing.T) {
	for _, buckets := range []int{0, 4096} {
		f := Farm{Name: "weights", LBs: 1, Table: buckets, Default: Workload{Requests: 60_000, Service: Exponential(time.Millisecond)}}
		for i := range 5 {
			f.Servers = append(f.Servers, Server{Cores: 64, Discipline: FIFO, Backlog: 1000, Weight: 1 + i})
		}
		r := mustRun(t, f, mustParse(t, "single"), f.Load(0.3), 1)
		for i, n := range r.Served {
			if want := 60_000 * float64(1+i) / 15; math.Abs(float64(n)/want-1) > 0.05 {
				t.Errorf("%d buckets: server %d of weight %d got %d, want %.0f (seed 1)", buckets, i, 1+i, n, want)
			}
		}
	}
}

// TestLists: with a table hunt offers to the servers of the flow's bucket, as many
// as the farm states; a server's own threshold goes before the policy's.
func TestLists(t *testing.T) {
	f := smallFarm()
	f.Table, f.Choices = 101, 3
	e := newEngine(f, mustParse(t, "hunt:static:2"), f.Load(0.5), 1)
	var servers []table.Server
	for _, id := range strings.Fields("server0 server1 server2 server3 server4 server5 server6") {
		servers = append(servers, table.Server{ID: id, Weight: 1})
	}
	want, err := table.Build(servers, 101, 3)
	if err != nil {
		t.Fatal(err)
	}
	for number := range uint32(500) {
		r := Request{number: number}
		e.list(&r)
		for i, s := range want.Lookup(e.flowHash(&r)) {
			if r.offered != 3 || r.list[i] != int32(s) {
				t.Fatalf("flow %d is offered to %v of %d, want %v", number, r.list, r.offered, want.Lookup(e.flowHash(&r)))
			}
		}
	}
	f.Servers[2].Threshold = 5
	e = newEngine(f, mustParse(t, "hunt:static:2"), f.Load(0.5), 1)
	e.servers[1].taken, e.servers[2].taken = 4, 4
	for server, takes := range map[int32]bool{1: false, 2: true} {
		if r := (Request{server: server, offered: 3}); e.offerer.Offer(&r) != takes {
			t.Errorf("server %d with 4 requests takes an offer: %v, want %v", server, !takes, takes)
		}
	}
}

func TestEventsRefused(t *testing.T) {
	for want, v := range map[string][]Event{
		"event fail: servers [7]: want 0 to 6":     {{Kind: Fail, Servers: []int{7}}},
		"event drain: no servers":                  {{Kind: Drain}},
		"event fail-lb: LB 3: want 0 to 2":         {{Kind: FailLB, LB: 3}},
		"event fail: at -1ns":                      {{At: -1, Kind: Fail, Servers: []int{1}}},
		"event fail at 1s leaves no server, or no": {{At: time.Second, Kind: Fail, Servers: []int{0, 1, 2, 3, 4, 5, 6}}},
		"event fail-lb at 3ns leaves no server, o": {{At: 3, Kind: FailLB, LB: 0}, {At: 1, Kind: FailLB, LB: 1}, {At: 2, Kind: FailLB, LB: 2}},
	} {
		f := smallFarm()
		f.Events = v
		if _, err := Run(f, mustParse(t, "jsq"), f.Load(0.5), 1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s…", err, want)
		}
	}
}
