package paper

import (
	"proffer/lab/figures"
	"proffer/lab/sim"
)

// The figures that are ours: every policy, at every load, where servers differ.

func ourFigures() []Figure {
	return []Figure{
		{"p90-farm-b", "ours: p90 against load for every policy on farm B c1:2", "", func(o Options) plan {
			return everyPolicy(o, farmB("c1:2", 4), "p90 against load, every policy: farm B c1:2 (cores 1 and 2), 4 LBs", 1, []float64{1, 1.5, 2, 3, 5, 10}, []float64{1, 1.2, 1.5, 2, 2.5})
		}},
		{"p90-speeds", "ours: p90 against load for every policy, half the servers 4 times as fast", "", func(o Options) plan {
			return everyPolicy(o, farmB("v1:4", 4), "p90 against load, every policy: farm B v1:4 (speeds 1 and 4), 4 LBs", 0.25, []float64{0.25, 0.5, 1, 2, 5, 10}, []float64{0.25, 0.35, 0.5, 0.7, 1, 1.5, 2.5})
		}},
	}
}

// plainPolicies know no load, or compare two random servers; the others look
// further. Together they are all of sim.Policies, but for gsq2, which is jsq2.
var plainPolicies = []string{
	"single", "rr", "wrr-feedback", "wcmp", "awcmp", "lsq2", "jsq2", "sed2", "learned2", "oracle2", "oraclef2",
	"hunt:static:4", "hunt:dynamic",
}

var keenPolicies = []string{
	"lsq", "sed", "learned:ages", "learned", "learned:ages:fixed", "jiq", "jsq", "guided", "guided:8", "oracle", "oraclef",
}

func everyPolicy(o Options, farm sim.Farm, title string, from float64, plainMarks, keenMarks []float64) plan {
	rhos := o.some(0.3, 0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.88, 0.9, 0.92, 0.94, 0.96)
	plain, keen := sweep{plainPolicies, rhos}, sweep{keenPolicies, rhos}
	measure := func(name string, rho float64) cell { return at(farm, name, rho, o).cell(latencies) }
	p := plan{cells: append(plain.cells(measure), keen.cells(measure)...)}
	p.draw = func(m measured) (*figures.Figure, error) {
		first := len(plainPolicies) * len(rhos)
		x := rhoAxis(0.3)
		x.To = 0.97
		return figures.NewChart(figures.Chart{
			Title: title,
			Notes: []string{overSeeds(o, "80,000 requests a run; a refusal counts as 40 s"), "above: policies that see no load, or that of two servers (hunting: of the one asked); below: of all servers, or reports; ecmp and hunt:always do as single does; gsq2 is jsq2"},
			X:     x, Taller: 0.5,
			Panels: []figures.Panel{
				{Y: figures.Axis{Label: "p90 (s), few facts", Column: "p90_blind_or_two_s", From: from, To: 10, Log: true, Marks: plainMarks}, Curves: plain.curves(m[:first], p90, 1e-3)},
				{Y: figures.Axis{Label: "p90 (s), many facts", Column: "p90_all_or_reports_s", From: from, To: 2.5, Log: true, Marks: keenMarks}, Curves: keen.curves(m[first:], p90, 1e-3)},
			},
		})
	}
	return p
}
