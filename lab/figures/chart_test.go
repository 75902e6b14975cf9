package figures

import (
	"math"
	"strings"
	"testing"
)

func curves() []Curve {
	return []Curve{
		{Name: "single", Points: []Point{{0.5, 1, 0.1}, {0.9, 4, math.Inf(1)}}},
		{Name: "published: single", Kind: Published, Of: "single", Points: []Point{{0.5, 1.1, 0}}},
	}
}

// TestChartTable: a row a curve and x, empty where a panel has nothing.
func TestChartTable(t *testing.T) {
	c := Chart{Title: "t", X: Axis{Column: "load"}, Panels: []Panel{
		{Y: Axis{Column: "mean_s"}, Curves: curves()},
		{Y: Axis{Column: "p90_s"}, Curves: curves()[:1]},
	}}
	f, err := NewChart(c)
	if err != nil {
		t.Fatal(err)
	}
	data, err := f.table.csv()
	if err != nil {
		t.Fatal(err)
	}
	want := `series,load,mean_s,mean_s_ci95_half,p90_s,p90_s_ci95_half
single,0.5,1,0.1,1,0.1
single,0.9,4,,4,
published: single,0.5,1.1,,,
`
	if string(data) != want {
		t.Errorf("got\n%s\nwant\n%s", data, want)
	}
	if len(f.legend) != 2 || f.legend[1].mark == nil || f.legend[1].mark.Color != f.legend[0].line.Color {
		t.Error("a published value does not look like its curve")
	}
	if p := f.panels[0]; p.Y.Min != 0 || p.Y.Max < 4 || f.panels[0].X.Max != f.panels[1].X.Max {
		t.Error("the axes do not hold the curves")
	}
}

