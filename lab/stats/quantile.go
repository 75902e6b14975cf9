// Package stats turns the latencies and loads of a run into the numbers that
// the papers print: quantiles, means with a confidence interval, Jain's
// fairness index and the smoothing of SRLB's Figure 4. It is pure, so that the
// simulator and the testbed judge their runs by the very same arithmetic.
package stats

import (
	"math"

	"gonum.org/v1/gonum/stat"
)

// Quantile returns the smallest value of sorted that at least the share q (0 to
// 1) of the values does not exceed: always a value that was really measured, so
// a table and the CDF drawn from the same rows agree. sorted ascends; of no
// values it is NaN.
func Quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	return stat.Quantile(q, stat.Empirical, sorted, nil)
}
