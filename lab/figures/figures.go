// Package figures draws the results of an experiment, as Figures 3 and 4 of the
// SRLB paper do, and keeps the numbers behind each picture beside it. A figure
// is saved three times: SVG for the web, PNG for a glance, CSV for readers that
// wants to draw it otherwise. The same input gives the same bytes.
package figures

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"proffer/lab/tables"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Size of a PNG in pixels; several panels may make it higher.
const (
	Width  = 1280
	Height = 800
)

const (
	dpi    = 160
	width  = vg.Length(Width) / dpi * vg.Inch
	height = vg.Length(Height) / dpi * vg.Inch
)

// A Figure is one or more panels above each other that share their x axis, and
// the table of their values.
type Figure struct {
	title  string
	legend []sample
	notes  []string     // below the legend
	panels []*plot.Plot // from the top
	table  table
	taller float64 // than Height by this share of it
}

// sample is a curve's name, line and mark, as the legend shows them.
type sample struct {
	name string
	line draw.LineStyle
	mark *draw.GlyphStyle
}

func (f *Figure) height() vg.Length { return height * vg.Length(1+f.taller) }

// Note adds lines below the legend.
func (f *Figure) Note(lines ...string) { f.notes = append(f.notes, lines...) }

// Save writes name.svg, name.png and name.csv into dir, which is made if it is
// missing, and returns their paths.
func (f *Figure) Save(dir, name string) ([]string, error) {
	if name == "" || name != filepath.Base(name) || strings.HasPrefix(name, ".") {
		return nil, fmt.Errorf("figure name %q: want a file name without folder and extension", name)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make folder for figure %s: %w", name, err)
	}
	var paths []string
	for _, format := range []struct {
		extension string
		render    func() ([]byte, error)
	}{{"svg", f.svg}, {"png", f.png}, {"csv", f.table.csv}} {
		path := filepath.Join(dir, name+"."+format.extension)
		data, err := format.render()
		if err == nil {
			err = os.WriteFile(path, data, 0o644)
		}
		if err != nil {
			return paths, fmt.Errorf("save figure %s in %s: %w", name, dir, err)
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// File is a picture that draw draws, as the files of a name.
func File(name string, draw func() (*Figure, error)) tables.File {
	return func(dir string) ([]string, error) {
		f, err := draw()
		if err != nil {
			return nil, err
		}
		return f.Save(dir, name)
	}
}

// svg keeps text as text. Its place is by the widths of Liberation Sans. Arial and
// Helvetica have the same widths, and every system has one of the three.
func (f *Figure) svg() ([]byte, error) {
	canvas := vgsvg.New(width, f.height())
	f.draw(draw.New(canvas))
	var out bytes.Buffer
	if _, err := canvas.WriteTo(&out); err != nil {
		return nil, err
	}
	const family, fallback = "font-family:Liberation Sans;", "font-family:Liberation Sans,Arial,Helvetica,sans-serif;"
	return bytes.ReplaceAll(out.Bytes(), []byte(family), []byte(fallback)), nil
}

func (f *Figure) png() ([]byte, error) {
	canvas := vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(width, f.height()), vgimg.UseDPI(dpi))}
	f.draw(draw.New(canvas))
	var out bytes.Buffer
	_, err := canvas.WriteTo(&out)
	return out.Bytes(), err
}

// Notes are the lines below the legend.
func (f *Figure) Notes() []string { return f.notes }

// Value is what the figure's CSV has in a column of a curve, at an x or of a group; NaN: nothing. At "max"
// it is the greatest of the curve; half is half its interval, NaN without one.
func (f *Figure) Value(curve, at, column string) (value, half float64) {
	i := slices.Index(f.table.columns, column) - 2 // behind the curve and its x, or group
	value, half = math.NaN(), math.NaN()
	for _, r := range f.table.rows {
		x, values := r.group, r.values
		if !f.table.grouped {
			x, values = number(r.values[0]), r.values[1:]
		}
		if r.curve != curve || i < 0 || x != at && (at != "max" || values[i] <= value) {
			continue
		}
		if value = values[i]; i+1 < len(values) {
			half = values[i+1]
		}
	}
	return value, half
}
