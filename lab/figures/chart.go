package figures

import (
	"fmt"
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Chart is curves over one x axis, in one or more panels from the top.
type Chart struct {
	Title  string
	Notes  []string // below the legend
	X      Axis
	Panels []Panel
	Taller float64 // than usual, by this share of Height
}

// Panel is the curves over one y axis. Curves of one name look alike in all
// panels and are in the legend once.
type Panel struct {
	Y      Axis
	Curves []Curve
}

// Axis names the quantity, units included.
type Axis struct {
	Label    string
	Column   string    // in the CSV
	From, To float64   // both 0: from 0 to the curves' largest value
	Log      bool      // From must be more than 0
	Marks    []float64 // where numbers stand; none: at round numbers
}

// Curve is one series. Its points are joined, or marked if it is Published.
type Curve struct {
	Name   string
	Points []Point
	Kind   Kind
	Of     string // Model, Published: the curve that gives it its colour
}

// Kind is the origin of a curve.
type Kind uint8

const (
	Ours      Kind = iota // a line, with error bars
	Model                 // a dotted line
	Published             // rings
)

// Point is a measurement. Half is half its 95 % interval; 0 or infinite: none.
type Point struct{ X, Y, Half float64 }

// NewChart draws c.
func NewChart(c Chart) (*Figure, error) {
	names := c.names()
	if err := named(names); err != nil {
		return nil, fmt.Errorf("draw %q: %w", c.Title, err)
	}
	styles := c.styles(names)
	f := &Figure{title: c.Title, notes: c.Notes, table: c.table(), taller: 0.4*float64(len(c.Panels)-1) + c.Taller}
	for i, content := range c.Panels {
		p := panel("", content.Y.Label)
		last := i == len(c.Panels)-1
		if last {
			p.X.Label.Text = c.X.Label
		}
		for _, curve := range content.Curves {
			if err := addSeries(p, curve, styles[curve.Name]); err != nil {
				return nil, fmt.Errorf("draw %q: curve %q: %w", c.Title, curve.Name, err)
			}
		}
		c.X.set(&p.X, c.extent(func(p Point) float64 { return p.X }), 8, !last)
		content.Y.set(&p.Y, content.extent(func(p Point) float64 { return p.Y + bar(p) }), 5, false)
		f.panels = append(f.panels, p)
	}
	for _, name := range names {
		f.legend = append(f.legend, styles[name].sample(name))
	}
	return f, nil
}

// names are those of all curves, each once.
func (c Chart) names() (names []string) {
	seen := map[string]bool{}
	for _, p := range c.Panels {
		for _, curve := range p.Curves {
			if !seen[curve.Name] {
				seen[curve.Name] = true
				names = append(names, curve.Name)
			}
		}
	}
	return names
}

func (c Chart) extent(of func(Point) float64) float64 {
	most := 0.0
	for _, p := range c.Panels {
		most = max(most, p.extent(of))
	}
	return most
}

func (p Panel) extent(of func(Point) float64) float64 {
	most := 0.0
	for _, curve := range p.Curves {
		for _, point := range curve.Points {
			most = max(most, of(point))
		}
	}
	return most
}

// bar is the drawn part of an interval.
func bar(p Point) float64 {
	if math.IsInf(p.Half, 0) || math.IsNaN(p.Half) {
		return 0
	}
	return p.Half
}

// style is a curve's line, or its mark.
type style struct {
	line draw.LineStyle
	mark *draw.GlyphStyle
}

func (s style) sample(name string) sample { return sample{name, s.line, s.mark} }

func (c Chart) styles(names []string) map[string]style {
	var ours []string
	kinds := map[string]Curve{}
	for _, p := range c.Panels {
		for _, curve := range p.Curves {
			kinds[curve.Name] = curve
		}
	}
	for _, name := range names {
		if kinds[name].Kind == Ours {
			ours = append(ours, name)
		}
	}
	styles := map[string]style{}
	for i, line := range lines(ours) {
		styles[ours[i]] = style{line: line}
	}
	for _, name := range names {
		curve := kinds[name]
		own := styles[curve.Of].line.Color
		if own == nil {
			own = ink
		}
		switch curve.Kind {
		case Model:
			styles[name] = style{line: draw.LineStyle{Color: own, Width: 1.3, Dashes: dotted}}
		case Published:
			styles[name] = style{mark: ring(own)}
		}
	}
	return styles
}

// ring marks a published value.
func ring(c color.Color) *draw.GlyphStyle {
	return &draw.GlyphStyle{Color: c, Radius: 4.5, Shape: draw.RingGlyph{}}
}

func addSeries(p *plot.Plot, curve Curve, s style) error {
	if len(curve.Points) == 0 {
		return fmt.Errorf("no points")
	}
	points := make(plotter.XYs, len(curve.Points))
	for i, point := range curve.Points {
		if math.IsNaN(point.X+point.Y) || math.IsInf(point.X+point.Y, 0) {
			return fmt.Errorf("point %d is %v, %v", i, point.X, point.Y)
		}
		points[i] = plotter.XY{X: point.X, Y: point.Y}
	}
	if s.mark == nil {
		if err := addCurve(p, points, s.line, plotter.NoStep); err != nil {
			return err
		}
		p.Add(intervals{curve.Points, s.line})
		return nil
	}
	marks, err := plotter.NewScatter(points)
	if err != nil {
		return err
	}
	marks.GlyphStyle = *s.mark
	p.Add(marks)
	return nil
}

// intervals are the error bars of a curve.
type intervals struct {
	points []Point
	line   draw.LineStyle
}

const capLength = vg.Length(2.2)

func (b intervals) Plot(c draw.Canvas, p *plot.Plot) {
	toX, toY := p.Transforms(&c)
	line := b.line
	line.Width, line.Dashes = 0.9, solid
	for _, point := range b.points {
		if bar(point) == 0 {
			continue
		}
		x := toX(point.X)
		low, high := max(point.Y-point.Half, p.Y.Min), min(point.Y+point.Half, p.Y.Max)
		if low > high || point.X < p.X.Min || point.X > p.X.Max {
			continue
		}
		c.StrokeLine2(line, x, toY(low), x, toY(high))
		for _, y := range []float64{point.Y - point.Half, point.Y + point.Half} {
			if y >= p.Y.Min && y <= p.Y.Max {
				c.StrokeLine2(line, x-capLength, toY(y), x+capLength, toY(y))
			}
		}
	}
}
