package proof

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"proffer/lab/sim"
)

// smallFarm has every kind of server, few of each.
func smallFarm() sim.Farm {
	return sim.Farm{
		Name: "small", LBs: 3, HopMin: sim.HopMin, HopMax: sim.HopMax,
		Servers: []sim.Server{
			{Cores: 1, Discipline: sim.FIFO, Backlog: 5},
			{Cores: 2, Discipline: sim.FIFO, Backlog: 5},
			{Cores: 1, Speed: 2, Discipline: sim.FIFO, Backlog: 5},
			{Cores: 2, Discipline: sim.Sharing, Workers: 4, Backlog: 3},
			{Cores: 1, Speed: 1.5, Discipline: sim.Sharing, Workers: 8, Backlog: 0},
			{Cores: 3, Discipline: sim.Sharing, Workers: 8, Backlog: 2},
			{Cores: 1, Discipline: sim.FIFO, Backlog: 5},
		},
		Default: sim.Workload{Requests: 700, Service: sim.Exponential(20 * time.Millisecond), KeepRows: true},
	}
}

// TestAgainstSlowTwin: every policy makes the very decisions of its obvious twin,
// and every request takes as long to a microsecond: the twin's
// sums round differently at every event.
func TestAgainstSlowTwin(t *testing.T) {
	far := smallFarm()
	far.ClientRTT = sim.Lognormal(10*time.Millisecond, 5*time.Millisecond)
	far.Penalty = time.Second
	tight := smallFarm()
	tight.FlowTable = 8
	staged := smallFarm()
	staged.Default.Stages, staged.Default.IO = 3, sim.Exponential(5*time.Millisecond)
	rivals := smallFarm()
	rivals.Antagonists = sim.Antagonists{Every: 200 * time.Millisecond, Idle: 0.5, Least: 0.2, Most: 0.8}
	flooded := far
	flooded.Flood = sim.Flood{Times: 5, Expires: 300 * time.Millisecond}
	for name, farm := range map[string]sim.Farm{"plain": smallFarm(), "far": far, "tight table": tight, "three stages": staged, "antagonists": rivals, "flood": flooded} {
		for _, spelling := range append(sim.Policies(), "hunt:static:0", "learned:ages:8", "guided:7", "learned2:ages:literal", "learned:ages:syn", "learned2:literal", "prequal:sync:inflight", "prequal:perfect:sync") {
			p, err := sim.ParsePolicy(spelling)
			if err != nil {
				t.Fatal(err)
			}
			if p.Choices > len(farm.Servers) {
				continue
			}
			if farm.Flood.Times > 0 && !slices.Contains([]string{"learned", "lsq", "sed"}, p.Base) {
				continue // it does not feel the flood
			}
			if p.Base == "oraclef" && farm.Default.Stages > 1 {
				continue // it does not foresee disks; its twin would have to agree on how not to
			}
			for _, rho := range []float64{0.7, 1.1} {
				t.Run(fmt.Sprintf("%s/%s/%v", name, spelling, rho), func(t *testing.T) {
					t.Parallel()
					compare(t, farm, p, farm.Load(rho), 5)
				})
			}
		}
	}
}

// TestOracleFOfOwnSpeeds: the search over servers of which no two are alike, or over
// some of each speed, finds what the twin finds by looking at every one.
func TestOracleFOfOwnSpeeds(t *testing.T) {
	mixed := ownSpeeds(40, sim.FIFO)
	for i := range mixed.Servers {
		if i%3 == 0 {
			mixed.Servers[i].Discipline, mixed.Servers[i].Cores = sim.Sharing, 1+i%4
		}
	}
	shared, classes := ownSpeeds(40, sim.Sharing), ownSpeeds(20, sim.Sharing)
	for i := range classes.Servers {
		classes.Servers[i].Speed, classes.Servers[i].Cores = 1+float64(i%3)/7, 1+i%3
	}
	p := mustParse(t, "oraclef")
	for name, f := range map[string]sim.Farm{"mixed": mixed, "shared": shared, "classes": classes} {
		f.Default.Requests, f.Default.KeepRows = 2000, true
		for _, rho := range []float64{0.5, 0.9, 1.2} {
			for seed := uint64(1); seed <= 3; seed++ {
				t.Run(fmt.Sprintf("%s/%v/%d", name, rho, seed), func(t *testing.T) {
					t.Parallel()
					compare(t, f, p, f.Load(rho), seed)
				})
			}
		}
	}
}

func compare(t *testing.T, f sim.Farm, p sim.Policy, w sim.Workload, seed uint64) {
	t.Helper()
	fast, err := sim.Run(f, p, w, seed)
	if err != nil {
		t.Fatal(err)
	}
	want := newSlow(f, p, w, seed).run()
	refused := 0
	for i, got := range fast.Rows {
		want := want[i]
		off := got.FCT - want.FCT
		if !got.Refused && (got.Ended-got.At != got.FCT || got.Begun <= got.At || got.Begun >= got.Ended) {
			t.Fatalf("request %d (seed %d): %+v: want arrival < begin < end, and the end after FCT", i, seed, got)
		}
		got.FCT, want.FCT, got.Begun, got.Ended = 0, 0, 0, 0
		if got != want || off > time.Microsecond || off < -time.Microsecond {
			t.Fatalf("request %d (seed %d): %+v, FCT off by %v\nwant %+v", i, seed, fast.Rows[i], off, want)
		}
		if got.Refused {
			refused++
		}
	}
	if refused != fast.Refused {
		t.Errorf("%d refused, %d rows say so (seed %d)", fast.Refused, refused, seed)
	}
}
