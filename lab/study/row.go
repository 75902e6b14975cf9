package study

import (
	"math"
	"slices"
	"time"

	"proffer/lab/sim"
	"proffer/lab/stats"
)

// Row is one policy's result at one load: means over the seeds of each run's
// mean and percentiles, in ms, and sums of the counts. A CI is half the
// width of the 95 % Student interval over seeds; with one seed there is none.
type Row struct {
	Policy   string       `json:"policy"`
	Farm     string       `json:"farm"`
	Rho      float64      `json:"rho"`
	Seeds    int          `json:"seeds"`
	Mean     stats.Number `json:"mean_ms"`
	MeanCI   stats.Number `json:"mean_ci_ms"`
	P50      stats.Number `json:"p50_ms"`
	P90      stats.Number `json:"p90_ms"`
	P90CI    stats.Number `json:"p90_ci_ms"`
	P99      stats.Number `json:"p99_ms"`
	Refused  int          `json:"refused"` // of those that count, in all runs
	Hops     stats.Number `json:"hops"`    // servers that a request visited, on average
	Events   int          `json:"events"`  // in all runs
	Speed    stats.Number `json:"events_per_s"`
	Overload bool         `json:"bounded,omitempty"` // more load than the farm can serve: see Load.Overload

	Unsettled bool   `json:"unsettled,omitempty"` // the farm still filled or learned: see settle.go
	Unjudged  string `json:"unjudged,omitempty"`  // why that is not known

	Lost      int `json:"lost,omitempty"`      // of all requests in all runs: see sim.Result
	Reset     int `json:"reset,omitempty"`     // as are these
	Recovered int `json:"recovered,omitempty"` // flows

	Percentiles []Percentile `json:"percentiles,omitempty"` // Study.Percentiles
	Groups      []Group      `json:"groups,omitempty"`      // Study.Groups
	Servers     []Server     `json:"per_server,omitempty"`  // Study.Servers

	Counted int            `json:"-"` // requests that count, in all runs
	CDF     []stats.Number `json:"-"` // Study.CDF: ms, at each of cdfShares
}

// Percentile is one that was asked for, as the row's others are.
type Percentile struct {
	Percentile float64      `json:"percentile"`
	Value      stats.Number `json:"ms"`
	CI         stats.Number `json:"ci_ms"`
}

// Group is the result of servers that a farm file lists together, all requests of all
// runs counting: the share of their power that completed requests took, the mean
// over runs, and how many requests they refused.
type Group struct {
	Group       int          `json:"group"`
	Servers     int          `json:"servers"`
	Utilisation stats.Number `json:"utilisation"`
	Served      int          `json:"served"`
	Refused     int          `json:"refused"`
}

// run is the part of a sim.Result that is kept.
type run struct {
	mean, p50, p90, p99, hops float64
	refused, counted, events  int
	lost, reset, recovered    int
	cpu                       time.Duration

	percentiles, cdf []float64 // as many as the study asks for
	groups           []Group
	servers          []Server
	course           []float64 // ms, of parts of all requests, by order of arrival
	first            int       // the first request that counts
}

func (s *Study) summary(r sim.Result, cpu time.Duration) run {
	out := run{mean: r.Mean, p50: r.P50, p90: r.P90, p99: r.P99, hops: r.Hops,
		refused: r.Refused, counted: r.Counted, events: r.Events, cpu: cpu,
		lost: r.Lost, reset: r.Reset, recovered: r.Recovered, course: r.Course, first: r.First}
	if len(s.Percentiles) > 0 || s.CDF {
		sorted := slices.Sorted(slices.Values(r.Latencies))
		out.percentiles = quantiles(sorted, s.Percentiles, 100)
		out.cdf = quantiles(sorted, s.shares(), 1)
	}
	if s.Groups {
		out.groups = s.Setting.groups(r)
	}
	if s.Servers {
		out.servers = s.Setting.servers(r)
	}
	return out
}

// quantiles of a run in which nothing was answered are NaN.
func quantiles(sorted, at []float64, of float64) []float64 {
	out := make([]float64, len(at))
	for i, q := range at {
		out[i] = math.NaN()
		if len(sorted) > 0 {
			out[i] = stats.Quantile(sorted, round(q/of, 1e12))
		}
	}
	return out
}

// groups sums up the servers of each group; of a failed run there are none.
func (s *Setting) groups(r sim.Result) []Group {
	var groups []Group
	var power []float64
	for i := range r.Served {
		server := s.Farm.Servers[i]
		for len(groups) <= server.Group {
			groups = append(groups, Group{Group: len(groups)})
			power = append(power, 0)
		}
		g := &groups[server.Group]
		g.Servers++
		g.Served += r.Served[i]
		g.Refused += r.Rejected[i]
		g.Utilisation += stats.Number(r.Busy[i] * server.Power())
		power[server.Group] += server.Power()
	}
	for i := range groups {
		groups[i].Utilisation /= stats.Number(power[i])
	}
	return groups
}

func (s *Study) row(p sim.Policy, l Load, runs []run) Row {
	row := Row{Policy: p.Name, Farm: s.Setting.Name, Rho: l.Rho, Seeds: len(runs), Overload: l.Overload()}
	var cpu time.Duration
	for _, r := range runs {
		row.Refused += r.refused
		row.Lost += r.lost
		row.Reset += r.reset
		row.Recovered += r.recovered
		row.Counted += r.counted
		row.Events += r.events
		cpu += r.cpu
	}
	row.Mean, row.MeanCI = estimate(runs, func(r run) float64 { return r.mean })
	row.P50, _ = estimate(runs, func(r run) float64 { return r.p50 })
	row.P90, row.P90CI = estimate(runs, func(r run) float64 { return r.p90 })
	row.P99, _ = estimate(runs, func(r run) float64 { return r.p99 })
	row.Hops, _ = estimate(runs, func(r run) float64 { return r.hops })
	row.Speed = stats.Number(math.Round(float64(row.Events) / cpu.Seconds()))
	for i, q := range s.Percentiles {
		p := Percentile{Percentile: q}
		p.Value, p.CI = estimate(runs, func(r run) float64 { return r.percentiles[i] })
		row.Percentiles = append(row.Percentiles, p)
	}
	for i := range s.shares() {
		value, _ := estimate(runs, func(r run) float64 { return r.cdf[i] })
		row.CDF = append(row.CDF, value)
	}
	row.Groups, row.Servers = sumGroups(runs), sumServers(runs)
	if !row.Overload {
		row.Unsettled, row.Unjudged = s.Setting.settled(l, runs)
	}
	return row
}

// sumGroups adds up the groups' results of all runs.
func sumGroups(runs []run) []Group {
	all := slices.Clone(runs[0].groups)
	for i := range all {
		all[i].Utilisation, _ = estimate(runs, func(r run) float64 { return float64(r.groups[i].Utilisation) })
		for _, r := range runs[1:] {
			all[i].Served += r.groups[i].Served
			all[i].Refused += r.groups[i].Refused
		}
	}
	return all
}

// estimate is the mean of one number over the runs, and half its interval. Both
// are rounded to a millionth: a library's last bit differs between machines, a
// result must not.
func estimate(runs []run, value func(run) float64) (mean, half stats.Number) {
	x := of(runs, value)
	return stats.Number(round(stats.Mean(x), 1e6)), stats.Number(round(stats.Half95(x), 1e6))
}
