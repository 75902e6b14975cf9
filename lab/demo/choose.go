package demo

import (
	"context"
	"math"
	"slices"
	"time"

	"proffer/lab/farmrun"
)

// A load that is not given is chosen: by what this machine was seen to send on time, and so that measuring
// and all runs end within two minutes.

const (
	within = 2 * time.Minute
	spare  = 8 * time.Second // for runs that take longer than planned

	share        = 0.7 // of the highest rate that was kept
	lowestRate   = 10.0
	mostRequests = 30000
	shortestMean = 10 * time.Millisecond
	longestMean  = 2 * time.Second
	usualMean    = 100 * time.Millisecond // a longer mean lets a run see few services: rather fewer servers
	// drained is how many mean services the last request of a run may take.
	drained   = 40
	slowdowns = 3
)

// fewest requests make a row.
const fewest = 100

// MostServers are chosen: SRLB's.
const MostServers = 12

// farms are the numbers of servers to choose from.
var farms = []int{MostServers, 8, 4}

// Given reports whether the whole load is given.
func (e Experiment) Given() bool { return e.Servers > 0 && e.Mean > 0 && e.Requests > 0 }

// Choose measures this machine and completes the load.
func (e Experiment) Choose(ctx context.Context) (Experiment, farmrun.Ability, error) {
	e.until = time.Now().Add(within)
	t := farmrun.Trial{Kinds: e.Kinds, LBs: e.LBs, Load: e.Load, Programs: e.Programs}
	if t.Servers == 0 {
		t.Servers = MostServers
	}
	able, err := t.Measure(ctx)
	if err != nil {
		return e, able, err
	}
	return e.Fit(able, time.Until(e.until)), able, nil
}

// Fit completes the load for a machine of that ability and the time that is left.
func (e Experiment) Fit(able farmrun.Ability, left time.Duration) Experiment {
	rate := share * able.Rate
	if !(rate > lowestRate) { // nor a number
		rate = lowestRate
	}
	if e.Servers == 0 {
		e.Servers = e.serversAt(rate)
	}
	e.around = max(able.Around, farmrun.AroundRun)
	e.chosenMean, e.chosenRequests = e.Mean == 0, e.Requests == 0
	if e.chosenMean {
		e.Mean = e.meanAt(rate)
	}
	return e.fill(left)
}

// serversAt is the largest farm whose services are not long at a rate.
func (e Experiment) serversAt(rate float64) int {
	if e.Fast > 0 || e.Mean > 0 {
		return MostServers // the number of fast servers is of that; a mean leaves nothing to choose
	}
	for _, n := range farms {
		if e.Servers = n; e.meanAt(rate) <= usualMean {
			return n
		}
	}
	return slices.Min(farms)
}

// meanAt is the mean service time with which requests at a rate are the load, in round numbers.
func (e Experiment) meanAt(rate float64) time.Duration {
	ms := e.Load * e.Capacity() / rate * 1e3
	step := 1.0
	for limit := 50.0; ms > limit; limit *= 10 {
		step *= 10
	}
	d := time.Duration(math.Ceil(ms/step)*step) * time.Millisecond
	return min(max(d, shortestMean), longestMean)
}

// fill has as many requests as the time that is left has room for.
func (e Experiment) fill(left time.Duration) Experiment {
	if !e.chosenRequests {
		return e
	}
	each := (left-spare)/time.Duration(max(len(e.Policies), 1)) - e.aroundRun()
	n := int(min(max(e.rate()*each.Seconds(), fewest), mostRequests))
	e.Requests = n - n%fewest
	return e
}

// slower is the experiment with half the requests a second.
func (e Experiment) slower() Experiment {
	e.Mean *= 2
	return e.fill(time.Until(e.until))
}

// maySlow reports whether a late run shows that the load was chosen too high, which can be mended.
func (e Experiment) maySlow() bool { return e.chosenMean && 2*e.Mean <= longestMean }

// inTime reports whether a run may be made again with as many runs after it.
func (e Experiment) inTime(after int) bool {
	return e.until.IsZero() || time.Until(e.until) > time.Duration(after+1)*(e.runDuration()+e.aroundRun())
}

// aroundRun is what a run takes beside its arrivals: daemons, and the last answers.
func (e Experiment) aroundRun() time.Duration {
	return max(e.around, farmrun.AroundRun) + min(drained*e.Mean, 10*time.Second)
}
