package edge

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"proffer/lab/edgesim"
	"proffer/lab/figures"
	"proffer/lab/tables"
)

// Files are the figures and their samples.
func (r *Report) Files() (all []tables.File) {
	for _, f := range []struct {
		name, number string
		draw         func() figures.Chart
	}{{"edge-4", "4", r.elephants}, {"edge-5", "5", r.doubling}} {
		if slices.ContainsFunc(r.runs, func(run *run) bool { return run.cell.figure == f.number }) {
			all = append(all, figures.File(f.name, func() (*figures.Figure, error) { return figures.NewChart(f.draw()) }))
		}
	}
	if len(r.predicted) > 0 {
		all = append(all, figures.File("edge-3", func() (*figures.Figure, error) { return figures.NewChart(r.prediction()) }))
	}
	if len(r.runs) > 0 {
		all = append(all, r.samples().CSVFile("edge-samples.csv"))
	}
	return all
}

// samples are rows of the loads between one sample and the next.
func (r *Report) samples() *tables.Table {
	t := tables.New("figure", "balancer", "share_percent", "time_s", "load_0", "load_1", "predicted_0", "predicted_1", "weight_0", "weight_1")
	of := func(v float64) tables.Fixed { return tables.Digits(v, 4) }
	for _, run := range r.runs {
		for i, s := range run.samples[min(1, len(run.samples)):] {
			loads := loadsBetween(run.samples[i], s)
			t.Add(run.cell.figure, run.cell.balancer, run.cell.share, of(s.seconds),
				of(loads[0]), of(loads[1]), of(s.predicted[0]), of(s.predicted[1]), of(s.weights[0]), of(s.weights[1]))
		}
	}
	return t
}

func (r *Report) note() string {
	e := r.experiment
	return fmt.Sprintf("two nodes of one virtual core; packets of %v, %.0f times the paper's cost and as much rarer; noise of reports %v", e.Cost, e.scale(), e.Noise)
}

// elephants is figure 4.
func (r *Report) elephants() figures.Chart {
	c := figures.Chart{
		Title: "EdgeBalance Figure 4 on real daemons: varying fraction of elephant flow traffic",
		Notes: []string{r.note(), "latency at the paper's cost; two such servers can lose at most 21 % of the packets, not the published 33 %"},
		X:     figures.Axis{Label: "share of the packets that the elephant sends (%)", Column: "elephant_percent", To: 50},
	}
	for _, p := range []struct {
		y  figures.Axis
		of func(Row) float64
	}{
		{figures.Axis{Label: "4a: packets served (%)", Column: "served_percent", From: 60, To: 102}, func(row Row) float64 { return 100 * row.Throughput / max(1, row.Offered) }},
		{figures.Axis{Label: "4b: latency (µs)", Column: "latency_us", From: 0.5, To: 1000, Log: true}, func(row Row) float64 { return float64(row.atPaper()) }},
		{figures.Axis{Label: "4c: CPU difference (%)", Column: "cpu_difference_percent"}, func(row Row) float64 { return float64(100 * row.CPU) }},
	} {
		c.Panels = append(c.Panels, figures.Panel{Y: p.y, Curves: r.curves(p.of)})
	}
	for _, published := range []struct {
		of   string
		at   int
		is   float64
		name string
	}{
		{"wrr", 0, 67, "published: wrr"}, {"wrr", 1, 300, "published: wrr"}, {"wrr", 2, 41, "published: wrr"},
		{"model", 2, 3, "published bound: model"}, {"monitor", 2, 7, "published bound: monitor"},
	} {
		p := &c.Panels[published.at]
		p.Curves = append(p.Curves, figures.Curve{Name: published.name, Of: published.of, Kind: figures.Published, Points: []figures.Point{{X: mostShare, Y: published.is}}})
	}
	return c
}

