package figures

import (
	"fmt"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg/draw"
)

// maxPoints bounds the drawn points of one curve: more would be invisible, and
// would make the SVG megabytes.
const maxPoints = 2000

// thin keeps the least and the greatest y of every stretch of points, so that
// no peak is lost, and both ends. points are sorted by x.
func thin(points plotter.XYs) plotter.XYs {
	if len(points) <= maxPoints {
		return points
	}
	const stretches = (maxPoints - 2) / 2
	inner := points[1 : len(points)-1]
	kept := plotter.XYs{points[0]}
	for i := range stretches {
		part := inner[i*len(inner)/stretches : (i+1)*len(inner)/stretches]
		first, second := extremes(part)
		kept = append(kept, part[first])
		if second != first {
			kept = append(kept, part[second])
		}
	}
	return append(kept, points[len(points)-1])
}

// extremes finds the least and the greatest y, in the order of x.
func extremes(points plotter.XYs) (first, second int) {
	least, greatest := 0, 0
	for i, p := range points {
		if p.Y < points[least].Y {
			least = i
		}
		if p.Y > points[greatest].Y {
			greatest = i
		}
	}
	return min(least, greatest), max(least, greatest)
}

// addCurve draws points, thinned, into a panel.
func addCurve(p *plot.Plot, points plotter.XYs, style draw.LineStyle, step plotter.StepKind) error {
	line, err := plotter.NewLine(thin(points))
	if err != nil {
		return err
	}
	line.LineStyle, line.StepStyle = style, step
	p.Add(line)
	return nil
}

// named checks that a figure has curves, each with a name of its own.
func named(names []string) error {
	if len(names) == 0 {
		return fmt.Errorf("no curves to draw")
	}
	seen := map[string]bool{}
	for i, name := range names {
		if name == "" {
			return fmt.Errorf("curve %d has no name", i)
		}
		if seen[name] {
			return fmt.Errorf("two curves are named %q", name)
		}
		seen[name] = true
	}
	return nil
}

// finite checks the values of one curve.
func finite(name, column string, values []float64) error {
	for i, v := range values {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("curve %q: %s %d is %v", name, column, i, v)
		}
	}
	return nil
}

// legend pairs names with their lines.
func legend(names []string, styles []draw.LineStyle) []sample {
	samples := make([]sample, len(names))
	for i, name := range names {
		samples[i] = sample{name: name, line: styles[i]}
	}
	return samples
}
