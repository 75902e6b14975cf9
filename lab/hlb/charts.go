package hlb

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"proffer/lab/farmrun"
	"proffer/lab/figures"
	"proffer/lab/stats"
)

// Figures 14, 16, 20, 23 and 24: curves, and the cost.

// curves of a number over the settings of a figure, for each policy.
func (r *Report) curves(f figure, x func(cell) float64, which func(cell) bool, y func(Run) float64) (all []figures.Curve) {
	for _, p := range f.policies {
		curve := figures.Curve{Name: p}
		for _, c := range f.cells(r.experiment) {
			c.policy = p
			if h := r.find(c); h != nil && which(c) && y(h.row) > 0 {
				curve.Points = append(curve.Points, figures.Point{X: x(c), Y: y(h.row)})
			}
		}
		if len(curve.Points) > 0 {
			slices.SortFunc(curve.Points, func(a, b figures.Point) int { return int(math.Copysign(1, a.X-b.X)) })
			all = append(all, curve)
		}
	}
	return all
}

func lbsOf(c cell) float64 { return float64(c.lbs) }

var lbsAxis = figures.Axis{Label: "load balancers", Column: "lbs", To: 8.3, Marks: []float64{1, 2, 4, 8}}

func (r *Report) drawQueues(f figure) ([]drawing, error) {
	c := figures.Chart{
		Title: "HLB Figure 14: weights and queues by the number of LBs", X: lbsAxis,
		Notes: []string{r.farm(), "published (simulated): with more LBs sed gives the strong too much, 74.2 % of the requests with 8"},
	}
	for _, load := range []float64{lateLoad, peakLoad} {
		at := func(c cell) bool { return c.load == load }
		suffix := fmt.Sprintf(", ρ %.2f", load)
		column := strings.Replace(fmt.Sprintf("_%.2f", load), ".", "", 1)
		c.Panels = append(c.Panels,
			figures.Panel{Y: figures.Axis{Label: "weights" + suffix, Column: "weights_ratio" + column},
				Curves: r.curves(f, lbsOf, func(c cell) bool { return at(c) && c.policy == learned }, func(s Run) float64 { return s.Weights })},
			figures.Panel{Y: figures.Axis{Label: "queued at 2 cores (%)" + suffix, Column: "queued_at_second_percent" + column, To: 100},
				Curves: r.curves(f, lbsOf, at, func(s Run) float64 { return 100 * s.Queue })})
	}
	return r.chart("14", c)
}

func (r *Report) besideQueues() (all []farmrun.Published) {
	c := usual("sed", peakLoad)
	c.lbs = 8
	if h := r.find(c); h != nil {
		all = append(all, farmrun.OfPaper("requests of sed to the strong with 8 LBs", "74.2 %, at 90 %", farmrun.Percent(h.row.Fast)))
	}
	if c.policy = learned; r.find(c) != nil {
		all = append(all, farmrun.OfPaper("of HLB", "no number; queues alike", farmrun.Percent(r.find(c).row.Fast)))
	}
	return all
}

func (r *Report) drawLBs(f figure) ([]drawing, error) {
	all := func(cell) bool { return true }
	c := figures.Chart{
		Title: "HLB Figure 16a: response times by the number of LBs", X: lbsAxis,
		Notes: []string{r.farm(), "published: sed and lsq are worse with more LBs, HLB least of all, awcmp better, as more LBs poll"},
		Panels: []figures.Panel{
			{Y: figures.Axis{Label: "mean (ms)", Column: "mean_ms"}, Curves: r.curves(f, lbsOf, all, func(s Run) float64 { return s.Mean * 1e3 })},
			{Y: figures.Axis{Label: "p90 (ms)", Column: "p90_ms"}, Curves: r.curves(f, lbsOf, all, func(s Run) float64 { return s.P90 * 1e3 })},
		},
	}
	a, err := r.chart("16a", c)
	if err != nil {
		return a, err
	}
	b, err := r.drawAlike(f)
	return append(a, b...), err
}