// prediction is figure 3: the loads as predicted over those measured, and how far they are apart, by the start's
// costs and as the LB learns.
func (r *Report) prediction() figures.Chart {
	chart := figures.Chart{
		Title: "EdgeBalance Figure 3 on a real core: CPU usage prediction accuracy",
		X:     figures.Axis{Label: "measured: the kernel's run time of the core's programs (%)", Column: "measured_percent", To: 105},
	}
	sorted := slices.SortedFunc(slices.Values(r.predicted), func(a, b PredictionRow) int { return cmp.Compare(a.Measured, b.Measured) })
	for _, by := range []struct {
		name, column string
		of           func(PredictionRow) float64
	}{{"by the start's cost", "started", PredictionRow.ByStart}, {"as the LB learns", "learned", PredictionRow.AsLearned}} {
		mean, most := PredictionErrors(r.predicted, by.of)
		chart.Notes = append(chart.Notes, fmt.Sprintf("chains of %v a packet; average absolute error %s: %.1f points of CPU, greatest %.1f; published: 1.8 %%", predictedCost, by.name, mean, most))
		loads := figures.Panel{Y: figures.Axis{Label: by.name + " (%)", Column: by.column + "_percent", To: 105}}
		apart := figures.Panel{Y: figures.Axis{Label: by.name + ": |error| (points)", Column: by.column + "_error_points"}}
		for _, c := range PaperChains() {
			load, off := figures.Curve{Name: c.Name}, figures.Curve{Name: c.Name}
			for _, p := range sorted {
				if p.Chain == c.Name {
					load.Points = append(load.Points, figures.Point{X: 100 * p.Measured, Y: 100 * by.of(p)})
					off.Points = append(off.Points, figures.Point{X: 100 * p.Measured, Y: 100 * math.Abs(by.of(p)-p.Measured)})
				}
			}
			if len(load.Points) > 0 {
				loads.Curves, apart.Curves = append(loads.Curves, load), append(apart.Curves, off)
			}
		}
		chart.Panels = append(chart.Panels, loads, apart)
	}
	return chart
}

// curves of a number over the elephant's share, for each balancer.
func (r *Report) curves(of func(Row) float64) (all []figures.Curve) {
	for _, balancer := range Balancers() {
		curve := figures.Curve{Name: balancer}
		for _, row := range r.Rows() {
			if row.Figure == "4" && row.Balancer == balancer {
				curve.Points = append(curve.Points, figures.Point{X: 100 * row.Share, Y: of(row)})
			}
		}
		if len(curve.Points) > 0 {
			all = append(all, curve)
		}
	}
	return all
}

// doubling is figure 5.
func (r *Report) doubling() figures.Chart {
	c := figures.Chart{
		Title: "EdgeBalance Figure 5 on real daemons: CPU usage for a dynamic workload",
		X:     figures.Axis{Label: "time (s)", Column: "time_s"},
		Notes: []string{r.note()},
	}
	for _, run := range r.runs {
		if run.cell.figure != "5" {
			continue
		}
		name := run.cell.balancer
		p := figures.Panel{Y: figures.Axis{Label: name + ": CPU (%)", Column: name + "_cpu_percent", To: 105}}
		for node, called := range []string{"first node", "spare node"} {
			curve := figures.Curve{Name: called}
			for _, w := range windows(run.samples, edgesim.LevelOver) {
				curve.Points = append(curve.Points, figures.Point{X: w.end - edgesim.LevelOver.Seconds()/2, Y: 100 * w.loads[node]})
			}
			p.Curves = append(p.Curves, curve)
		}
		if at, some := map[string]float64{"model": 1, "wrr": 35}[name]; some {
			p.Curves = append(p.Curves, figures.Curve{Name: "published: level from here", Kind: figures.Published,
				Points: []figures.Point{{X: edgesim.Doubling.Seconds() + at, Y: 100 * edgesim.Before}}})
		}
		c.Panels = append(c.Panels, p)
	}
	return c
}
