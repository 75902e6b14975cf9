package paper

import (
	"fmt"
	"slices"

	"proffer/lab/figures"
	"proffer/lab/sim"
)

// Figures of the HLB simulator (HLB §VI) that compare response times on farm B.

const readings = "learned:ages samples ages at data packets, 5 a second, reservoir 32 (Algorithm 1); learned:completed is the other reading, durations of completed flows, reservoir 128"

func hlbFigures() []Figure {
	return []Figure{
		{"hlb-10", "farm B c1:2: mean and p90 against load, all the paper's policies and guided", readings, hlbRates},
		{"hlb-12a", "farm B: response times for 1:1, 1:2 and 1:4 cores at 70 and 90 %", "Table III is not in our text of the paper; 64 servers of each kind as in Figure 10", hlbRatios},
		{"hlb-13", "farm B c1:2: response times with 4 and 8 LBs, and of two random choices, at 90 %", readings, hlbTwo},
		{"hlb-18a", "farm B c1:2: response times for lognormal service of three means at 90 %", "the paper does not state the three distributions; here means of 0.25, 0.5 and 1 s, deviation = mean", hlbLognormal},
		{"hlb-22", "farm B c1:2: response times of CPU-IO-CPU requests at 90 %", "90 % of the resource that would be full first (docs/design/simulator.md); the paper does not say which", hlbStages},
	}
}

// farmB is a farm of the HLB paper; its kinds are known to be right.
func farmB(kind string, lbs int) sim.Farm {
	f, err := sim.FarmB(kind)
	if err != nil {
		panic(err)
	}
	f.LBs = lbs
	return f
}

const overflow = "a triangle at the top: beyond the axis"

// hlbRates is HLB Figure 10.
func hlbRates(o Options) plan {
	s := sweep{[]string{"ecmp", "wcmp", "awcmp", "lsq", "gsq2", "sed", "learned:ages", "learned:completed", "guided", "oracle"}, o.with(0.885, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.885, 0.91, 0.93, 0.95)}
	farm := farmB("c1:2", 4)
	p := plan{cells: s.cells(func(name string, rho float64) cell { return at(farm, name, rho, o).cell(latencies) })}
	p.draw = func(m measured) (*figures.Figure, error) {
		j := slices.Index(s.xs, 0.885)
		notes := []string{overSeeds(o, "farm B c1:2, 4 LBs, 80,000 requests a run"),
			"p90 at 88.5 %: learned:ages below lsq and sed, published: 24.64 and 25.59 %; ours: " + less(m, s, j, 6),
			"the other reading, learned:completed: " + less(m, s, j, 7) + "; guided: " + less(m, s, j, 8)}
		p90s := s.curves(m, p90, 1e-3)
		p90s = append(p90s,
			published("HLB, 24.64 % below lsq", "lsq", 0.885, (1-0.2464)*p90s[3].Points[j].Y),
			published("HLB, 25.59 % below sed", "sed", 0.885, (1-0.2559)*p90s[5].Points[j].Y))
		x := rhoAxis(0.5)
		x.To = 0.96
		return figures.NewChart(figures.Chart{
			Title: "HLB Figure 10: response time against load, farm B c1:2, 4 LBs", Notes: notes, X: x,
			Panels: []figures.Panel{
				{Y: figures.Axis{Label: "mean (s)", Column: "mean_s", To: 3}, Curves: s.curves(m, mean, 1e-3)},
				{Y: figures.Axis{Label: "p90 (s)", Column: "p90_s", To: 5}, Curves: p90s},
			},
		})
	}
	return p
}

// less states by how much the p90 of one policy is below those of lsq and sed.
func less(m measured, s sweep, x, of int) string {
	text := ""
	for i, than := range []int{3, 5} {
		value, half := ratio(m, s.index(of, x), s.index(than, x), p90)
		if i > 0 {
			text += " and "
		}
		text += fmt.Sprintf("%.1f ± %.1f %%", 100*(1-value), 100*half)
	}
	return text
}

// grid is boxes of latencies, one cell a panel, group and series.
type grid struct {
	panels, groups, series []string
	tops                   []float64 // of the panels' axes, in s; 0: as needed
}

func (g grid) cells(at func(panel, group, series string) cell) []cell {
	var cells []cell
	for _, panel := range g.panels {
		for _, group := range g.groups {
			for _, series := range g.series {
				cells = append(cells, at(panel, group, series))
			}
		}
	}
	return cells
}

func (g grid) plan(at func(panel, group, series string) cell, picture figures.Groups) plan {
	return plan{cells: g.cells(at), draw: func(m measured) (*figures.Figure, error) { return g.draw(m, picture) }}
}

