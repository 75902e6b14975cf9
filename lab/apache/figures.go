package apache

import (
	"fmt"
	"slices"
	"strings"

	"proffer/lab/figures"
	"proffer/lab/tables"
	"proffer/lab/traffic"
)

// The loads at which the papers show more than a mean. 6LB has .89 in Figure 10b and .87 in
// the text of 10a; one load stands for all three.
const (
	lightLoad = 0.61
	heavyLoad = 0.88
)

// figure is a figure of the papers and the runs that it needs.
type figure struct {
	name     string
	policies []string
	loads    func(e Experiment) []float64
	draw     func(r *Report, f figure, dir string) ([]string, error)
}

var hunting = []string{"single", "hunt:static:4", "hunt:static:8", "hunt:static:16", "hunt:dynamic"}

func allFigures() []figure {
	at := func(load float64) func(Experiment) []float64 {
		return func(Experiment) []float64 { return []float64{load} }
	}
	return []figure{
		{"srlb-2", hunting, Experiment.loads, (*Report).drawMeans},
		{"srlb-3", hunting, at(heavyLoad), (*Report).drawCDF},
		{"srlb-4", []string{"single", "hunt:static:4"}, at(heavyLoad), (*Report).drawLoad},
		{"srlb-5", hunting, at(lightLoad), (*Report).drawCDF},
		{"6lb-10a", hunting, Experiment.loads, (*Report).drawMeans},
		{"6lb-10b", hunting, at(heavyLoad), (*Report).drawLoad},
		{"6lb-11e", []string{"single", roundRobin, feedback, "hunt:dynamic"}, Experiment.loads, (*Report).drawMeans},
	}
}

// loads of the figures over ρ.
func (e Experiment) loads() []float64 {
	if len(e.Loads) > 0 {
		return e.Loads
	}
	return []float64{0.45, lightLoad, 0.71, 0.8, heavyLoad, 0.95}
}

func figureNames() (names []string) {
	for _, f := range allFigures() {
		names = append(names, f.name)
	}
	return names
}

func (e Experiment) asked() (all []figure) {
	for _, f := range allFigures() {
		if len(e.Figures) == 0 || slices.Contains(e.Figures, f.name) {
			all = append(all, f)
		}
	}
	return all
}

// cells are the runs that the asked figures need, each once: by load, on Apache and then on
// virtual cores.
func (e Experiment) cells() (all []cell) {
	for _, f := range e.asked() {
		for _, load := range f.loads(e) {
			for _, p := range f.policies {
				for _, virtual := range []bool{false, true} {
					if c := (cell{p, load, virtual}); !slices.Contains(all, c) {
						all = append(all, c)
					}
				}
			}
		}
	}
	slices.SortStableFunc(all, func(a, b cell) int {
		switch {
		case a.load < b.load:
			return -1
		case a.load > b.load:
			return 1
		default:
			return 0
		}
	})
	return all
}

// of returns a figure's results on one kind of servers, as far as they are claimed.
func (r *Report) of(f figure, virtual bool) (all []*outcome) {
	for _, p := range f.policies {
		for _, result := range r.results {
			c := result.cell
			if c.policy == p && c.virtual == virtual && slices.Contains(f.loads(r.experiment), c.load) {
				all = append(all, result)
			}
		}
	}
	return all
}

// kinds are the two kinds of servers, with their names in titles and files.
var kinds = []struct {
	virtual      bool
	title, after string
}{{false, "Apache", ""}, {true, "virtual cores", "-virtual"}}

// Files are the figures and every request.
func (r *Report) Files() (all []tables.File) {
	for _, f := range r.experiment.asked() {
		all = append(all, func(dir string) ([]string, error) { return f.draw(r, f, dir) })
	}
	for _, result := range r.results {
		c := result.cell
		name := fmt.Sprintf("rows-%s-%s-%.2f.csv", c.kind(), strings.ReplaceAll(c.policy, ":", "-"), c.load)
		all = append(all, traffic.File(name, result.Rows))
	}
	return all
}

// means are the curves of a figure over ρ.
func (r *Report) means(f figure, virtual bool) (curves []figures.Curve) {
	for _, p := range f.policies {
		c := figures.Curve{Name: p}
		for _, row := range r.Runs {
			if row.Policy == p && (row.Servers == "virtual") == virtual && slices.Contains(f.loads(r.experiment), row.Load) {
				c.Points = append(c.Points, figures.Point{X: row.Load, Y: row.Mean, Half: row.MeanCI})
			}
		}
		if len(c.Points) > 0 {
			curves = append(curves, c)
		}
	}
	return curves
}

