package figures

import (
	"math"
	"strconv"

	"gonum.org/v1/plot"
)

// set prepares an axis with values up to most.
func (a Axis) set(axis *plot.Axis, most float64, numbers int, blank bool) {
	axis.Min, axis.Max = a.From, a.To
	if a.From == 0 && a.To == 0 {
		axis.Max = max(most*1.04, 1e-9)
	}
	if a.To == 0 && a.From > 0 {
		axis.Max = most
	}
	axis.Tick.Marker = ticks{most: numbers, blank: blank}
	if a.Log {
		axis.Scale = plot.LogScale{}
		axis.Tick.Marker = decades{blank: blank}
	}
	if len(a.Marks) > 0 {
		axis.Tick.Marker = constant(a.Marks, blank)
	}
}

// decades marks a logarithmic axis at 1, 2 and 5 times each power of ten.
type decades struct{ blank bool }

func (d decades) Ticks(least, greatest float64) []plot.Tick {
	var at []float64
	for power := math.Floor(math.Log10(least)); math.Pow(10, power) <= greatest; power++ {
		for _, factor := range []float64{1, 2, 5} {
			if x := factor * math.Pow(10, power); x >= least*(1-1e-9) && x <= greatest*(1+1e-9) {
				at = append(at, x)
			}
		}
	}
	return constant(at, d.blank)
}

func constant(at []float64, blank bool) plot.ConstantTicks {
	var marks []plot.Tick
	for _, x := range at {
		label := strconv.FormatFloat(math.Round(x*1e9)/1e9, 'f', -1, 64)
		if blank {
			label = " "
		}
		marks = append(marks, plot.Tick{Value: x, Label: label})
	}
	return marks
}

// table has a row a curve and x: its values in all panels, empty where it has
// none, each with half its interval.
func (c Chart) table() table {
	t := table{columns: []string{"series", c.X.Column}}
	for _, p := range c.Panels {
		t.columns = append(t.columns, p.Y.Column, p.Y.Column+"_ci95_half")
	}
	type place struct {
		name string
		x    float64
	}
	rows := map[place]int{}
	for i, p := range c.Panels {
		for _, curve := range p.Curves {
			for _, point := range curve.Points {
				at := place{curve.Name, point.X}
				n, ok := rows[at]
				if !ok || !math.IsNaN(t.rows[n].values[1+2*i]) {
					n = len(t.rows)
					rows[at] = n
					t.rows = append(t.rows, row{curve: curve.Name, values: empty(point.X, len(c.Panels))})
				}
				t.rows[n].values[1+2*i] = point.Y
				if bar(point) > 0 {
					t.rows[n].values[2+2*i] = point.Half
				}
			}
		}
	}
	return t
}

func empty(x float64, panels int) []float64 {
	values := make([]float64, 1+2*panels)
	for i := range values {
		values[i] = math.NaN()
	}
	values[0] = x
	return values
}
