package load

import (
	"fmt"
	"slices"
	"time"

	"proffer/stats"
)

// Schedule tells how late the generator sent its requests: Started − Intended.
type Schedule struct {
	P50, P99, Max time.Duration
	Limit         time.Duration // the largest P99 with which a result may be claimed
}

// ScheduleOf judges the rows of a run; who sends nothing is on time.
func ScheduleOf(rows []Row) Schedule {
	if len(rows) == 0 {
		return Schedule{}
	}
	lags := make([]float64, len(rows))
	var services time.Duration
	for i, r := range rows {
		lags[i] = float64(r.Started - r.Intended)
		services += r.Service
	}
	slices.Sort(lags)
	return Schedule{
		P50:   time.Duration(stats.Quantile(lags, 0.50)),
		P99:   time.Duration(stats.Quantile(lags, 0.99)),
		Max:   time.Duration(stats.Quantile(lags, 1)),
		Limit: lagLimit(services / time.Duration(len(rows))),
	}
}

// lagLimit is 10 % of the mean service, but what a general-purpose kernel can
// hold is not asked to be better than 1 ms.
func lagLimit(meanService time.Duration) time.Duration {
	return max(time.Millisecond, meanService/10)
}

// Kept is nil if the requests left on time. Otherwise the arrivals were not the
// ones asked for, and no result of the run may be claimed.
func (s Schedule) Kept() error {
	if s.P99 <= s.Limit {
		return nil
	}
	return fmt.Errorf("the generator could not keep its schedule: one request in a hundred left more than %v late (allowed: %v, worst: %v), so no result is claimed; ask for less load or free the machine",
		s.P99.Round(time.Microsecond), s.Limit, s.Max.Round(time.Microsecond))
}