func TestChartRefuses(t *testing.T) {
	for want, list := range map[string][]Curve{
		"no curves":  nil,
		"no points":  {{Name: "a"}},
		"point 0 is": {{Name: "a", Points: []Point{{0, math.NaN(), 0}}}},
	} {
		if _, err := NewChart(Chart{Title: "t", Panels: []Panel{{Curves: list}}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestGroups(t *testing.T) {
	g := Groups{
		Title: "t", GroupColumn: "lbs", Groups: []string{"4 LBs", "8 LBs"}, Series: []string{"lsq", "sed"},
		Panels: []BoxPanel{{Y: Axis{To: 3}, Columns: []string{"p25", "p50", "p75", "p90"}, Boxes: [][]Box{
			{{1, 2, 3, 4, 0.5}, {1, 2, 2.5, 2.8, math.Inf(1)}},
			{{0.1, 0.2, 0.3, 0.4, 0.05}, {Value: math.NaN()}},
		}}},
	}
	f, err := NewGroups(g)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Save(t.TempDir(), "groups"); err != nil {
		t.Fatal(err)
	}
	data, err := f.table.csv()
	if want := "series,lbs,p25,p50,p75,p90,p90_ci95_half\nlsq,4 LBs,1,2,3,4,0.5\nsed,4 LBs,1,2,2.5,2.8,\n"; err != nil || !strings.HasPrefix(string(data), want) {
		t.Errorf("%s (%v)", data, err)
	}
	g.Panels[0].Boxes = g.Panels[0].Boxes[:1]
	if _, err := NewGroups(g); err == nil || !strings.Contains(err.Error(), "1 groups of boxes, want 2") {
		t.Errorf("got %v", err)
	}
}

func TestTicksOfAPartialAxis(t *testing.T) {
	var labels []string
	for _, mark := range (ticks{most: 5}).Ticks(0.5, 1) {
		labels = append(labels, mark.Label)
	}
	for _, mark := range (decades{}).Ticks(0.3, 12) {
		labels = append(labels, mark.Label)
	}
	if got, want := strings.Join(labels, " "), "0.5 0.6 0.7 0.8 0.9 1.0 0.5 1 2 5 10"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// strokes counts the paths of a figure's SVG.
func strokes(t *testing.T, f *Figure, err error) int {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	svg, err := f.svg()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(svg), "<path")
}

// TestErrorBarsAreDrawn: a point with an interval has a bar and two caps, in a
// chart and in groups; one without has none.
func TestErrorBarsAreDrawn(t *testing.T) {
	chart := func(half float64) int {
		f, err := NewChart(Chart{Title: "t", X: Axis{To: 4}, Panels: []Panel{{Y: Axis{To: 4}, Curves: []Curve{
			{Name: "a", Points: []Point{{1, 2, half}, {2, 2, half}}},
		}}}})
		return strokes(t, f, err)
	}
	groups := func(half float64) int {
		f, err := NewGroups(Groups{Title: "t", Groups: []string{"g"}, Series: []string{"a", "b"}, Panels: []BoxPanel{{
			Y: Axis{To: 4}, Columns: []string{"x"}, Boxes: [][]Box{{{Value: 2, Half: half}, {Value: 3, Half: half}}},
		}}})
		return strokes(t, f, err)
	}
	for name, count := range map[string]func(float64) int{"chart": chart, "groups": groups} {
		for _, none := range []float64{0, math.Inf(1), math.NaN()} {
			if more := count(0.5) - count(none); more != 6 {
				t.Errorf("%s: intervals of two points add %d strokes to those of %v, want 6", name, more, none)
			}
		}
	}
}

// TestPublishedBoxes: a ring in the panel, one in the legend, a row in the table.
func TestPublishedBoxes(t *testing.T) {
	g := Groups{Title: "t", GroupColumn: "lbs", Groups: []string{"g", "h"}, Series: []string{"a", "b"}, Panels: []BoxPanel{
		{Columns: []string{"x"}, Boxes: [][]Box{{{Value: 1}, {Value: 2}}, {{Value: 1}, {Value: 2}}}},
		{Y: Axis{To: 4}, Columns: []string{"y"}, Boxes: [][]Box{{{Value: 1}, {Value: 2}}, {{Value: 1}, {Value: 2}}}},
	}}
	f, err := NewGroups(g)
	before := strokes(t, f, err)
	g.Panels[1].Published = []PublishedBox{{Group: 1, Series: 0, Value: 3}}
	f, err = NewGroups(g)
	if more := strokes(t, f, err) - before; more < 2 {
		t.Errorf("a published value adds %d strokes, want one in the panel and one in the legend", more)
	}
	if last := f.legend[len(f.legend)-1]; last.name != "published" || last.mark == nil {
		t.Errorf("the legend ends with %+v", last)
	}
	data, err := f.table.csv()
	if want := "published: a,h,,,3,\n"; err != nil || !strings.HasSuffix(string(data), want) {
		t.Errorf("%v in\n%s\nwant at its end %s", err, data, want)
	}
	if top := g.Panels[1].extent(); top != 3 {
		t.Errorf("the axis reaches to %v, want the published value", top)
	}
}

// TestCrowdedGroups: the names of many groups stand aslant, those of few do not; dots are no bars.
func TestCrowdedGroups(t *testing.T) {
	picture := func(groups int, dots bool) (slanted int, text string) {
		g := Groups{Title: "t", Series: []string{"a"}, Dots: dots, Panels: []BoxPanel{{Y: Axis{To: 2}, Columns: []string{"x"}}}}
		for range groups {
			g.Groups = append(g.Groups, "a program")
			g.Panels[0].Boxes = append(g.Panels[0].Boxes, []Box{{Value: 1}})
		}
		f, err := NewGroups(g)
		if err != nil {
			t.Fatal(err)
		}
		svg, err := f.svg()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(svg), "rotate("), string(svg)
	}
	few, bars := picture(4, false)
	many, _ := picture(30, false)
	_, dots := picture(4, true)
	if many-few != 30 {
		t.Errorf("of 30 names %d stand aslant, of 4 %d", many, few)
	}
	if dots == bars {
		t.Error("dots are drawn as bars")
	}
}

// TestRateLooksLikeNoPolicy: a rate of requests beside policies has the colour of none of them.
func TestRateLooksLikeNoPolicy(t *testing.T) {
	names := []string{"rate", "ecmp", "wcmp", "awcmp", "lsq", "sed", "learned"}
	styles := lines(names)
	for i, style := range styles[1:] {
		if style.Color == styles[0].Color {
			t.Errorf("the rate has the colour of %s", names[1+i])
		}
	}
}
