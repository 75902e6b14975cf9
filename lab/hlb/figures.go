package hlb

import (
	"slices"

	"proffer/lab/farmrun"
	"proffer/lab/figures"
)

// figure is a figure of HLB §VI, and the runs that it needs.
type figure struct {
	name     string // its number
	shows    string
	scale    string // the differences from the paper, but for those of the whole farm
	policies []string
	cells    func(e Experiment) []cell // its settings; each is run by all policies
	draw     func(r *Report, f figure) ([]drawing, error)
	beside   func(r *Report) []farmrun.Published
	cost     bool // it needs the bench
}

// drawing is a picture and the name of its files.
type drawing struct {
	name   string
	figure *figures.Figure
}

// The policies of the paper's testbed; learned is HLB.
var (
	policies     = []string{"ecmp", "wcmp", "awcmp", "lsq", "gsq2", "sed", learned}
	bestPolicies = []string{"lsq", "gsq2", "sed", learned}
)

const (
	learned  = "learned"
	literal  = "learned:ages" // the paper's Algorithm 1
	peakLoad = 0.885
)

// lateLoad is that of the figures at 23:00.
const lateLoad = peakLoad * lateRate

// usual is a cell of most figures.
func usual(policy string, load float64) cell {
	return cell{policy: policy, lbs: 2, ratio: 2, load: load, kind: pages, course: steady}
}

func allFigures() []figure {
	const hour = "an hour of the day is a quarter of --for; its rates are made up from the two that the text states"
	return []figure{
		{name: "7", shows: "24 hours: mean response time, weights and rate", scale: hour,
			policies: policies, cells: dayCells, draw: (*Report).drawDay, beside: (*Report).besideDay},
		{name: "8", shows: "24 hours: response times of pages and of static requests", scale: hour + "; static requests take virtual cores, too",
			policies: policies, cells: dayCells, draw: (*Report).drawKinds, beside: (*Report).besideKinds},
		{name: "9", shows: "20:00: use of the servers of either group", scale: "CPU use is that of virtual cores",
			policies: []string{"lsq", "gsq2", "sed", "sed" + farmrun.Inverted, learned, literal},
			cells:    peakCells, draw: (*Report).drawUse, beside: (*Report).besideUse},
		{name: "11", shows: "23:00: cores 1:1, 1:2 and 1:4", scale: "boxes in place of distributions; Table III is not in our text of the paper",
			policies: bestPolicies, cells: ratioCells, draw: (*Report).drawRatios, beside: (*Report).besideRatios},
		{name: "14", shows: "weights and queues with 1 to 8 LBs", scale: "simulated in the paper, with 128 servers; here on the testbed",
			policies: []string{"sed", learned}, cells: queueCells, draw: (*Report).drawQueues, beside: (*Report).besideQueues},
		{name: "16", shows: "23:00: response times with 1 to 8 LBs, and how alike LBs see servers", scale: "",
			policies: []string{"awcmp", "lsq", "sed", learned}, cells: lbCells, draw: (*Report).drawLBs, beside: (*Report).besideLBs},
		{name: "20", shows: "23:00: response times for clients with a round trip", scale: "the text has no means of the round trips; ours are up to 2.5 mean services",
			policies: []string{"lsq", "sed", learned}, cells: rttCells, draw: (*Report).drawRTTs, beside: (*Report).besideRTTs},
		{name: "21", shows: "three kinds of requests, at moderate and high rates", scale: "no bytes are sent: files of the paper's sizes take a virtual resource that all servers have alike",
			policies: []string{"ecmp", "awcmp", "lsq", "sed", learned}, cells: kindCells, draw: (*Report).drawApplications, beside: (*Report).besideApplications},
		{name: "23", shows: "the servers with more cores get other work in the middle", scale: "half the servers, and services of two fifths of --mean, for as many requests a second as the paper's; other work halves the speed of virtual cores",
			policies: bestPolicies, cells: slowedCells, draw: (*Report).drawSlowed, beside: (*Report).besideSlowed},
		{name: "24", shows: "the cost of a connection: a SYN, a packet of data, a FIN", scale: "the program alone (docs/evidence/bench.md), of a service of 128 servers",
			draw: (*Report).drawCost, beside: (*Report).besideCost, cost: true},
	}
}

