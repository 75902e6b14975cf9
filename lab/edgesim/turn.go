package edgesim

// turn is weighted round robin in which the heavy do not come in bunches: every
// flow gives each core credit of its weight, the richest gets the flow and pays
// the sum of the credits. After any number of flows each core is within one flow of
// its share for two cores, and within a few for many.
type turn struct {
	weights []float64
	credit  []float64
}

func newTurn(weights []float64) *turn {
	return &turn{weights: weights, credit: make([]float64, len(weights))}
}

// next is the core of a new flow. Some weight is above 0.
func (t *turn) next() int {
	best, total := -1, 0.0
	for i, w := range t.weights {
		if w == 0 {
			continue
		}
		total += w
		t.credit[i] += w
		if best < 0 || t.credit[i] > t.credit[best] {
			best = i
		}
	}
	t.credit[best] -= total
	return best
}
