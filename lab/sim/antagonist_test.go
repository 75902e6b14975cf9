package sim

import (
	"math"
	"testing"
	"time"
)

// TestAntagonistsTakeTheirShare: a run of antagonists that never are idle is one of
// servers that are as much slower; and rho is of the mean capacity.
func TestAntagonistsTakeTheirShare(t *testing.T) {
	f := queueOf(oneCore, Exponential(service10))
	f.Antagonists = Antagonists{Every: time.Second, Least: 0.5, Most: 0.5}
	assertMean(t, f, 0.6, 2*serviceMean/(1-0.6))
	f.Antagonists = Antagonists{Every: 10 * time.Second, Idle: 0.5, Least: 0.2, Most: 0.8}
	if got, want := f.Capacity(f.Default), 75.0; math.Abs(got-want) > 1e-9 {
		t.Errorf("a server of 100 requests a second serves %v beside antagonists, want %v", got, want)
	}
}

// TestAntagonistsDraw: the shares have the distribution that was asked for, over time.
func TestAntagonistsDraw(t *testing.T) {
	f := FarmA()
	f.Antagonists = Antagonists{Every: time.Second, Idle: 0.5, Least: 0.2, Most: 0.8}
	e := newEngine(f, mustParse(t, "rr"), f.Load(0.5), 3)
	idle, sum, n := 0.0, 0.0, 0.0
	for next := int64(0); e.step(); {
		if e.now < next {
			continue
		}
		next = e.now + int64(time.Second)
		for i, share := range e.rival.share {
			if got, want := e.stations[i].speed, 1-share; math.Abs(got-want) > 1e-12 {
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

// TestGaugeFeelsAntagonists: the mean service time that a server of guided reports is
// that at its present speed.
func TestGaugeFeelsAntagonists(t *testing.T) {
	f := queueOf(oneCore, Deterministic(service10))
	for range 3 {
		f.Servers = append(f.Servers, f.Servers[0])
	}
	f.Antagonists = Antagonists{Every: time.Hour, Least: 0.5, Most: 0.5}
	e := newEngine(f, mustParse(t, "guided"), f.Load(0.3), 1)
	e.loop()
	for i, g := range e.offerer.(*guided).gauges {
		if math.Abs(g.mean-20e6) > 1 {
			t.Errorf("server %d: the gauge shows %v ns at half the speed, want 20 ms", i, g.mean)
		}
	}
}
