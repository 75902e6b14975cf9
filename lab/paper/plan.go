package paper

import (
	"math"
	"slices"
	"time"

	"proffer/lab/figures"
	"proffer/lab/stats"
)

// plan is the cells of a figure and their drawing. Cells are independent of each other.
type plan struct {
	cells []cell
	seeds int // 0: as many as asked for
	draw  func(m measured) (*figures.Figure, error)

	measured bool // on this machine, by root
}

// cell is a measurement, taken once with every seed. It returns as many
// numbers with each.
type cell struct {
	cost time.Duration // of one run on one core, about
	run  func(seed uint64) ([]float64, error)
}

func (p plan) cost() (sum time.Duration) {
	for _, c := range p.cells {
		sum += c.cost
	}
	return sum
}

func (p plan) repeats(o Options) int {
	if p.seeds > 0 {
		return p.seeds
	}
	return o.Seeds
}

// computed is a plan that measures nothing.
func computed(draw func() (*figures.Figure, error)) plan {
	return plan{draw: func(measured) (*figures.Figure, error) { return draw() }}
}

// measured holds the numbers of each cell and seed.
type measured [][][]float64

// at is the mean over seeds of one number of a cell, and half its 95 % interval.
// Both are rounded, as study's rows are, to digits that do not differ between
// machines.
func (m measured) at(cell, number int) (mean, half float64) {
	return m.of(cell, func(v []float64) float64 { return v[number] })
}

func (m measured) of(cell int, f func([]float64) float64) (mean, half float64) {
	x := make([]float64, len(m[cell]))
	sum := 0.0
	for i, values := range m[cell] {
		x[i] = f(values)
		sum += x[i]
	}
	return round(sum / float64(len(x))), round(stats.Half95(x))
}

func round(x float64) float64 {
	if math.IsInf(x, 0) || math.IsNaN(x) {
		return x
	}
	return math.Round(x*1e6) / 1e6
}

// point is a number of a cell as a point of a curve.
func (m measured) point(x float64, cell, number int, unit float64) figures.Point {
	mean, half := m.at(cell, number)
	return figures.Point{X: x, Y: scale(mean, unit), Half: scale(half, unit)}
}

// scale leaves no digits that the multiplication made.
func scale(x, unit float64) float64 {
	if math.IsInf(x, 0) || math.IsNaN(x) {
		return x
	}
	return math.Round(x*unit*1e9) / 1e9
}

// sweep is a cell for each name at each x.
type sweep struct {
	names []string
	xs    []float64
}

func (s sweep) cells(at func(name string, x float64) cell) []cell {
	var cells []cell
	for _, name := range s.names {
		for _, x := range s.xs {
			cells = append(cells, at(name, x))
		}
	}
	return cells
}

func (s sweep) index(name, x int) int { return name*len(s.xs) + x }

// curves draws one number of all cells, one curve a name.
func (s sweep) curves(m measured, number int, unit float64) []figures.Curve {
	var curves []figures.Curve
	for i, name := range s.names {
		c := figures.Curve{Name: name}
		for j, x := range s.xs {
			c.Points = append(c.Points, m.point(x, s.index(i, j), number, unit))
		}
		curves = append(curves, c)
	}
	return curves
}

// requests is how many a run of n has.
func (o Options) requests(n int) int {
	if o.Quick {
		return n / 40
	}
	return n
}

// some are the points of an axis that are measured.
func (o Options) some(xs ...float64) []float64 {
	if !o.Quick || len(xs) < 3 {
		return xs
	}
	return []float64{xs[0], xs[len(xs)/2], xs[len(xs)-1]}
}

// with are those points of an axis, at among them also in a sketch: a published
// value is there.
func (o Options) with(at float64, xs ...float64) []float64 {
	some := slices.Clone(o.some(xs...))
	if !slices.Contains(some, at) {
		some = append(some, at)
		slices.Sort(some)
	}
	return some
}

// published is a value that a paper states, drawn in the colour of the curve of
// ours.
func published(value, of string, x, y float64) figures.Curve {
	return figures.Curve{Name: "published: " + value, Kind: figures.Published, Of: of, Points: []figures.Point{{X: x, Y: scale(y, 1)}}}
}

// steps are from, from + by, … up to to.
func steps(from, to, by float64) (xs []float64) {
	for i := 0; ; i++ {
		x := math.Round((from+float64(i)*by)*1e9) / 1e9
		if x > to+1e-9 {
			return xs
		}
		xs = append(xs, x)
	}
}
