package hlb

import (
	"fmt"
	"math"
	"slices"

	"proffer/lab/farmrun"
	"proffer/lab/figures"
	"proffer/lab/stats"
)

// Figures 9, 11 and 21: boxes by groups.

// boxColumns name the numbers of a box in the CSV.
var boxColumns = []string{"p25_s", "p50_s", "p75_s", "p90_s"}

// boxOf are the response times of a result that count, as a box; nothing without a result.
func boxOf(h *result) figures.Box {
	if h == nil {
		return figures.Box{Value: math.NaN()}
	}
	took := slices.Sorted(slices.Values(h.taken(func(request) bool { return true })))
	q := func(part float64) float64 { return stats.Quantile(took, part) }
	return figures.Box{Low: q(0.25), Middle: q(0.5), High: q(0.75), Value: q(0.9)}
}

const boxesNote = "boxes from the 25th to the 75th percentile, a line at the median, a dot at p90; a triangle: beyond the axis"

// groups draws panels of groups; none without a box.
func (r *Report) groups(name string, g figures.Groups) ([]drawing, error) {
	some := false
	for _, p := range g.Panels {
		for _, boxes := range p.Boxes {
			some = some || slices.ContainsFunc(boxes, func(b figures.Box) bool { return !math.IsNaN(b.Value) })
		}
	}
	if !some {
		return nil, nil // no run is claimed
	}
	figure, err := figures.NewGroups(g)
	if err != nil {
		return nil, err
	}
	return []drawing{{"hlb-" + name, figure}}, nil
}

// use is how busy some servers of a run were, means over time (Figure 9).
type use struct{ cpu, cpuFairness, most, busy, busyFairness, response float64 }

// useOf is that of the servers which; the response is of their answers.
func (h *result) useOf(which func(i int) bool) (u use) {
	n := 0.0
	h.busyOf(func(_ float64, busy []float64) {
		var cpu, hands []float64
		for i, b := range busy {
			if which(i) {
				cpu = append(cpu, min(1, b/float64(h.kinds.Machine(i).Cores)))
				hands = append(hands, b)
			}
		}
		u.cpu += mean(cpu)
		u.cpuFairness += stats.Jain(cpu)
		u.most += slices.Max(cpu) / max(mean(cpu), 1e-9)
		u.busy += mean(hands)
		u.busyFairness += stats.Jain(hands)
		n++
	})
	for _, sum := range []*float64{&u.cpu, &u.cpuFairness, &u.most, &u.busy, &u.busyFairness} {
		*sum /= n
	}
	u.response = stats.OrZero(stats.Summarize(h.taken(func(q request) bool { return q.fast && which(len(h.kinds.Machines())-1) || !q.fast && which(0) })).Mean)
	return u
}

func mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(max(len(x), 1))
}

// groupsOf are the first, the second and all servers.
func (h *result) groupsOf() []func(i int) bool {
	return []func(i int) bool{
		func(i int) bool { return !inSecond(h.kinds, i) }, func(i int) bool { return inSecond(h.kinds, i) }, func(int) bool { return true },
	}
}

func (r *Report) drawUse(f figure) ([]drawing, error) {
	g := figures.Groups{
		Title: "HLB Figure 9: use of servers at the peak, " + r.short(f), Notes: []string{r.farm(), "fairness: Jain's index; over the mean: the busiest core's use over all cores' at an instant"},
		GroupLabel: "servers", GroupColumn: "servers", Groups: []string{"1 core", "2 cores", "all"},
	}
	for _, p := range []struct {
		label, column string
		of            func(use) float64
	}{
		{"CPU use", "cpu", func(u use) float64 { return u.cpu }},
		{"its fairness", "cpu_fairness", func(u use) float64 { return u.cpuFairness }},
		{"over the mean", "overprovision", func(u use) float64 { return u.most }},
		{"busy workers", "busy", func(u use) float64 { return u.busy }},
		{"their fairness", "busy_fairness", func(u use) float64 { return u.busyFairness }},
		{"mean resp. (s)", "mean_s", func(u use) float64 { return u.response }},
	} {
		panel := figures.BoxPanel{Y: figures.Axis{Label: p.label}, Columns: []string{p.column}, Boxes: make([][]figures.Box, len(g.Groups))}
		for _, h := range r.of(f) {
			for i, which := range h.groupsOf() {
				panel.Boxes[i] = append(panel.Boxes[i], figures.Box{Value: p.of(h.useOf(which))})
			}
		}
		g.Panels = append(g.Panels, panel)
	}
	g.Series = mapped(r.of(f), func(h *result) string { return h.cell.policy })
	return r.groups("9", g)
}

