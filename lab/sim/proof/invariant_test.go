package proof

import (
	"fmt"
	"hash/fnv"
	"math"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"proffer/lab/sim"
)

func mustParse(t testing.TB, name string) sim.Policy {
	t.Helper()
	p, err := sim.ParsePolicy(name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func mustRun(t testing.TB, f sim.Farm, p sim.Policy, w sim.Workload, seed uint64) sim.Result {
	t.Helper()
	r, err := sim.Run(f, p, w, seed)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestConservation: after every single event, requests sent = completed +
// refused + in flight, and every server's books agree with its queues.
func TestConservation(t *testing.T) {
	const seed = 11
	for _, name := range []string{"rr", "lsq", "hunt:dynamic", "guided", "oracle", "learned", "prequal", "prequal:sync", "c3", "ledp"} {
		f := smallFarm()
		f.Default.Stages, f.Default.IO = 3, sim.Exponential(5*time.Millisecond)
		e := sim.NewEngine(f, mustParse(t, name), f.Load(1.05), seed)
		for e.Step() {
			r := &e.Result
			if int(e.Sent) != r.Done+r.Rejected+r.Open {
				t.Fatalf("%s, %v (seed %d): %d sent, %d completed, %d refused, %d in flight",
					name, dur(e.Instant), seed, e.Sent, r.Done, r.Rejected, r.Open)
			}
			assigned := 0
			for i := range e.Servers {
				s := &e.Servers[i]
				present := e.Stations[i].Present() + e.Stations[len(e.Servers)+i].Present()
				assigned += int(s.Assigned)
				if present > s.Taken || s.Taken > s.Assigned || s.Taken > s.Room {
					t.Fatalf("%s, %v (seed %d): server %d has %d, accepted %d of at most %d, was given %d",
						name, dur(e.Instant), seed, i, present, s.Taken, s.Room, s.Assigned)
				}
			}
			if assigned > r.Open {
				t.Fatalf("%s, %v (seed %d): %d with servers, %d in flight", name, dur(e.Instant), seed, assigned, r.Open)
			}
		}
		if e.Result.Open != 0 || int(e.Sent) != e.Work.Requests {
			t.Errorf("%s (seed %d): ended with %d sent and %d in flight", name, seed, e.Sent, e.Result.Open)
		}
	}
}

// TestLostRequest: a run that loses a request ends with an error, also where a
// policy's timers would tick for ever.
func TestLostRequest(t *testing.T) {
	for _, name := range []string{"jsq", "learned"} {
		e := sim.NewEngine(smallFarm(), mustParse(t, name), smallFarm().Load(0.5), 1)
		for e.Sent < 100 || e.Hops.Heap[0].Kind != sim.Data {
			e.Step()
		}
		e.Hops.Pop()
		for range 1_000_000 {
			if !e.Step() {
				break
			}
		}
		if e.Step() || e.Result.Open != 1 {
			t.Errorf("%s: %d requests are open, and it goes on (seed 1)", name, e.Result.Open)
		}
	}
}

// TestCommonRandomNumbers: at a seed every policy meets the same requests, at
// the same LBs.
func TestCommonRandomNumbers(t *testing.T) {
	f := smallFarm()
	w := f.Load(0.8)
	want := mustRun(t, f, mustParse(t, "single"), w, 3)
	for _, name := range sim.Policies() {
		p := mustParse(t, name)
		if p.Choices > len(f.Servers) {
			continue
		}
		got := mustRun(t, f, p, w, 3)
		for i := range want.Rows {
			a, b := want.Rows[i], got.Rows[i]
			if a.At != b.At || a.Service != b.Service || a.LB != b.LB {
				t.Fatalf("%s, request %d: %+v, single had %+v", name, i, b, a)
			}
		}
	}
}

// TestPermutation: numbering the servers otherwise changes the mean of no policy
// by more than chance does.
func TestPermutation(t *testing.T) {
	t.Parallel()
	const seeds = 8
	for _, name := range []string{"rr", "wrr-feedback", "wcmp", "lsq", "sed2", "learned", "hunt:static:2", "guided", "jsq", "jiq", "oracle", "oraclef", "prequal", "c3", "lsqp"} {
		f := smallFarm()
		f.Penalty = time.Second
		f.Default.Requests, f.Default.KeepRows = 10_000, false
		back := f
		back.Servers = slices.Clone(f.Servers)
		slices.Reverse(back.Servers)
		var difference [seeds]float64
		sum, level := 0.0, 0.0
		for i := range difference {
			a := mustRun(t, f, mustParse(t, name), f.Load(0.6), uint64(i))
			b := mustRun(t, back, mustParse(t, name), back.Load(0.6), uint64(i))
			difference[i] = a.Mean - b.Mean
			sum += difference[i]
			level += a.Mean / seeds
		}
		mean, squares := sum/seeds, 0.0
		for _, d := range difference {
			squares += (d - mean) * (d - mean)
		}
		deviation := math.Sqrt(squares / (seeds - 1) / seeds)
		if math.Abs(mean) > 5*deviation+0.002*level { // Student's t with 7 degrees: 0.1 % of all seeds
			t.Errorf("%s (seeds 0 to %d): the mean of %.2f ms changes by %.3f ± %.3f", name, seeds-1, level, mean, deviation)
		}
	}
}

// TestLoadStep: a step of the load from .4 to .9 leaves guided no transient:
// the first ten seconds after it are like the rest.
func TestLoadStep(t *testing.T) {
	f, err := sim.FarmB("hom")
	if err != nil {
		t.Fatal(err)
	}
	w := f.Default
	w.KeepRows = true
	full := f.Capacity(w)
	w.Arrivals = sim.Stepped(sim.Step{Lasting: time.Minute, PerSecond: 0.4 * full}, sim.Step{Lasting: 0, PerSecond: 0.9 * full})
	r := mustRun(t, f, mustParse(t, "guided"), w, 1)
	var sums, counts [2]float64
	for _, row := range r.Rows {
		if after := row.At - time.Minute; after >= 0 {
			late := 0
			if after > 10*time.Second {
				late = 1
			}
			sums[late] += row.FCT.Seconds()
			counts[late]++
		}
	}
	if early, late := sums[0]/counts[0], sums[1]/counts[1]; early > 1.15*late {
		t.Errorf("mean %.3f s just after the step, %.3f s later (seed 1)", early, late)
	}
}

func digest(r sim.Result) string {
	h := fnv.New64a()
	for _, row := range r.Rows {
		fmt.Fprintln(h, struct {
			At, Service, FCT time.Duration
			LB, Server, Hops int
			Refused          bool
		}{row.At, row.Service, row.FCT, row.LB, row.Server, row.Hops, row.Refused})
	}
	return fmt.Sprintf("%016x", h.Sum64())
}

func TestGoldenSeeds(t *testing.T) {
	f := smallFarm()
	f.Default.Requests = 5000
	for name, want := range goldenRows {
		r := mustRun(t, f, mustParse(t, name), f.Load(0.9), 42)
		if got := digest(r); got != want {
			t.Errorf("%s: rows of seed 42 sum to %s, want %s", name, got, want)
		}
	}
}

// TestSameOnAnyCores: runs side by side, on one processor or several, are the
// same run.
func TestSameOnAnyCores(t *testing.T) {
	f := smallFarm()
	names := []string{"learned", "guided", "wrr-feedback", "oraclef", "prequal", "c3"}
	want := map[string]string{}
	for _, name := range names {
		want[name] = digest(mustRun(t, f, mustParse(t, name), f.Load(0.9), 9))
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, cores := range []int{1, 2, 7} {
		runtime.GOMAXPROCS(cores)
		var wait sync.WaitGroup
		for range 4 {
			for _, name := range names {
				wait.Go(func() {
					if got := digest(mustRun(t, f, mustParse(t, name), f.Load(0.9), 9)); got != want[name] {
						t.Errorf("%s on %d cores: rows of seed 9 sum to %s, want %s", name, cores, got, want[name])
					}
				})
			}
		}
		wait.Wait()
	}
}

// goldenRows are the sums of all rows of seed 42. A change of them is a change of
// what every seed gives: say so in the commit.
var goldenRows = map[string]string{
	"single":           "3b9ac9f84b243e99",
	"rr":               "ae37009b1a497fee",
	"wrr-feedback":     "64241bfba9e7ef7f",
	"wcmp":             "8298de1990d3203d",
	"awcmp":            "a66dfaeef8d86c7e",
	"lsq":              "ab3a89989622a064",
	"gsq2":             "6cfdffc018f215d3",
	"sed":              "8800ccbde1cbc440",
	"learned:ages":     "d9a3f7639d33d93e",
	"learned:32":       "95dc442b28b6c19e",
	"hunt:static:4":    "a85254906e73ad70",
	"hunt:dynamic":     "1fcb0fa22ee6ff8a",
	"guided":           "88f6e698db2b5011",
	"jsq":              "661e5a61279d1c54",
	"c3":               "76851bf319d3778c",
	"learned:literal":  "1a0b66c058c994aa",
	"learned:syn":      "7e87ffaf3a4e844b",
	"ledp":             "dcacd25e86cb650b",
	"lsqp":             "8d193802cabd8d35",
	"prequal":          "4f6570d0ce6861ac",
	"prequal:inflight": "5bbf439f6019ad49",
	"prequal:perfect":  "c53b14d2fa9b1557",
	"prequal:sync":     "e5f8d0033f4a9d82",
	"jiq":              "501c61167d1aa66c",
	"oracle":           "de8bd208274c127d",
	"oraclef":          "bdfbc637eb4c1122",
}
