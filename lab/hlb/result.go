package hlb

import (
	"context"
	"math"
	"time"

	"proffer/lab/farmrun"
	"proffer/lab/stats"
	"proffer/lab/traffic"
)

// result is the outcome of a cell.
type result struct {
	cell     cell
	row      Run
	requests []request // all, in order
	kinds    farmrun.Kinds
	busy     farmrun.Loads
	beliefs  []belief
	from     float64 // seconds; before, nothing counts
}

// request is an answered request.
type request struct {
	at, took     float64 // seconds
	fast, static bool
}

// Run sums up the requests of a run that count, times in seconds.
type Run struct {
	Policy   string  `json:"policy"`
	LBs      int     `json:"lbs"`
	Cores    int     `json:"cores"` // of a server of the second group; one of the first has one
	Load     float64 `json:"load"`
	Kind     string  `json:"requests"` // their kind
	Course   string  `json:"course"`
	RTT      int     `json:"rtt_ms"`
	Answered int     `json:"answered"`
	Failed   int     `json:"failed"` // refusals, resets, timeouts and errors, of the whole run
	Mean     float64 `json:"mean_s"`
	SD       float64 `json:"sd_s"`
	P50      float64 `json:"p50_s"`
	P90      float64 `json:"p90_s"`
	P99      float64 `json:"p99_s"`
	SlowMean float64 `json:"slow_mean_s"` // of the first group's answers
	FastMean float64 `json:"fast_mean_s"` // and of the second's
	Fast     float64 `json:"fast_share"`  // of the answers: those by the second group
	Queue    float64 `json:"fast_queue_share"`
	Weights  float64 `json:"weights_ratio"` // second group over first, at the LBs; 0: they have none
	Fidelity float64 `json:"fidelity"`      // mean over that of an exact replay; 0 where speeds change, or round trips are added
}

// run makes the run of a cell.
func (r *run) run(ctx context.Context, c cell) (*result, error) {
	p, err := farmrun.ParseCompared(c.policy)
	if err != nil {
		return nil, err
	}
	asked, w := r.arrivals(c), &watch{Experiment: r.Experiment, cell: c}
	result, err := farmrun.Web{
		Kinds: r.kinds(c), Policy: p, Weights: r.weights(c, p.Inverted), Programs: r.Programs,
		Requests: r.requests(asked.all), Watch: w.watch, Quit: 1,
		Progress: func(done, total int) {
			r.step(c.String())
		},
	}.Run(ctx, r.bed)
	if err != nil {
		return nil, err
	}
	if result.Late != nil {
		return nil, result.Late
	}
	return r.result(c, result, asked.static, w.beliefs), nil
}

// result keeps the parts of a run that the figures need.
func (e Experiment) result(c cell, run *farmrun.Result, static []bool, beliefs []belief) *result {
	h := &result{cell: c, kinds: run.Kinds, busy: run.Loads, beliefs: beliefs, from: c.warm(e).Seconds()}
	failed := int(max(run.Drops.SYNRetransmits, run.Drops.ListenDrops))
	for _, row := range run.Rows {
		if row.Outcome != traffic.OK {
			failed++
			continue
		}
		h.requests = append(h.requests, request{
			at: row.Intended.Seconds(), took: row.Latency().Seconds(), fast: inSecond(h.kinds, farmrun.ServerIndex(row.Server)), static: static[row.ID],
		})
	}
	h.sum(failed)
	if c.course != slowed && c.rtt == 0 {
		h.row.Fidelity = traffic.Fidelity(run.Rows, run.Kinds.Named)
	}
	return h
}

// inSecond reports whether a server is in the second half, which has more cores or not.
func inSecond(k farmrun.Kinds, i int) bool { return i >= k.Servers/2 }

// sum fills in the row.
func (h *result) sum(failed int) {
	c := h.cell
	h.row = Run{Policy: c.policy, LBs: c.lbs, Cores: c.ratio, Load: c.load, Kind: string(c.kind), Course: string(c.course), RTT: c.rtt, Failed: failed}
	all := h.taken(func(request) bool { return true })
	slow := h.taken(func(r request) bool { return !r.fast })
	quick := h.taken(func(r request) bool { return r.fast })
	s, row := stats.Summarize(all), &h.row
	row.Answered = len(all)
	row.Mean, row.P50, row.P90, row.P99 = stats.OrZero(s.Mean), stats.OrZero(s.P50), stats.OrZero(s.P90), stats.OrZero(s.P99)
	row.SD = stats.Deviation(all)
	row.SlowMean, row.FastMean = stats.OrZero(stats.Summarize(slow).Mean), stats.OrZero(stats.Summarize(quick).Mean)
	row.Fast = float64(len(quick)) / float64(max(len(all), 1))
	row.Queue = h.queueShare()
	row.Weights = h.weightsRatio(h.from, math.Inf(1))
}

// taken are the times of requests that count.
func (h *result) taken(which func(request) bool) (all []float64) {
	for _, r := range h.requests {
		if r.at >= h.from && which(r) {
			all = append(all, r.took)
		}
	}
	return all
}

// busyOf calls f with the requests in hand of all servers, at each instant that counts.
func (h *result) busyOf(f func(seconds float64, busy []float64)) {
	last := 0.0
	if n := len(h.requests); n > 0 {
		last = h.requests[n-1].at
	}
	for i, at := range h.busy.Seconds {
		if at >= h.from && at <= last {
			f(at, h.busy.Servers[i])
		}
	}
}

// queueShare is that of the second group of all requests in hand.
func (h *result) queueShare() float64 {
	var second, all float64
	h.busyOf(func(_ float64, busy []float64) {
		for i, n := range busy {
			all += n
			if inSecond(h.kinds, i) {
				second += n
			}
		}
	})
	return second / max(all, 1)
}

// weightsRatio is that of the groups at the LBs, mean over them and over a time; 0: there is none.
func (h *result) weightsRatio(from, to float64) float64 {
	sum, n := 0.0, 0
	for _, b := range h.beliefs {
		if b.seconds < from || b.seconds >= to {
			continue
		}
		if ratio := h.groups(b.weights()); ratio > 0 {
			sum += ratio
			n++
		}
	}
	return sum / float64(max(n, 1))
}

// groups is the sum of the second group's values over that of the first; 0 if that has none.
func (h *result) groups(values []float64) float64 {
	var first, second float64
	for i, v := range values {
		if inSecond(h.kinds, i) {
			second += v
		} else {
			first += v
		}
	}
	if first == 0 {
		return 0
	}
	return second / first
}

// leastMove is the least part by which weights that follow a change have moved.
const leastMove = 0.1

// followed is how long after the servers were slowed the weights took for nine tenths of their
// way: from their mean over the third of the time before to that of the last third. If they stay,
// that is all the time there was.
func (h *result) followed(at time.Duration) float64 {
	change := at.Seconds()
	before, after := h.weightsRatio(change*2/3, change), h.weightsRatio(change*5/3, change*2)
	if math.Abs(after-before) < leastMove*before {
		return change
	}
	goal := before + 0.9*(after-before)
	for t := change; t < 2*change; t += askEvery.Seconds() {
		now := h.weightsRatio(t, t+askEvery.Seconds())
		if now > 0 && (now-goal)*(after-before) >= 0 {
			return t + askEvery.Seconds() - change
		}
	}
	return change
}
