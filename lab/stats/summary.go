package stats

import (
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
