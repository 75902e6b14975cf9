package study

import (
	"fmt"
	"math"

	"proffer/lab/farm"
	"proffer/lab/sim"
	"proffer/lab/stats"
)

// A run begins with an empty farm. If that shows in the requests that count, the mean is
// that of a farm that fills, and its interval, which comes from the scatter of
// the seeds, does not show it: all seeds are wrong alike. So all requests of a run, from time 0 on,
// are cut into parts, and each part is averaged over the seeds (Welch, The Statistical Analysis
// of Simulation Results, 1983). The marginal standard error rule finds the warm-up in that
// course (stats.WarmUp).

const (
	// longestWarmUp is the share of a run above which the run is too short to show where its
	// warm-up ends, whatever counts of it. White has a half; but the course of a farm that needs
	// the whole run, such as single on farm A at .95, has a warm-up of .3 to .6 in runs of
	// 80,000 requests, and farms that are settled by then .16 at most.
	longestWarmUp = 0.2

	// With fewer seeds or requests in all runs, scatter hides a warm-up of any length.
	fewestSeeds    = 3
	fewestRequests = 40_000
)

// settled reports that the times of the runs had not settled, or else why that is not known.
func (s *Setting) settled(l Load, runs []run) (unsettled bool, unjudged string) {
	switch {
	case s.alike():
		return false, "the requests are of a trace, and seeds, of which ± is, differ in hops and flow hashes alone"
	case s.replays():
		return false, "the requests are of a trace"
	case !s.Open():
		return false, "the rate of arrivals changes"
	case s.changes():
		return false, "the farm changes"
	case unsettledRuns(runs, l.Work.Requests):
		return true, ""
	case len(runs) < fewestSeeds:
		return false, fmt.Sprintf("fewer than %d seeds", fewestSeeds)
	case len(runs)*l.Work.Requests < fewestRequests:
		return false, fmt.Sprintf("fewer than %d requests in all runs", fewestRequests)
	case math.IsNaN(stats.Mean(of(runs, func(r run) float64 { return r.mean + stats.Mean(r.course) }))):
		return false, "no request of some part has a time"
	}
	return false, ""
}

// unsettledRuns: over the seeds, the times after the warm-up differ from those in it by more
// than the difference's 95 % interval; and either it is too long a part of the run, or
// requests of it count and the mean differs from the times after it by more than the mean's interval.
func unsettledRuns(runs []run, requests int) bool {
	course := make([]float64, len(runs[0].course))
	for i := range course {
		course[i] = stats.Mean(of(runs, func(r run) float64 { return r.course[i] }))
	}
	warmUp := stats.WarmUp(course)
	if warmUp == 0 {
		return false
	}
	after := func(r run) float64 { return stats.Mean(r.course[warmUp:]) }
	if !differs(of(runs, func(r run) float64 { return after(r) - stats.Mean(r.course[:warmUp]) })) {
		return false
	}
	share := float64(warmUp) / float64(len(course))
	if share >= longestWarmUp {
		return true
	}
	bias := of(runs, func(r run) float64 { return after(r) - r.mean })
	return stats.Mean(of(runs, func(r run) float64 { return float64(r.first) })) < share*float64(requests) &&
		differs(bias) && math.Abs(stats.Mean(bias)) > stats.Half95(of(runs, func(r run) float64 { return r.mean }))
}

func of(runs []run, value func(run) float64) []float64 {
	x := make([]float64, len(runs))
	for i, r := range runs {
		x[i] = value(r)
	}
	return x
}

// differs: the 95 % interval of the mean leaves 0 out. That of one value never does.
func differs(x []float64) bool { return math.Abs(stats.Mean(x)) > stats.Half95(x) }

// replays: a trace has some of the requests' times, so that its own scatter is in the course.
func (s *Setting) replays() bool {
	w := s.Farm.Default
	return s.arrivals.Process == farm.Recorded || w.Service.Kind == sim.ListedKind || w.IO.Kind == sim.ListedKind || s.Farm.ClientRTT.Kind == sim.ListedKind
}

// alike: seeds differ in hops and flow hashes alone, since all else is of a trace or constant.
func (s *Setting) alike() bool {
	fixed := s.arrivals.Process == farm.Recorded && s.Farm.Antagonists.Every == 0 && s.Farm.Flood.Times == 0
	for _, d := range []sim.Distribution{s.Farm.Default.Service, s.Farm.Default.IO, s.Farm.ClientRTT} {
		fixed = fixed && (d.Kind == sim.ListedKind || d.Kind == sim.DeterministicKind)
	}
	return fixed
}

// changes: the servers or LBs of a run change at a stated instant.
func (s *Setting) changes() bool {
	for _, b := range s.Farm.Background {
		if b.From > 0 || b.To > 0 {
			return true
		}
	}
	return len(s.Farm.Events) > 0
}
