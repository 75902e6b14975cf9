package traffic

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"proffer/lab/stats"
)

// ErrLate is in the error of a run with requests that did not leave on time.
var ErrLate = errors.New("the generator could not keep its schedule")

// Schedule states how late the generator sent its requests: Started − Intended.
type Schedule struct {
	Mean, P50, P99, Max time.Duration
	MeanLimit, P99Limit time.Duration // the largest with which a result may be claimed
}

// ScheduleOf judges the rows of a run; a generator that sends nothing is on time.
func ScheduleOf(rows []Row) Schedule {
	if len(rows) == 0 {
		return Schedule{}
	}
	lags := make([]float64, len(rows))
	var late, services time.Duration
	for i, r := range rows {
		lags[i] = float64(r.Started - r.Intended)
		late += r.Started - r.Intended
		services += r.Service
	}
	slices.Sort(lags)
	n := time.Duration(len(rows))
	s := Schedule{
		Mean: late / n,
		P50:  time.Duration(stats.Quantile(lags, 0.50)),
		P99:  time.Duration(stats.Quantile(lags, 0.99)),
		Max:  time.Duration(stats.Quantile(lags, 1)),
	}
	return s.For(services / n)
}

// For is the schedule of requests of another mean service time.
func (s Schedule) For(service time.Duration) Schedule {
	s.MeanLimit, s.P99Limit = limits(service)
	return s
}

// limits are the largest lags with which a result may be claimed, of requests of a mean service
// time. The mean lag adds to every mean that is reported; the tail changes the arrivals
// themselves. A general-purpose kernel is not asked for better than 0.1 and 1 ms.
func limits(service time.Duration) (mean, p99 time.Duration) {
	return max(time.Millisecond/10, service/50), max(time.Millisecond, service/4)
}

// hopes tells while a run goes on whether it can still keep its schedule.
type hopes struct {
	total     int // requests of the run
	mean, p99 time.Duration
	late      int // of those sent: later than p99
	sum       time.Duration
}

func hopesOf(requests []Request) *hopes {
	h := &hopes{total: len(requests)}
	if h.total == 0 {
		return h
	}
	var services time.Duration
	for _, r := range requests {
		services += r.Service
	}
	h.mean, h.p99 = limits(services / time.Duration(h.total))
	return h
}

// sent adds a request that has left.
func (h *hopes) sent(lag time.Duration) {
	h.sum += lag
	if lag > h.p99 {
		h.late++
	}
}

// lost returns true if the schedule is not kept even if all later requests leave on time.
func (h *hopes) lost() bool {
	return h.sum > h.mean*time.Duration(h.total) || 100*h.late > h.total
}

// Kept is nil if the requests left on time. Otherwise the arrivals were not the
// ones asked for, and no result of the run may be claimed.
func (s Schedule) Kept() error {
	if s.Mean <= s.MeanLimit && s.P99 <= s.P99Limit {
		return nil
	}
	us := func(d time.Duration) time.Duration { return d.Round(time.Microsecond) }
	return fmt.Errorf("%w: requests left %v late in the mean (allowed: %v), one in a hundred more than %v (allowed: %v), the latest %v, so no result is claimed; ask for less load or free the machine",
		ErrLate, us(s.Mean), us(s.MeanLimit), us(s.P99), us(s.P99Limit), us(s.Max))
}
