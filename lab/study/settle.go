package study

import (
	"math"

	"proffer/lab/stats"
)

// A run begins with an empty farm. If that shows in the requests that count, the mean is
// that of a farm that fills, and its interval, which comes from the scatter of
// the seeds, does not tell: all seeds are wrong alike. So the requests that count are
// cut into batches, in order of arrival, and their halves are compared.

// settleBatches is how many batches a run is cut into.
const settleBatches = 200

// unsettled reports that the times of the runs had not settled: over the seeds, the
// second half of the requests took longer or less long than the first, by more than the
// difference's 95 % interval and by more than twice that of the mean, which half of
// the difference would push out of its interval. One seed has no interval; it is
// unsettled if the marginal standard error rule finds its warm-up to be the longer part.
func unsettled(runs []run) bool {
	means, by, sum := make([]float64, len(runs)), make([]float64, len(runs)), 0.0
	for i, r := range runs {
		if len(r.batches) < settleBatches {
			return false
		}
		means[i], by[i] = r.mean, rise(r.batches)
		sum += by[i]
	}
	if len(runs) == 1 {
		return 2*stats.WarmUp(runs[0].batches) > settleBatches
	}
	drift := math.Abs(sum) / float64(len(runs))
	return drift > stats.Half95(by) && drift > 2*stats.Half95(means)
}

// rise is the mean of the second half of a series less that of the first.
func rise(series []float64) float64 {
	half, sum := len(series)/2, 0.0
	for i := range half {
		sum += series[len(series)-half+i] - series[i]
	}
	return sum / float64(half)
}
