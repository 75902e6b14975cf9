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
	return Schedule{
		Mean: late / n,
		P50:  time.Duration(stats.Quantile(lags, 0.50)),
		P99:  time.Duration(stats.Quantile(lags, 0.99)),
		Max:  time.Duration(stats.Quantile(lags, 1)),
		// The mean lag adds to every mean that is reported; the tail changes
		// the arrivals themselves. A general-purpose kernel is not asked for
		// better than 0.1 and 1 ms.
		MeanLimit: max(time.Millisecond/10, services/n/50),
		P99Limit:  max(time.Millisecond, services/n/4),
	}
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