func (r *Report) besideUse() (all []farmrun.Published) {
	add := func(policy, shows, published string, ours func(h *result) string) {
		if h := r.find(usual(policy, peakLoad)); h != nil {
			all = append(all, farmrun.OfPaper(shows, published, ours(h)))
		}
	}
	served := func(h *result) string { return fmt.Sprintf("%.2f times", h.row.Fast/max(1-h.row.Fast, 1e-9)) }
	slower := func(h *result) string { return fmt.Sprintf("%+.0f %%", 100*(h.row.SlowMean/h.row.FastMean-1)) }
	add("sed", "requests of sed to servers with 2 cores, of those to 1", "2.3 times", served)
	add(learned, "of HLB", "1.35 times", served)
	add(literal, "of HLB as Algorithm 1 has it", "1.35 times", served)
	add("lsq", "mean response of lsq on servers with 1 core, beside 2", "+71 %", slower)
	add("gsq2", "of gsq2", "+131 %", slower)
	for _, goal := range []struct{ than, wanted string }{{"lsq", "15 % at least"}, {"sed" + farmrun.Inverted, "25 % at least"}, {"sed", "−10 % at least"}} {
		other := r.find(usual(goal.than, peakLoad))
		if other == nil {
			continue
		}
		add(learned, "p90 of HLB less than that of "+goal.than+" (goal)", goal.wanted, func(h *result) string { return farmrun.Percent(1 - h.row.P90/other.row.P90) })
	}
	return all
}

// boxesBy draws response times of a figure's settings, each a group, and the second panel if there
// is one.
func (r *Report) boxesBy(f figure, g figures.Groups, name func(cell) string) figures.Groups {
	panel := figures.BoxPanel{Y: figures.Axis{Label: "response time (s)"}, Columns: boxColumns}
	g.Series = f.policies
	for _, c := range f.cells(r.experiment) {
		g.Groups = append(g.Groups, name(c))
		var boxes []figures.Box
		for _, c.policy = range f.policies {
			boxes = append(boxes, boxOf(r.find(c)))
		}
		panel.Boxes = append(panel.Boxes, boxes)
	}
	panel.Y.To = axisFor(panel.Boxes)
	g.Panels = append(g.Panels, panel)
	return g
}

// axisFor is an end of the axis at which overloaded policies do not press the others flat: four
// times the median p90.
func axisFor(all [][]figures.Box) float64 {
	var values []float64
	for _, b := range slices.Concat(all...) {
		if !math.IsNaN(b.Value) {
			values = append(values, b.Value)
		}
	}
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	if end := 4 * stats.Quantile(values, 0.5); values[len(values)-1] > end {
		return end
	}
	return 0
}

func (r *Report) drawRatios(f figure) ([]drawing, error) {
	g := r.boxesBy(f, figures.Groups{
		Title: "HLB Figure 11: cores of the two groups, " + r.short(f), Notes: []string{boxesNote, r.farm()},
		GroupLabel: "cores", GroupColumn: "cores",
	}, func(c cell) string { return fmt.Sprintf("1:%d", c.ratio) })
	weights := figures.BoxPanel{Y: figures.Axis{Label: "weights, second ÷ first"}, Columns: []string{"weights_ratio"}}
	for i, c := range f.cells(r.experiment) {
		boxes := make([]figures.Box, len(f.policies))
		for j := range boxes {
			boxes[j].Value = math.NaN()
			if c.policy = f.policies[j]; c.policy != learned {
				continue
			}
			if h := r.find(c); h != nil {
				boxes[j].Value = h.row.Weights
				weights.Published = append(weights.Published, figures.PublishedBox{Group: i, Series: j, Value: float64(c.ratio)})
			}
		}
		weights.Boxes = append(weights.Boxes, boxes)
	}
	g.Notes = append(g.Notes, "rings: the ratio of cores; published: HLB's weights are closer together than that")
	g.Panels = append(g.Panels, weights)
	return r.groups("11", g)
}

func (r *Report) besideRatios() (all []farmrun.Published) {
	for _, c := range ratioCells(r.experiment) {
		c.policy = learned
		if h := r.find(c); h != nil {
			published := fmt.Sprintf("below %d", c.ratio)
			if c.ratio == 1 {
				published = "1"
			}
			all = append(all, farmrun.OfPaper(fmt.Sprintf("HLB's weights, cores 1:%d", c.ratio), published, fmt.Sprintf("%.2f", h.row.Weights)))
		}
	}
	return all
}

func (r *Report) drawApplications(f figure) ([]drawing, error) {
	g := r.boxesBy(f, figures.Groups{
		Title: "HLB Figure 21: kinds of requests, " + r.short(f), Notes: []string{boxesNote, r.farm()},
		GroupLabel: "kind of requests, and load", GroupColumn: "requests",
	}, func(c cell) string { return fmt.Sprintf("%s, ρ %.3g", c.kind, c.load) })
	return r.groups("21", g)
}

func (r *Report) besideApplications() (all []farmrun.Published) {
	p90s := func(kind requestKind, names ...string) string {
		text := ""
		for _, name := range names {
			c := usual(name, peakLoad)
			c.kind = kind
			if h := r.find(c); h != nil {
				if text != "" {
					text += ", "
				}
				text += fmt.Sprintf("%s %.0f", name, h.row.P90*1e3)
			}
		}
		return text
	}
	for _, b := range []struct {
		kind      requestKind
		published string
		names     []string
	}{
		{loops, "lsq like sed and HLB", []string{"lsq", "sed", learned}},
		{files, "lsq no better than ecmp; sed and HLB best", []string{"ecmp", "lsq", "sed", learned}},
		{pages, "sed and HLB best", []string{"ecmp", "awcmp", "lsq", "sed", learned}},
	} {
		if text := p90s(b.kind, b.names...); text != "" {
			all = append(all, farmrun.OfPaper(fmt.Sprintf("%s at ρ %.3g, p90 in ms", b.kind, peakLoad), b.published, text))
		}
	}
	return all
}