// peakCells is 20:00.
func peakCells(Experiment) []cell { return []cell{usual("", peakLoad)} }

func dayCells(Experiment) []cell {
	c := usual("", peakLoad)
	c.course = day
	return []cell{c}
}

// some of the values of an axis, or with --quick its ends.
func some(e Experiment, values ...int) []int {
	if e.Quick {
		return []int{values[0], values[len(values)-1]}
	}
	return values
}

func ratioCells(e Experiment) (all []cell) {
	for _, ratio := range some(e, 2, 1, 4) {
		c := usual("", lateLoad)
		c.ratio = ratio
		all = append(all, c)
	}
	return all
}

func lbCells(e Experiment) (all []cell) {
	for _, lbs := range some(e, 2, 1, 4, 8) {
		c := usual("", lateLoad)
		c.lbs = lbs
		all = append(all, c)
	}
	return all
}

func queueCells(e Experiment) (all []cell) {
	for _, c := range lbCells(e) {
		busy := c
		busy.load = peakLoad
		all = append(all, c, busy)
	}
	return all
}

func rttCells(e Experiment) (all []cell) {
	for _, rtt := range some(e, 0, 20, 50, 100) {
		c := usual("", lateLoad)
		c.rtt = rtt
		all = append(all, c)
	}
	return all
}

// moderateLoad is that of half of Figure 21.
const moderateLoad = 0.6

func kindCells(e Experiment) (all []cell) {
	for _, load := range []float64{moderateLoad, peakLoad} {
		if e.Quick && load < peakLoad {
			continue
		}
		for _, kind := range []requestKind{pages, loops, files} {
			c := usual("", load)
			c.kind = kind
			all = append(all, c)
		}
	}
	return all
}

func slowedCells(Experiment) []cell {
	c := usual("", slowedLoad)
	c.course = slowed
	return []cell{c}
}

// slowedLoad leaves nine tenths of the capacity that is left when two thirds of it are halved.
const slowedLoad = 0.6

func figureNames() []string {
	return mapped(allFigures(), func(f figure) string { return f.name })
}

// asked are the figures that are to be made.
func (e Experiment) asked() (all []figure) {
	for _, f := range allFigures() {
		if len(e.Figures) == 0 || slices.Contains(e.Figures, f.name) {
			f.policies = e.compared(f)
			all = append(all, f)
		}
	}
	return all
}

// compared are the policies of a figure that are asked for.
func (e Experiment) compared(f figure) []string {
	return slices.DeleteFunc(slices.Clone(f.policies), func(name string) bool {
		if len(e.Policies) > 0 {
			return !slices.Contains(e.Policies, name)
		}
		_, err := farmrun.ParseCompared(name)
		return err != nil || e.Quick && !slices.Contains([]string{"lsq", "sed", "sed" + farmrun.Inverted, learned}, name)
	})
}

// offered are the policies that the asked figures have.
func (e Experiment) offered() (all []string) {
	e.Policies, e.Quick = nil, false
	for _, f := range e.asked() {
		for _, name := range f.policies {
			if !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	return all
}

// runs are the cells of a figure, by all its policies.
func (f figure) runs(e Experiment) (all []cell) {
	if f.cells == nil {
		return nil
	}
	for _, c := range f.cells(e) {
		for _, p := range f.policies {
			c.policy = p
			all = append(all, c)
		}
	}
	return all
}

// allRuns are the cells that the asked figures need, each once.
func (e Experiment) allRuns() (all []cell) {
	for _, f := range e.asked() {
		for _, c := range f.runs(e) {
			if !slices.Contains(all, c) {
				all = append(all, c)
			}
		}
	}
	return all
}

// asksCost reports whether the bench is to run.
func (e Experiment) asksCost() bool {
	return slices.ContainsFunc(e.asked(), func(f figure) bool { return f.cost })
}
