package figures

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Groups are boxes side by side, one a series in every group, in one or more
// panels from the top.
type Groups struct {
	Title       string
	Notes       []string
	GroupLabel  string // below the x axis
	GroupColumn string // in the CSV
	Groups      []string
	Series      []string
	Panels      []BoxPanel
	Dots        bool // a dot in place of a bar: for many groups
}

// BoxPanel holds a box for each group and, inside, each series. Columns name
// Low, Middle, High and Value in the CSV; with one column the boxes are bars.
type BoxPanel struct {
	Y       Axis
	Columns []string
	Boxes   [][]Box

	Published []PublishedBox // values from elsewhere, drawn as rings
}

// PublishedBox is a value that a paper states for one box: Group and Series are
// positions in those of Groups.
type PublishedBox struct {
	Group, Series int
	Value         float64
}

// Box is a box from Low to High with a line at Middle, and a mark at Value with
// its interval. Middle 0: a bar up to Value. A NaN Value: nothing.
type Box struct{ Low, Middle, High, Value, Half float64 }

// NewGroups draws g.
func NewGroups(g Groups) (*Figure, error) {
	if err := named(g.Series); err != nil {
		return nil, fmt.Errorf("draw %q: %w", g.Title, err)
	}
	for _, p := range g.Panels {
		if err := g.check(p); err != nil {
			return nil, fmt.Errorf("draw %q: %w", g.Title, err)
		}
	}
	styles := lines(g.Series)
	f := &Figure{title: g.Title, notes: g.Notes, taller: 0.35 * float64(len(g.Panels)-1), table: g.table()}
	for i, content := range g.Panels {
		p := panel("", content.Y.Label)
		last := i == len(g.Panels)-1
		if last {
			p.X.Label.Text = g.GroupLabel
		}
		p.Add(boxes{content.Boxes, content.Published, styles, g.Dots})
		p.X.Min, p.X.Max = -0.5, float64(len(g.Groups))-0.5
		p.X.Tick.Marker = g.ticks(!last)
		if last && g.crowded() {
			p.X.Tick.Label.Rotation = math.Pi / 4
			p.X.Tick.Label.XAlign, p.X.Tick.Label.YAlign = draw.XRight, draw.YTop
		}
		content.Y.set(&p.Y, content.extent(), 5, false)
		f.panels = append(f.panels, p)
	}
	for i, name := range g.Series {
		s := sample{name: name, line: styles[i]}
		if g.Dots {
			s = sample{name: name, mark: dot(styles[i], i)}
		}
		f.legend = append(f.legend, s)
	}
	if g.published() {
		f.legend = append(f.legend, sample{name: "published", mark: ring(ink)})
	}
	return f, nil
}

// crowded reports whether the names of the groups are too long to stand beside each other.
func (g Groups) crowded() bool {
	const ofPanel = 0.8 // the part of a figure's width that its panels have
	most := width * ofPanel / vg.Length(max(len(g.Groups), 1))
	return slices.ContainsFunc(g.Groups, func(name string) bool { return letters(tickSize).Width(name) > most })
}

func (g Groups) published() bool {
	return slices.ContainsFunc(g.Panels, func(p BoxPanel) bool { return len(p.Published) > 0 })
}

func (g Groups) check(p BoxPanel) error {
	if len(p.Boxes) != len(g.Groups) {
		return fmt.Errorf("%d groups of boxes, want %d", len(p.Boxes), len(g.Groups))
	}
	for _, group := range p.Boxes {
		if len(group) != len(g.Series) {
			return fmt.Errorf("%d boxes in a group, want %d", len(group), len(g.Series))
		}
	}
	return nil
}

func (p BoxPanel) extent() float64 {
	most := 0.0
	for _, group := range p.Boxes {
		for _, b := range group {
			if !math.IsNaN(b.Value) {
				most = max(most, b.High, b.Value+bar(Point{Half: b.Half}))
			}
		}
	}
	for _, value := range p.Published {
		most = max(most, value.Value)
	}
	return most
}

func (g Groups) ticks(blank bool) plot.ConstantTicks {
	var marks []plot.Tick
	for i, name := range g.Groups {
		if blank {
			name = " "
		}
		marks = append(marks, plot.Tick{Value: float64(i), Label: name})
	}
	return marks
}

func (g Groups) table() table {
	t := table{columns: []string{"series", g.GroupColumn}, grouped: true}
	for _, p := range g.Panels {
		t.columns = append(t.columns, p.Columns...)
		t.columns = append(t.columns, p.Columns[len(p.Columns)-1]+"_ci95_half")
	}
	for i, group := range g.Groups {
		for j, series := range g.Series {
			r := row{curve: series, group: group}
			for _, p := range g.Panels {
				b := p.Boxes[i][j]
				if len(p.Columns) > 1 {
					r.values = append(r.values, b.Low, b.Middle, b.High)
				}
				r.values = append(r.values, b.Value, b.Half)
			}
			t.rows = append(t.rows, r)
		}
	}
	for i, p := range g.Panels {
		for _, value := range p.Published {
			t.rows = append(t.rows, g.publishedRow(i, value))
		}
	}
	return t
}

