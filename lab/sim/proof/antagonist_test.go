package proof

import (
	"math"
	"slices"
	"testing"
	"time"

	"proffer/lab/sim"
	"proffer/lab/sim/policies"
)

// TestAntagonistsTakeTheirShare: a run of antagonists that never are idle is one of
// servers that are as much slower; and rho is of the mean capacity.
func TestAntagonistsTakeTheirShare(t *testing.T) {
	f := queueOf(oneCore, sim.Exponential(service10))
	f.Antagonists = sim.Antagonists{Every: time.Second, Least: 0.5, Most: 0.5}
	assertMean(t, f, 0.6, 2*serviceMean/(1-0.6))
	f.Antagonists = sim.Antagonists{Every: 10 * time.Second, Idle: 0.5, Least: 0.2, Most: 0.8}
	if got, want := f.Capacity(f.Default), 75.0; math.Abs(got-want) > 1e-9 {
		t.Errorf("a server of 100 requests a second serves %v beside antagonists, want %v", got, want)
	}
}

// TestAntagonistsDraw: the shares have the distribution that was asked for, over time.
func TestAntagonistsDraw(t *testing.T) {
	f := sim.FarmA()
	f.Antagonists = sim.Antagonists{Every: time.Second, Idle: 0.5, Least: 0.2, Most: 0.8}
	e := sim.NewEngine(f, mustParse(t, "rr"), f.Load(0.5), 3)
	idle, sum, n := 0.0, 0.0, 0.0
	for next := int64(0); e.Step(); {
		if e.Instant < next {
			continue
		}
		next = e.Instant + int64(time.Second)
		for i, share := range e.Rival.Share {
			if got, want := e.Stations[i].Speed, 1-share; math.Abs(got-want) > 1e-12 {
				t.Fatalf("server %d runs at %v beside a share of %v (seed 3)", i, got, share)
			}
			if share != 0 && (share < 0.2 || share > 0.8) {
				t.Fatalf("server %d has a share of %v (seed 3)", i, share)
			}
			n++
			sum += share
			if share == 0 {
				idle++
			}
		}
	}
	if math.Abs(idle/n-0.5) > 0.02 || math.Abs(sum/n-0.25) > 0.01 {
		t.Errorf("idle %.3f of the time, a mean share of %.3f (seed 3): want .5 and .25", idle/n, sum/n)
	}
}

// TestOracleFFollowsOtherWork: beside other work a FIFO server's cores are free when
// oraclef has them free, as a recount of its queue shows after every event.
func TestOracleFFollowsOtherWork(t *testing.T) {
	f := ownSpeeds(8, sim.FIFO)
	for i := range f.Servers {
		f.Servers[i].Cores, f.Servers[i].Backlog = 1+i%3, 1<<20
	}
	f.HopMin, f.HopMax = 0, 0 // oraclef takes a request on its way for begun
	f.Antagonists = sim.Antagonists{Every: 3 * time.Second, Idle: 0.5, Least: 0.2, Most: 0.8}
	f.Background = []sim.Background{{Servers: []int{1, 2}, From: 5 * time.Second, To: 20 * time.Second, Cores: 0.9}}
	f.Default.Requests = 5000
	e := sim.NewEngine(f, mustParse(t, "oraclef"), f.Load(0.8), 4)
	queued := 0
	for e.Step() {
		for i := range e.Stations {
			s := &e.Stations[i]
			if s.Present() != e.Servers[i].Assigned { // one is on its way
				continue
			}
			queued += int(s.Waiting)
			for core, want := range freeByQueue(e, s) {
				got := max(e.Chooser.(*policies.Finisher).Free[i][core], float64(e.Instant))
				if math.Abs(got-want) > 1000 {
					t.Fatalf("at %v core %d of server %d is free in %.0f ns, by its queue in %.0f (seed 4)", e.Now(), core, i, got-float64(e.Instant), want-float64(e.Instant))
				}
			}
		}
	}
	if queued == 0 || e.Result.Rejected > 0 {
		t.Errorf("%d waited, %d were refused (seed 4): want some and none", queued, e.Result.Rejected)
	}
}

// freeByQueue is when the cores of a FIFO station will be free at its present speed, the
// first one first.
func freeByQueue(e *sim.Engine, s *sim.Station) []float64 {
	now := float64(e.Instant)
	free := slices.Repeat([]float64{now}, int(s.Cores))
	attained := s.Attained + (now-float64(s.At))*s.Rate
	for core, j := range s.Running {
		free[core] += (j.Finish - attained) / s.Speed
	}
	for i, n := s.Head, s.Waiting; n > 0; n-- {
		r := &e.Requests.All[i]
		slices.Sort(free)
		free[0] += r.Demand / s.Speed
		i = r.Next
	}
	slices.Sort(free)
	return free
}

// TestOracleFBesideAntagonists: it is no worse there than a policy that counts requests.
func TestOracleFBesideAntagonists(t *testing.T) {
	f, err := sim.FarmB("hom")
	if err != nil {
		t.Fatal(err)
	}
	f.Antagonists = sim.Antagonists{Every: 10 * time.Second, Idle: 0.5, Least: 0.2, Most: 0.8}
	jsq, oraclef := mustRun(t, f, mustParse(t, "jsq"), f.Load(0.9), 1), mustRun(t, f, mustParse(t, "oraclef"), f.Load(0.9), 1)
	if oraclef.Mean > jsq.Mean || oraclef.Refused > 0 {
		t.Errorf("oraclef has a mean of %.1f ms with %d refused, jsq %.1f (seed 1)", oraclef.Mean, oraclef.Refused, jsq.Mean)
	}
}

// TestGaugeFeelsAntagonists: the mean service time that a server of guided reports is
// that at its present speed.
func TestGaugeFeelsAntagonists(t *testing.T) {
	f := queueOf(oneCore, sim.Deterministic(service10))
	for range 3 {
		f.Servers = append(f.Servers, f.Servers[0])
	}
	f.Antagonists = sim.Antagonists{Every: time.Hour, Least: 0.5, Most: 0.5}
	e := sim.NewEngine(f, mustParse(t, "guided"), f.Load(0.3), 1)
	e.Loop()
	for i, g := range e.Offerer.(*policies.Guided).Gauges {
		if math.Abs(g.Mean-20e6) > 1 {
			t.Errorf("server %d: the gauge shows %v ns at half the speed, want 20 ms", i, g.Mean)
		}
	}
}
