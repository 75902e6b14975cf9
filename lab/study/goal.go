package study

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"proffer/lab/stats"
)

// Goal is a number of a row and the most that it may be.
type Goal struct {
	Percentile float64 // 0: the mean
	Limit      float64 // ms
}

// ParseGoal reads a goal such as "p99<=500", "p99.9<=1.5s" or "mean<=200ms". A
// number without a unit is in ms.
func ParseGoal(text string) (Goal, error) {
	name, limit, found := strings.Cut(strings.ReplaceAll(text, " ", ""), "<=")
	var g Goal
	var err error
	if number, isPercentile := strings.CutPrefix(name, "p"); isPercentile {
		g.Percentile, err = strconv.ParseFloat(number, 64)
		found = found && err == nil && g.Percentile > 0 && g.Percentile <= 100
	} else {
		found = found && name == "mean"
	}
	if !found {
		return Goal{}, fmt.Errorf("%q: want a mean or percentile and the most it may be, such as mean<=200, p99<=500 (ms) or p99.9<=1.5s", text)
	}
	if g.Limit, err = milliseconds(limit); err != nil {
		return Goal{}, fmt.Errorf("%q: %q: want a time above 0, such as 500 (ms) or 1.5s", text, limit)
	}
	return g, nil
}

func milliseconds(text string) (float64, error) {
	ms, err := strconv.ParseFloat(text, 64)
	if err != nil {
		var d time.Duration
		d, err = time.ParseDuration(text)
		ms = float64(d) / 1e6
	}
	if err == nil && !(ms > 0 && ms < 1e12) {
		err = strconv.ErrRange
	}
	return ms, err
}

func (g Goal) String() string { return g.name() + "<=" + plain(g.Limit) }

func (g Goal) name() string {
	if g.Percentile == 0 {
		return "mean"
	}
	return "p" + plain(g.Percentile)
}

func (g Goal) percentiles() []float64 {
	if g.Percentile == 0 {
		return nil
	}
	return []float64{g.Percentile}
}

func (g Goal) of(r Row) (value, ci stats.Number) {
	if g.Percentile == 0 {
		return r.Mean, r.MeanCI
	}
	return r.Percentiles[0].Value, r.Percentiles[0].CI
}