// publishedRow has a value in the last column of its panel and none elsewhere.
func (g Groups) publishedRow(panel int, value PublishedBox) row {
	r := row{curve: "published: " + g.Series[value.Series], group: g.Groups[value.Group]}
	for i, p := range g.Panels {
		for range len(p.Columns) + 1 {
			r.values = append(r.values, math.NaN())
		}
		if i == panel {
			r.values[len(r.values)-2] = value.Value
		}
	}
	return r
}

// boxes draws all boxes of a panel.
type boxes struct {
	boxes     [][]Box
	published []PublishedBox
	styles    []draw.LineStyle
	dots      bool
}

// dot is the mark of a series.
func dot(style draw.LineStyle, series int) *draw.GlyphStyle {
	shapes := []draw.GlyphDrawer{draw.CircleGlyph{}, draw.CrossGlyph{}, draw.TriangleGlyph{}}
	return &draw.GlyphStyle{Color: style.Color, Radius: 3.2, Shape: shapes[series%len(shapes)]}
}

// position of a box on the x axis, and the distance between two.
func position(group, series, of int) (x, pitch float64) {
	pitch = 0.84 / float64(of)
	return float64(group) - 0.42 + (float64(series)+0.5)*pitch, pitch
}

func (b boxes) Plot(c draw.Canvas, p *plot.Plot) {
	toX, toY := p.Transforms(&c)
	for i, group := range b.boxes {
		for j, box := range group {
			if math.IsNaN(box.Value) {
				continue
			}
			x, pitch := position(i, j, len(group))
			half := (toX(pitch) - toX(0)) * 0.38
			if b.dots {
				box.dot(c, p, toX(x), *dot(b.styles[j], j))
				continue
			}
			box.plot(c, p, toX(x), half, b.styles[j])
		}
		if i > 0 {
			x := toX(float64(i) - 0.5)
			c.StrokeLine2(draw.LineStyle{Color: rule, Width: 1}, x, c.Min.Y, x, c.Max.Y)
		}
	}
	for _, value := range b.published {
		x, _ := position(value.Group, value.Series, len(b.styles))
		if value.Value <= p.Y.Max {
			c.DrawGlyph(*ring(ink), vg.Point{X: toX(x), Y: toY(value.Value)})
		}
	}
}

func (b Box) dot(c draw.Canvas, p *plot.Plot, x vg.Length, mark draw.GlyphStyle) {
	_, toY := p.Transforms(&c)
	y := toY(b.Value)
	if b.Value > p.Y.Max {
		mark.Shape, y = draw.PyramidGlyph{}, c.Max.Y-4
	}
	c.DrawGlyph(mark, vg.Point{X: x, Y: y})
}

func (b Box) plot(c draw.Canvas, p *plot.Plot, x, half vg.Length, style draw.LineStyle) {
	_, toY := p.Transforms(&c)
	limit := func(v float64) vg.Length { return toY(min(max(v, p.Y.Min), p.Y.Max)) }
	low, high := limit(b.Low), limit(b.High)
	if b.Middle == 0 {
		high = limit(b.Value)
	}
	corners := []vg.Point{{X: x - half, Y: low}, {X: x + half, Y: low}, {X: x + half, Y: high}, {X: x - half, Y: high}, {X: x - half, Y: low}}
	c.StrokeLines(style, corners)
	style.Dashes, style.Width = solid, 2.2
	if b.Middle > 0 && b.Middle <= p.Y.Max {
		c.StrokeLine2(style, x-half, limit(b.Middle), x+half, limit(b.Middle))
	}
	style.Width = 1.2
	if b.Value > p.Y.Max { // an arrow marks a value off the top
		top := c.Max.Y
		c.DrawGlyph(draw.GlyphStyle{Color: style.Color, Radius: 3.5, Shape: draw.PyramidGlyph{}}, vg.Point{X: x, Y: top - 4})
		return
	}
	y := limit(b.Value)
	if b.Middle > 0 {
		c.DrawGlyph(draw.GlyphStyle{Color: style.Color, Radius: 2.4, Shape: draw.CircleGlyph{}}, vg.Point{X: x, Y: y})
	}
	if d := bar(Point{Half: b.Half}); d > 0 {
		low, high := limit(b.Value-d), limit(b.Value+d)
		c.StrokeLine2(style, x, low, x, high)
		c.StrokeLine2(style, x-capLength, low, x+capLength, low)
		c.StrokeLine2(style, x-capLength, high, x+capLength, high)
	}
}
