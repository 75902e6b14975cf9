package study

import (
	"math"
	"time"

	"proffer/lab/sim"
	"proffer/lab/stats"
)

// Row is what one policy did at one load: means over the seeds of each run's
// mean and percentiles, in ms, and sums of what is counted. A CI is half the
// width of the 95 % Student interval over seeds; with one seed there is none.
type Row struct {
	Policy   string  `json:"policy"`
	Farm     string  `json:"farm"`
	Rho      float64 `json:"rho"`
	Seeds    int     `json:"seeds"`
	Mean     Number  `json:"mean_ms"`
	MeanCI   Number  `json:"mean_ci_ms"`
	P50      Number  `json:"p50_ms"`
	P90      Number  `json:"p90_ms"`
	P90CI    Number  `json:"p90_ci_ms"`
	P99      Number  `json:"p99_ms"`
	Refused  int     `json:"refused"` // of those that count, in all runs
	Hops     Number  `json:"hops"`    // servers that a request visited, on average
	Events   int     `json:"events"`  // in all runs
	Speed    Number  `json:"events_per_s"`
	Overload bool    `json:"bounded,omitempty"` // more load than the farm can serve: see Load.Overload

	Counted int `json:"-"` // requests that count, in all runs
}

// run is what is kept of a sim.Result.
type run struct {
	mean, p50, p90, p99, hops float64
	refused, counted, events  int
	cpu                       time.Duration
}

func summary(r sim.Result, cpu time.Duration) run {
	return run{r.Mean, r.P50, r.P90, r.P99, r.Hops, r.Refused, r.Counted, r.Events, cpu}
}

func newRow(s *Setting, p sim.Policy, l Load, runs []run) Row {
	row := Row{Policy: p.Name, Farm: s.Name, Rho: l.Rho, Seeds: len(runs), Overload: l.Overload()}
	var cpu time.Duration
	for _, r := range runs {
		row.Refused += r.refused
		row.Counted += r.counted
		row.Events += r.events
		cpu += r.cpu
	}
	row.Mean, row.MeanCI = estimate(runs, func(r run) float64 { return r.mean })
	row.P50, _ = estimate(runs, func(r run) float64 { return r.p50 })
	row.P90, row.P90CI = estimate(runs, func(r run) float64 { return r.p90 })
	row.P99, _ = estimate(runs, func(r run) float64 { return r.p99 })
	row.Hops, _ = estimate(runs, func(r run) float64 { return r.hops })
	row.Speed = Number(math.Round(float64(row.Events) / cpu.Seconds()))
	return row
}

// estimate is the mean of one number over the runs, and half its interval. Both
// are rounded to a millionth: a library's last bit differs between machines, a
// result must not.
func estimate(runs []run, of func(run) float64) (mean, half Number) {
	x := make([]float64, len(runs))
	sum := 0.0
	for i, r := range runs {
		x[i] = of(r)
		sum += x[i]
	}
	return Number(round(sum/float64(len(x)), 1e6)), Number(round(stats.Half95(x), 1e6))
}
