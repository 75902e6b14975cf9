package figures

import (
	"image/color"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// A figure from the top: title, legend (as many rows as it needs), panels.

const (
	margin    = 5 * vg.Millimeter
	gap       = 3 * vg.Millimeter
	titleSize = 12
	labelSize = 10.5
	tickSize  = 9.5
)

var (
	ink  = color.Gray{Y: 0x22}
	rule = color.Gray{Y: 0xdd}
)

func (f *Figure) draw(c draw.Canvas) {
	c.SetColor(color.White)
	c.Fill(c.Rectangle.Path())
	c = draw.Crop(c, margin, -margin, margin, -margin)

	title := letters(titleSize)
	title.XAlign, title.YAlign = draw.XLeft, draw.YTop
	c.FillText(title, vg.Point{X: c.Min.X, Y: c.Max.Y}, f.title)
	c.Max.Y -= title.FontExtents().Height + gap/2

	c.Max.Y -= f.drawLegend(c)
	c.Max.Y -= f.drawNotes(c) + gap
	f.drawPanels(c)
}

// drawLegend fills rows from the top left and returns their height. It stands
// outside the panels, where no curve can hide it.
func (f *Figure) drawLegend(c draw.Canvas) vg.Length {
	const dash, space = vg.Length(26), vg.Length(20)
	words := letters(labelSize)
	words.YAlign = draw.YCenter
	row := words.FontExtents().Height * 1.3
	x, y := c.Min.X, c.Max.Y-row/2
	for _, s := range f.legend {
		entry := dash + 5 + words.Width(s.name)
		if x > c.Min.X && x+entry > c.Max.X {
			x, y = c.Min.X, y-row
		}
		if s.line.Width > 0 {
			c.StrokeLine2(s.line, x, y, x+dash, y)
		}
		if s.mark != nil {
			c.DrawGlyph(*s.mark, vg.Point{X: x + dash/2, Y: y})
		}
		c.FillText(words, vg.Point{X: x + dash + 5, Y: y}, s.name)
		x += entry + space
	}
	return c.Max.Y - y + row/2
}

// drawNotes writes the notes, broken into lines, and returns their height.
func (f *Figure) drawNotes(c draw.Canvas) vg.Length {
	words := letters(tickSize)
	words.YAlign = draw.YCenter
	row := words.FontExtents().Height * 1.25
	y := c.Max.Y - row/2
	for _, note := range f.notes {
		line := ""
		for _, word := range strings.Fields(note) {
			if longer := strings.TrimSpace(line + " " + word); words.Width(longer) <= c.Max.X-c.Min.X {
				line = longer
				continue
			}
			c.FillText(words, vg.Point{X: c.Min.X, Y: y}, line)
			line, y = word, y-row
		}
		c.FillText(words, vg.Point{X: c.Min.X, Y: y}, line)
		y -= row
	}
	return c.Max.Y - row/2 - y
}

func (f *Figure) drawPanels(c draw.Canvas) {
	rows := make([][]*plot.Plot, len(f.panels))
	for i, p := range f.panels {
		rows[i] = []*plot.Plot{p}
	}
	tiles := draw.Tiles{Rows: len(rows), Cols: 1, PadY: gap}
	for i, row := range plot.Align(rows, tiles, c) {
		f.panels[i].Draw(row[0])
	}
}

// letters is our type: Liberation Sans, which the library carries with it.
func letters(size vg.Length) text.Style {
	return text.Style{
		Color:   ink,
		Font:    font.From(font.Font{Typeface: "Liberation", Variant: "Sans"}, size),
		Handler: plot.DefaultTextHandler,
	}
}

// panel is an empty plot in our style.
func panel(xLabel, yLabel string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Color, axis.Tick.Color = ink, ink
		axis.Padding = 0
		setLetters(&axis.Label.TextStyle, labelSize)
		setLetters(&axis.Tick.Label, tickSize)
	}
	p.X.Label.Text, p.Y.Label.Text = xLabel, yLabel
	p.X.Tick.Marker, p.Y.Tick.Marker = ticks{most: 8}, ticks{most: 5}
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = rule, rule
	p.Add(grid)
	return p
}

// setLetters keeps the alignment and rotation that the plot gave a text.
func setLetters(style *text.Style, size vg.Length) {
	ours := letters(size)
	style.Color, style.Font, style.Handler = ours.Color, ours.Font, ours.Handler
}
