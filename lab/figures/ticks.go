package figures

import (
	"math"
	"strconv"

	"gonum.org/v1/plot"
)

// ticks marks an axis at every multiple of 1, 2 or 5 times a power of ten, at
// most most times besides its begin, and writes numbers as short as they can be.
type ticks struct {
	most  int
	blank bool // no numbers: a panel further down has them
}

func (t ticks) Ticks(least, greatest float64) []plot.Tick {
	step, digits := t.step(greatest - least)
	var marks []plot.Tick
	for i := max(math.Ceil(least/step-1e-9), 0); i*step <= greatest*(1+1e-9); i++ {
		label := strconv.FormatFloat(i*step, 'f', digits, 64)
		if t.blank {
			label = " " // without any label it would be a minor tick, which has no grid line
		}
		marks = append(marks, plot.Tick{Value: i * step, Label: label})
	}
	return marks
}

// step is the distance of two ticks and the digits behind its point.
func (t ticks) step(length float64) (step float64, digits int) {
	power := math.Floor(math.Log10(length / float64(t.most)))
	for _, factor := range []float64{1, 2, 5, 10} {
		step = factor * math.Pow(10, power)
		if length/step <= float64(t.most)*(1+1e-9) {
			break
		}
	}
	return step, max(int(-math.Floor(math.Log10(step)+1e-9)), 0)
}
