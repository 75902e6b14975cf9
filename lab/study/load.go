package study

import (
	"fmt"
	"math"
	"slices"
	"time"

	"proffer/lab/farm"
	"proffer/lab/sim"
)

// Load is one workload, and how much of the farm it asks for.
type Load struct {
	Rho   float64       // of the farm's capacity, on average over the requests
	End   float64       // of its capacity in the long run, at the rate of the last requests
	Lasts time.Duration // until the last request comes, on average
	Work  sim.Workload
}

// Overload reports that queues grow as long as requests come, so that every result
// depends on their number.
func (l Load) Overload() bool { return l.End >= 1 }

// Open reports whether the rate of arrivals is for At to choose; a farm file may still
// propose one.
func (s *Setting) Open() bool {
	return s.arrivals.Process == "" || s.arrivals.Process == farm.Poisson
}

// At is a Poisson stream that uses the share rho of the farm.
func (s *Setting) At(rho float64) (Load, error) {
	perSecond := rho * s.Farm.Capacity(s.Farm.Default)
	return s.load(rho, perSecond, seconds(float64(s.Farm.Default.Requests)/perSecond), sim.Poisson(perSecond))
}

// Stated is the arrivals of a farm file. False: the file has none.
func (s *Setting) Stated() (load Load, stated bool, err error) {
	a := s.arrivals
	unit := 1.0
	if a.Unit == farm.Rho {
		unit = s.Farm.Capacity(s.Farm.Default)
	}
	switch a.Process {
	case farm.Stepped:
		load, err = s.stepped(unit)
	case farm.Diurnal:
		load, err = s.diurnal(a.Low*unit, a.High*unit)
	case farm.Recorded:
		load, err = s.replay()
	default:
		if a.Rate == 0 {
			return Load{}, false, nil
		}
		load, err = s.At(a.Rate * unit / s.Farm.Capacity(s.Farm.Default))
		if a.Unit == farm.Rho {
			load, err = s.At(a.Rate) // to the last bit the load of --rho
		}
	}
	return load, true, err
}

// stepped walks through the steps until all requests have come, on average.
func (s *Setting) stepped(unit float64) (Load, error) {
	var steps []sim.Step
	for _, step := range s.arrivals.Steps {
		steps = append(steps, sim.Step{Lasting: step.Lasting, PerSecond: step.Rate * unit})
	}
	left, lasts, rate := float64(s.Farm.Default.Requests), 0.0, 0.0
	for _, step := range steps {
		rate = step.PerSecond
		come := rate * step.Lasting.Seconds()
		if step.Lasting == 0 || come >= left {
			lasts += left / rate
			break
		}
		left -= come
		lasts += step.Lasting.Seconds()
	}
	mean := float64(s.Farm.Default.Requests) / lasts
	return s.load(mean/s.Farm.Capacity(s.Farm.Default), rate, seconds(lasts), sim.Stepped(steps...))
}

// meanSwing is how far the mean rate of sim.Diurnal is from low to high.
const meanSwing = 8.0 / 15

func (s *Setting) diurnal(low, high float64) (Load, error) {
	mean := low + meanSwing*(high-low)
	lasts := seconds(float64(s.Farm.Default.Requests) / mean)
	return s.load(mean/s.Farm.Capacity(s.Farm.Default), mean, lasts, sim.Diurnal(low, high, s.arrivals.Period))
}

// replay brings as many of the recorded requests as are wanted.
func (s *Setting) replay() (Load, error) {
	list := s.recorded[:s.Farm.Default.Requests]
	lasts := list[len(list)-1]
	rate := float64(len(list)) / max(lasts, 1).Seconds()
	return s.load(rate/s.Farm.Capacity(s.Farm.Default), rate, lasts, sim.At(list))
}

// load builds a Load and rejects one that could outlast 64 bits of nanoseconds.
func (s *Setting) load(rho, end float64, lasts time.Duration, arrivals sim.Arrivals) (Load, error) {
	work, farm := s.Farm.Default, s.lasting()
	work.Arrivals = arrivals
	if lasts > longest || s.worst(farm) > 10*longest {
		return Load{}, fmt.Errorf("%d requests at %.3g of the farm's capacity can take centuries: want fewer, or shorter ones", work.Requests, rho)
	}
	return Load{Rho: round(rho, 1e9), End: round(end/farm.Capacity(work), 1e9), Lasts: lasts, Work: work}, nil
}

const longest = 10 * 365 * 24 * time.Hour

// worst is how long the requests take if all go to the slowest server.
func (s *Setting) worst(farm sim.Farm) time.Duration {
	least := farm.Servers[0]
	for _, server := range farm.Servers {
		if server.Power() < least.Power() {
			least = server
		}
	}
	alone := sim.Farm{Servers: []sim.Server{least}}
	return seconds(float64(s.Farm.Default.Requests) / alone.Capacity(s.Farm.Default))
}

func seconds(x float64) time.Duration {
	if ns := x * float64(time.Second); ns < math.MaxInt64/2 {
		return time.Duration(ns)
	}
	return math.MaxInt64
}

// lasting is the farm without the cores that background work takes for ever.
func (s *Setting) lasting() sim.Farm {
	farm := s.Farm
	farm.Servers = slices.Clone(farm.Servers)
	for _, b := range farm.Background {
		for _, i := range b.Servers {
			if cores := float64(farm.Servers[i].Cores); b.To == 0 {
				full := s.Farm.Servers[i].Power() / cores
				farm.Servers[i].Speed = farm.Servers[i].Power()/cores - full*b.Cores/cores
			}
		}
	}
	return farm
}

// round drops the digits that differ between machines.
func round(x, parts float64) float64 { return math.Round(x*parts) / parts }
