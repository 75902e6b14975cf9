package proof

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"proffer/lab/sim"
	"proffer/table"
)

// troubled is a farm where everything happens that can.
func troubled() sim.Farm {
	f := smallFarm()
	f.Default.Requests = 3000
	f.Events = []sim.Event{
		{At: 500 * time.Millisecond, Kind: sim.Drain, Servers: []int{3}},
		{At: 800 * time.Millisecond, Kind: sim.Join, Servers: []int{5, 0}},
		{At: time.Second, Kind: sim.Fail, Servers: []int{1, 4}},
		{At: 1200 * time.Millisecond, Kind: sim.FailLB, LB: 0},
		{At: 1201 * time.Millisecond, Kind: sim.Fail, Servers: []int{2, 6}}, // with flows that were reset just before
		{At: 1500 * time.Millisecond, Kind: sim.Fail, Servers: []int{5}},
		{At: 2 * time.Second, Kind: sim.Join, Servers: []int{1, 3}},
		{At: 2500 * time.Millisecond, Kind: sim.FailLB, LB: 2},
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
	staged.Default.Stages, staged.Default.IO, staged.FlowTable = 3, sim.Exponential(5*time.Millisecond), 8
	tabled.Table = 64
	for name, f := range map[string]sim.Farm{"plain": troubled(), "weights": uneven, "stages and flow table": staged, "table": tabled} {
		for _, policy := range sim.Policies() {
			p := mustParse(t, policy)
			if p.Choices > len(f.Servers) {
				continue
			}
			e := sim.NewEngine(f, p, f.Load(1.2), 5)
			for n := 0; e.Step(); n++ {
				r := &e.Result
				if int(e.Sent) != r.Done+r.Rejected+r.Lost+r.Reset+r.Open {
					t.Fatalf("%s, %s at %v (seed 5): %d sent, %d answered, %d refused, %d lost, %d reset, %d in flight",
						name, policy, dur(e.Instant), e.Sent, r.Done, r.Rejected, r.Lost, r.Reset, r.Open)
				}
				for i, s := range e.Servers {
					if present := e.Stations[i].Present(); present > s.Taken || s.Taken > s.Assigned || s.Taken < 0 {
						t.Fatalf("%s, %s at %v (seed 5): server %d has %d, accepted %d, was given %d", name, policy, dur(e.Instant), i, present, s.Taken, s.Assigned)
					}
				}
				if n > 1_000_000 {
					t.Fatalf("%s, %s does not end (seed 5)", name, policy)
				}
			}
			if e.Result.Open != 0 || e.Fault != nil {
				t.Fatalf("%s, %s (seed 5): %d open, %v", name, policy, e.Result.Open, e.Fault)
			}
			r := e.Close()
			count(t, name+", "+policy, f, r)
		}
	}
}

func count(t *testing.T, name string, f sim.Farm, r sim.Result) {
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
			if v.Kind == sim.Fail && slices.Contains(v.Servers, row.Server) && row.FCT >= 0 && row.Begun < v.At && row.Ended > v.At+2*sim.HopMax {
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
		f.Events = []sim.Event{{At: time.Second, Kind: sim.FailLB, LB: 1}}
		r := mustRun(t, f, mustParse(t, name), f.Load(1.3), 1)
		if found && (r.Reset > 0 || r.Recovered == 0) || !found && r.Reset <= r.Recovered {
			t.Errorf("%s: %d flows recovered, %d reset (seed 1)", name, r.Recovered, r.Reset)
		}
	}
}

// TestDrainLosesNothing: a drained server finishes its flows.
func TestDrainLosesNothing(t *testing.T) {
	for _, name := range sim.Policies() {
		f := smallFarm()
		f.Events = []sim.Event{{At: 300 * time.Millisecond, Kind: sim.Drain, Servers: []int{2, 3}}}
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
		f := sim.Farm{Name: "weights", LBs: 1, Table: buckets, Default: sim.Workload{Requests: 60_000, Service: sim.Exponential(time.Millisecond)}}
		for i := range 5 {
			f.Servers = append(f.Servers, sim.Server{Cores: 64, Discipline: sim.FIFO, Backlog: 1000, Weight: 1 + i})
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
	e := sim.NewEngine(f, mustParse(t, "hunt:static:2"), f.Load(0.5), 1)
	var servers []table.Server
	for _, id := range strings.Fields("server0 server1 server2 server3 server4 server5 server6") {
		servers = append(servers, table.Server{ID: id, Weight: 1})
	}
	want, err := table.Build(servers, 101, 3)
	if err != nil {
		t.Fatal(err)
	}
	for number := range uint32(500) {
		r := sim.Request{Number: number}
		e.List(&r)
		for i, s := range want.Lookup(e.Hash(&r)) {
			if r.Offered != 3 || r.List[i] != int32(s) {
				t.Fatalf("flow %d is offered to %v of %d, want %v", number, r.List, r.Offered, want.Lookup(e.Hash(&r)))
			}
		}
	}
	f.Servers[2].Threshold = 5
	e = sim.NewEngine(f, mustParse(t, "hunt:static:2"), f.Load(0.5), 1)
	e.Servers[1].Taken, e.Servers[2].Taken = 4, 4
	for server, takes := range map[int32]bool{1: false, 2: true} {
		if r := (sim.Request{Server: server, Offered: 3}); e.Offerer.Offer(&r) != takes {
			t.Errorf("server %d with 4 requests takes an offer: %v, want %v", server, !takes, takes)
		}
	}
}

func TestEventsRefused(t *testing.T) {
	for want, v := range map[string][]sim.Event{
		"event fail: servers [7]: want 0 to 6":     {{Kind: sim.Fail, Servers: []int{7}}},
		"event drain: no servers":                  {{Kind: sim.Drain}},
		"event fail-lb: LB 3: want 0 to 2":         {{Kind: sim.FailLB, LB: 3}},
		"event fail: at -1ns":                      {{At: -1, Kind: sim.Fail, Servers: []int{1}}},
		"event fail at 1s leaves no server, or no": {{At: time.Second, Kind: sim.Fail, Servers: []int{0, 1, 2, 3, 4, 5, 6}}},
		"event fail-lb at 3ns leaves no server, o": {{At: 3, Kind: sim.FailLB, LB: 0}, {At: 1, Kind: sim.FailLB, LB: 1}, {At: 2, Kind: sim.FailLB, LB: 2}},
	} {
		f := smallFarm()
		f.Events = v
		if _, err := sim.Run(f, mustParse(t, "jsq"), f.Load(0.5), 1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s…", err, want)
		}
	}
}