// published are the values that the papers' texts have for a figure over ρ, beside curves.
func published(f figure, curves []figures.Curve) (all []figures.Curve) {
	at, single := heavyLoad, 0.0
	for _, c := range curves {
		for _, p := range c.Points {
			if c.Name == "single" && p.X == at {
				single = p.Y
			}
		}
	}
	if f.name != "6lb-11e" && single > 0 {
		all = append(all, figures.Curve{Name: "published: single ÷ 2.3", Of: "hunt:static:4", Kind: figures.Published,
			Points: []figures.Point{{X: at, Y: single / 2.3}}})
	}
	if f.name == "6lb-10a" { // §VI-B.3: 0.58 s for requests of 190 ms
		all = append(all, figures.Curve{Name: "published: single", Of: "single", Kind: figures.Published,
			Points: []figures.Point{{X: 0.71, Y: 0.58 / 0.19}}})
	}
	return all
}

// drawMeans draws mean response times over ρ: Apache above, virtual cores below.
func (r *Report) drawMeans(f figure, dir string) ([]string, error) {
	var panels []figures.Panel
	for _, kind := range kinds {
		curves := r.means(f, kind.virtual)
		if len(curves) == 0 {
			continue
		}
		panels = append(panels, figures.Panel{
			Y:      figures.Axis{Label: "mean, " + kind.title, Column: "mean_response_" + strings.Fields(kind.title)[0]},
			Curves: append(curves, published(f, curves)...),
		})
	}
	if len(panels) == 0 {
		return nil, nil // no run is claimed
	}
	notes := []string{"Unit: the mean request alone on its server. Same arrivals for all policies of a load."}
	if f.name == "6lb-11e" {
		notes = append(notes, "published: hunt:dynamic < wrr-feedback < rr < single above ρ = 0.7")
	}
	chart, err := figures.NewChart(figures.Chart{
		Title:  fmt.Sprintf("%s: mean response time, %d servers", f.name, r.experiment.Servers),
		Notes:  notes,
		X:      figures.Axis{Label: "load ρ", Column: "rho", To: 1},
		Panels: panels,
	})
	if err != nil {
		return nil, err
	}
	return chart.Save(dir, f.name)
}

// drawKinds draws a figure for each kind of servers.
func (r *Report) drawKinds(f figure, dir string, draw func(title string, of []*outcome) (*figures.Figure, error)) (paths []string, err error) {
	for _, kind := range kinds {
		of := r.of(f, kind.virtual)
		if len(of) == 0 {
			continue
		}
		figure, err := draw(r.title(f, kind.title), of)
		if err != nil {
			return paths, err
		}
		more, err := figure.Save(dir, f.name+kind.after)
		if paths = append(paths, more...); err != nil {
			return paths, err
		}
	}
	return paths, nil
}

// stretch makes seconds of virtual time those of Apache's service time.
func (r *Report) stretch(c cell, seconds []float64) []float64 {
	by := r.Calibration.Alone / r.unit(c)
	for i := range seconds {
		seconds[i] *= by
	}
	return seconds
}

func (r *Report) drawCDF(f figure, dir string) ([]string, error) {
	return r.drawKinds(f, dir, func(title string, of []*outcome) (*figures.Figure, error) {
		var responses []figures.Responses
		for _, o := range of {
			responses = append(responses, figures.Responses{Name: o.cell.policy, Seconds: r.stretch(o.cell, o.Latencies())})
		}
		return figures.CDF(title, responses)
	})
}

func (r *Report) drawLoad(f figure, dir string) ([]string, error) {
	return r.drawKinds(f, dir, func(title string, of []*outcome) (*figures.Figure, error) {
		var loads []figures.Load
		for _, o := range of {
			loads = append(loads, figures.Load{Name: o.cell.policy, Busy: o.Loads.Busy, Fairness: o.Loads.Fairness, Seconds: r.stretch(o.cell, slices.Clone(o.Loads.Seconds))})
		}
		return figures.LoadOverTime(title, loads)
	})
}

func (r *Report) title(f figure, on string) string {
	return fmt.Sprintf("%s on %s: %d servers, ρ = %.2f", f.name, on, r.experiment.Servers, f.loads(r.experiment)[0])
}
