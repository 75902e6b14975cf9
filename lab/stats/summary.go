package stats

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
)

// Summary has the numbers of a sample that the tables show, in the sample's own unit.
type Summary struct {
	N                   int
	Mean, P50, P90, P99 float64
}

// Summarize leaves x as it is. Of no values everything but N is NaN.
func Summarize(x []float64) Summary {
	sorted := slices.Sorted(slices.Values(x))
	return Summary{
		N:    len(x),
		Mean: stat.Mean(sorted, nil),
		P50:  Quantile(sorted, 0.50),
		P90:  Quantile(sorted, 0.90),
		P99:  Quantile(sorted, 0.99),
	}
}

// Mean is that of all values, NaN of none.
func Mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}

// OrZero is x, or 0 for a value that does not exist.
func OrZero(x float64) float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0
	}
	return x
}

// Deviation is the standard deviation of all values there are, 0 of none.
func Deviation(x []float64) float64 {
	mean := OrZero(Mean(x))
	sum := 0.0
	for _, v := range x {
		sum += (v - mean) * (v - mean)
	}
	return math.Sqrt(sum / float64(max(len(x), 1)))
}