// drawAlike is Figure 16b: each LB's part of a measurement of a server, times the number of LBs.
func (r *Report) drawAlike(f figure) ([]drawing, error) {
	g := figures.Groups{
		Title: "HLB Figure 16b: how alike LBs see the servers", Series: []string{"flows", "durations"}, GroupLabel: "load balancers", GroupColumn: "lbs",
		Notes: []string{"M·z_ij / Σ z_ij, z_ij an LB's part of the server in its sum; 1: all LBs see alike", boxesNote, "published: flows are less alike with more LBs, durations less so"},
	}
	panel := figures.BoxPanel{Y: figures.Axis{Label: "part of an LB"}, Columns: []string{"p25", "p50", "p75", "p90"}}
	for _, c := range f.cells(r.experiment) {
		c.policy = learned
		h := r.find(c)
		if h == nil {
			continue
		}
		g.Groups = append(g.Groups, fmt.Sprint(c.lbs))
		var boxes []figures.Box
		for _, of := range []func(belief) []float64{belief.flows, belief.durations} {
			parts := slices.Sorted(slices.Values(h.parts(of)))
			q := func(part float64) float64 { return stats.Quantile(parts, part) }
			boxes = append(boxes, figures.Box{Low: q(0.25), Middle: q(0.5), High: q(0.75), Value: q(0.9)})
		}
		panel.Boxes = append(panel.Boxes, boxes)
	}
	g.Panels = []figures.BoxPanel{panel}
	return r.groups("16b", g)
}

// parts are those of all LBs and servers, at each instant that counts.
func (h *result) parts(of func(belief) []float64) (all []float64) {
	m := h.cell.lbs
	for first := 0; first+m <= len(h.beliefs); first += m {
		asked := h.beliefs[first : first+m]
		if asked[0].seconds < h.from {
			continue
		}
		sums := make([]float64, len(asked[0].servers))
		parts := mapped(asked, func(b belief) []float64 { return portions(of(b)) })
		for _, lb := range parts {
			for i, z := range lb {
				sums[i] += z
			}
		}
		for _, lb := range parts {
			for i, z := range lb {
				if sums[i] > 0 {
					all = append(all, float64(m)*z/sums[i])
				}
			}
		}
	}
	return all
}

// portions are values over their sum.
func portions(values []float64) []float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return mapped(values, func(v float64) float64 { return v / max(sum, 1e-12) })
}

// rises states how the p90 of policies goes between two settings.
func (r *Report) rises(names []string, from, to cell) string {
	var parts []string
	for _, name := range names {
		from.policy, to.policy = name, name
		if a, b := r.find(from), r.find(to); a != nil && b != nil {
			parts = append(parts, fmt.Sprintf("%s %+.0f %%", name, 100*(b.row.P90/a.row.P90-1)))
		}
	}
	return strings.Join(parts, ", ")
}

func (r *Report) besideLBs() (all []farmrun.Published) {
	from, to := usual("", lateLoad), usual("", lateLoad)
	from.lbs, to.lbs = 2, 8
	if text := r.rises([]string{"lsq", "sed", "awcmp", learned}, from, to); text != "" {
		all = append(all, farmrun.OfPaper("p90 from 2 to 8 LBs", "sed and lsq up, HLB least, awcmp down", text))
	}
	return all
}

func (r *Report) drawRTTs(f figure) ([]drawing, error) {
	x := func(c cell) float64 { return float64(c.rtt) }
	all := func(cell) bool { return true }
	return r.chart("20", figures.Chart{
		Title: "HLB Figure 20: clients with a round trip, " + r.short(f), X: figures.Axis{Label: "mean round trip (ms)", Column: "rtt_ms"},
		Notes: []string{r.farm(), "Pareto's, deviation of each way half its mean, 25 % correlated; a request takes two round trips", "published: the mean grows linearly, HLB below lsq and sed"},
		Panels: []figures.Panel{
			{Y: figures.Axis{Label: "mean (ms)", Column: "mean_ms"}, Curves: r.curves(f, x, all, func(s Run) float64 { return s.Mean * 1e3 })},
			{Y: figures.Axis{Label: "deviation (ms)", Column: "sd_ms"}, Curves: r.curves(f, x, all, func(s Run) float64 { return s.SD * 1e3 })},
		},
	})
}

func (r *Report) besideRTTs() (all []farmrun.Published) {
	for _, c := range rttCells(r.experiment) {
		text := ""
		for _, name := range []string{"lsq", "sed", learned} {
			if c.policy = name; r.find(c) != nil {
				text += fmt.Sprintf("%s %.1f ± %.1f  ", name, r.find(c).row.Mean*1e3, r.find(c).row.SD*1e3)
			}
		}
		if text != "" {
			all = append(all, farmrun.OfPaper(fmt.Sprintf("mean and deviation in ms, RTT %d ms", c.rtt), "linear in the RTT; HLB below lsq and sed", strings.TrimSpace(text)))
		}
	}
	return all
}
