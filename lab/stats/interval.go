package stats

import (
	"math"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// MaxBatches is the number of batches of a long run. More than 30 narrow the
// interval hardly at all and make the batches shorter, thus more correlated
// (Schmeiser, Batch size effects in the analysis of simulation output, 1982).
const MaxBatches = 30

// Interval is a mean and the half-width of its 95 % confidence interval, in the
// unit of the sample.
type Interval struct {
	Mean, Half float64
	Batches    int
}

// MeanCI95 estimates the mean of latencies that are in order of arrival. Such
// neighbours share a queue, so their own scatter would promise far too narrow an
// interval; the means of long batches are nearly independent, and Student's t
// with Batches − 1 degrees of freedom is taken over those.
//
// Values that do not fill a batch are left out at the front, where the queues were
// still filling; the mean is over all values. Fewer than two values have no
// scatter: Half is then +Inf.
func MeanCI95(latencies []float64) Interval {
	batches := min(MaxBatches, len(latencies))
	if batches < 2 {
		return Interval{Mean: stat.Mean(latencies, nil), Half: math.Inf(1), Batches: batches}
	}
	return Interval{
		Mean:    stat.Mean(latencies, nil),
		Half:    Half95(batchMeans(latencies, batches)),
		Batches: batches,
	}
}

// Half95 is the half-width of the 95 % confidence interval of the mean of
// independent values, such as the results of runs with different seeds: Student's
// t with one degree of freedom less than there are values. Of fewer than two it
// is +Inf.
func Half95(independent []float64) float64 {
	n := float64(len(independent))
	if n < 2 {
		return math.Inf(1)
	}
	student := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: n - 1}
	return student.Quantile(0.975) * stat.StdDev(independent, nil) / math.Sqrt(n)
}

func batchMeans(x []float64, batches int) []float64 {
	size := len(x) / batches
	x = x[len(x)-batches*size:]
	means := make([]float64, batches)
	for i := range means {
		means[i] = stat.Mean(x[i*size:(i+1)*size], nil)
	}
	return means
}
