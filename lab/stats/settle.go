package stats

import "math"

// WarmUp is how many values at the front of a series belong to the warm-up, by the
// marginal standard error rule (MSER; White, An effective truncation heuristic for
// bias reduction in simulation output, 1997): the number d of values left out that
// makes the standard error of the mean of the rest least,
//
//	Σ (xᵢ − mean)² / (n − d)²   over i from d on
//
// A d in the second half means that the series is too short to tell: it has not
// settled. The last values decide by chance and are not tried alone.
func WarmUp(series []float64) int {
	n := len(series)
	best, least := 0, math.Inf(1)
	sum, squares := 0.0, 0.0
	for d := n - 1; d >= 0; d-- {
		sum += series[d]
		squares += float64(series[d] * series[d])
		left := float64(n - d)
		if left < fewestLeft || left < float64(n)/20 {
			continue
		}
		if e := (squares - float64(sum*sum)/left) / float64(left*left); e <= least {
			best, least = d, e
		}
	}
	return best
}

// fewestLeft is how many values there must be after the warm-up.
const fewestLeft = 5