// draw fills in the panels of a picture.
func (g grid) draw(m measured, picture figures.Groups) (*figures.Figure, error) {
	picture.Groups, picture.Series = g.groups, g.series
	n := 0
	for i, name := range g.panels {
		label, suffix := "response time (s)", ""
		if name != "" {
			label, suffix = name+": "+label, "_"+fmt.Sprint(i+1)
		}
		panel := figures.BoxPanel{
			Y:       figures.Axis{Label: label, To: g.tops[i]},
			Columns: []string{"p25_s" + suffix, "p50_s" + suffix, "p75_s" + suffix, "p90_s" + suffix},
		}
		for range g.groups {
			var boxes []figures.Box
			for range g.series {
				boxes = append(boxes, box(m, n))
				n++
			}
			panel.Boxes = append(panel.Boxes, boxes)
		}
		picture.Panels = append(picture.Panels, panel)
	}
	return figures.NewGroups(picture)
}

const boxNote = "boxes from the 25th to the 75th percentile, a line at the median, a dot at p90"

// hlbRatios is HLB Figure 12a.
func hlbRatios(o Options) plan {
	g := grid{[]string{"70 %", "90 %"}, []string{"1:1", "1:2", "1:4"}, []string{"wcmp", "awcmp", "lsq", "gsq2", "sed", "learned:ages", "learned:completed", "guided", "oracle"}, []float64{2.5, 5}}
	return g.plan(func(load, cores, policy string) cell {
		return at(farmB("c"+cores, 4), policy, map[string]float64{"70 %": 0.7, "90 %": 0.9}[load], o).cell(latencies)
	}, figures.Groups{
		Title:      "HLB Figure 12a: cores 1:1, 1:2 and 1:4, farm B, 4 LBs",
		Notes:      []string{overSeeds(o, boxNote) + "; " + overflow, "published: at 70 % HLB and sed are best; at 90 % lsq becomes better than sed, which overloads the strong"},
		GroupLabel: "cores of the first 64 and the second 64 servers", GroupColumn: "cores",
	})
}

// hlbTwo is HLB Figure 13.
func hlbTwo(o Options) plan {
	g := grid{[]string{""}, []string{"4 LBs", "8 LBs"}, []string{"lsq", "lsq2", "gsq2", "sed", "sed2", "learned:ages", "learned2:ages", "guided", "oracle", "oracle2"}, []float64{0}}
	return g.plan(func(_, lbs, policy string) cell {
		return at(farmB("c1:2", int(lbs[0]-'0')), policy, 0.9, o).cell(latencies)
	}, figures.Groups{
		Title:      "HLB Figure 13: two random choices (…2), farm B c1:2, 90 %",
		Notes:      []string{overSeeds(o, boxNote), "published: two choices harm lsq and HLB, and help sed with 8 LBs"},
		GroupLabel: "load balancers", GroupColumn: "lbs",
	})
}

var lognormals = []string{"0.25 s", "0.5 s", "1 s"}

func lognormal(farm sim.Farm, mean string) sim.Farm {
	s := map[string]float64{"0.25 s": 0.25, "0.5 s": 0.5, "1 s": 1}[mean]
	farm.Default.Service = sim.Lognormal(seconds(s), seconds(s))
	return farm
}

// hlbLognormal is HLB Figure 18a.
func hlbLognormal(o Options) plan {
	g := grid{[]string{""}, lognormals, []string{"lsq", "sed", "learned:ages:fixed", "learned:ages", "learned:completed", "guided", "oracle"}, []float64{0}}
	return g.plan(func(_, mean, policy string) cell {
		return at(lognormal(farmB("c1:2", 4), mean), policy, 0.9, o).cell(latencies)
	}, figures.Groups{
		Title:      "HLB Figure 18a: lognormal service times, farm B c1:2, 4 LBs, 90 %",
		Notes:      []string{overSeeds(o, boxNote), "learned:ages:fixed is HLB-FIX, R = 0.5; published: HLB is close to the oracle and better than HLB-FIX when the mean is higher"},
		GroupLabel: "mean and deviation of service times", GroupColumn: "service",
	})
}

// hlbStages is HLB Figure 22, with Table IV.
func hlbStages(o Options) plan {
	g := grid{[]string{""}, []string{"pure CPU", "CPU .75, IO .25", "CPU .5, IO .5", "CPU .25, IO .75"}, []string{"lsq", "gsq2", "sed", "awcmp", "learned:ages", "learned:completed", "guided", "oracle"}, []float64{0}}
	cpu := map[string]float64{"pure CPU": 1, "CPU .75, IO .25": 0.75, "CPU .5, IO .5": 0.5, "CPU .25, IO .75": 0.25}
	return g.plan(func(_, kind, policy string) cell {
		farm := farmB("c1:2", 4)
		farm.Default.Service = sim.Exponential(seconds(cpu[kind]))
		if cpu[kind] < 1 {
			farm.Default.Stages, farm.Default.IO = 3, sim.Exponential(seconds(1-cpu[kind]))
		}
		return at(farm, policy, 0.9, o).cell(latencies)
	}, figures.Groups{
		Title:      "HLB Figure 22: requests of three stages CPU-IO-CPU, farm B c1:2, 4 LBs, 90 %",
		Notes:      []string{overSeeds(o, boxNote), "published: HLB is best for all kinds; 90 % is of the scarcer resource: cores in the first two kinds, then disks"},
		GroupLabel: "mean seconds of each resource that a request needs", GroupColumn: "application",
	})
}
