package experiment

import (
	"slices"

	"proffer/lab/farmrun"
	"proffer/lab/figures"
)

// hlbFigure is a figure of HLB §VI, and the runs that it needs.
type hlbFigure struct {
	name     string // its number
	shows    string
	scale    string // the differences from the paper, but for those of the whole farm
	policies []string
	cells    func(e HLB) []hlbCell // its settings; each is run by all policies
	draw     func(r *HLBReport, f hlbFigure) ([]drawing, error)
	beside   func(r *HLBReport) []farmrun.Published
	cost     bool // it needs the bench
}

// drawing is a picture and the name of its files.
type drawing struct {
	name   string
	figure *figures.Figure
}

// The policies of the paper's testbed; learned is HLB.
var (
	hlbPolicies = []string{"ecmp", "wcmp", "awcmp", "lsq", "gsq2", "sed", learned}
	hlbBest     = []string{"lsq", "gsq2", "sed", learned}
)

const (
	learned  = "learned"
	literal  = "learned:ages" // the paper's Algorithm 1
	peakLoad = 0.885
)

// hlbLoad is that of the figures at 23:00.
const hlbLoad = peakLoad * lateRate

// usual is a cell of most figures.
func usual(policy string, load float64) hlbCell {
	return hlbCell{policy: policy, lbs: 2, ratio: 2, load: load, kind: pages, course: steady}
}

func hlbFigures() []hlbFigure {
	const hour = "an hour of the day is a quarter of --for; its rates are made up from the two that the text states"
	return []hlbFigure{
		{name: "7", shows: "24 hours: mean response time, weights and rate", scale: hour,
			policies: hlbPolicies, cells: hlbDay, draw: (*HLBReport).drawDay, beside: (*HLBReport).besideDay},
		{name: "8", shows: "24 hours: response times of pages and of static requests", scale: hour + "; static requests take virtual cores, too",
			policies: hlbPolicies, cells: hlbDay, draw: (*HLBReport).drawKinds, beside: (*HLBReport).besideKinds},
		{name: "9", shows: "20:00: use of the servers of either group", scale: "CPU use is that of virtual cores",
			policies: []string{"lsq", "gsq2", "sed", "sed" + farmrun.Inverted, learned, literal},
			cells:    hlbPeak, draw: (*HLBReport).drawUse, beside: (*HLBReport).besideUse},
		{name: "11", shows: "23:00: cores 1:1, 1:2 and 1:4", scale: "boxes in place of distributions; Table III is not in our text of the paper",
			policies: hlbBest, cells: hlbRatios, draw: (*HLBReport).drawRatios, beside: (*HLBReport).besideRatios},
		{name: "14", shows: "weights and queues with 1 to 8 LBs", scale: "simulated in the paper, with 128 servers; here on the testbed",
			policies: []string{"sed", learned}, cells: hlbQueues, draw: (*HLBReport).drawQueues, beside: (*HLBReport).besideQueues},
		{name: "16", shows: "23:00: response times with 1 to 8 LBs, and how alike LBs see servers", scale: "",
			policies: []string{"awcmp", "lsq", "sed", learned}, cells: hlbLBs, draw: (*HLBReport).drawLBs, beside: (*HLBReport).besideLBs},
		{name: "20", shows: "23:00: response times for clients with a round trip", scale: "the text has no means of the round trips; ours are up to 2.5 mean services",
			policies: []string{"lsq", "sed", learned}, cells: hlbRTTs, draw: (*HLBReport).drawRTTs, beside: (*HLBReport).besideRTTs},
		{name: "21", shows: "three kinds of requests, at moderate and high rates", scale: "no bytes are sent: files of the paper's sizes take a virtual resource that all servers have alike",
			policies: []string{"ecmp", "awcmp", "lsq", "sed", learned}, cells: hlbKinds, draw: (*HLBReport).drawApplications, beside: (*HLBReport).besideApplications},
		{name: "23", shows: "the servers with more cores get other work in the middle", scale: "half the servers, and services of two fifths of --mean, for as many requests a second as the paper's; other work halves the speed of virtual cores",
			policies: hlbBest, cells: hlbSlowed, draw: (*HLBReport).drawSlowed, beside: (*HLBReport).besideSlowed},
		{name: "24", shows: "the cost of a connection: a SYN, a packet of data, a FIN", scale: "the program alone (docs/evidence/bench.md), of a service of 128 servers",
			draw: (*HLBReport).drawCost, beside: (*HLBReport).besideCost, cost: true},
	}
}

// hlbPeak is 20:00.
func hlbPeak(HLB) []hlbCell { return []hlbCell{usual("", peakLoad)} }

func hlbDay(HLB) []hlbCell {
	c := usual("", peakLoad)
	c.course = day
	return []hlbCell{c}
}

// some of the values of an axis, or with --quick its ends.
func some(e HLB, values ...int) []int {
	if e.Quick {
		return []int{values[0], values[len(values)-1]}
	}
	return values
}

func hlbRatios(e HLB) (all []hlbCell) {
	for _, ratio := range some(e, 2, 1, 4) {
		c := usual("", hlbLoad)
		c.ratio = ratio
		all = append(all, c)
	}
	return all
}

func hlbLBs(e HLB) (all []hlbCell) {
	for _, lbs := range some(e, 2, 1, 4, 8) {
		c := usual("", hlbLoad)
		c.lbs = lbs
		all = append(all, c)
	}
	return all
}

func hlbQueues(e HLB) (all []hlbCell) {
	for _, c := range hlbLBs(e) {
		busy := c
		busy.load = peakLoad
		all = append(all, c, busy)
	}
	return all
}

func hlbRTTs(e HLB) (all []hlbCell) {
	for _, rtt := range some(e, 0, 20, 50, 100) {
		c := usual("", hlbLoad)
		c.rtt = rtt
		all = append(all, c)
	}
	return all
}

// moderateLoad is that of half of Figure 21.
const moderateLoad = 0.6

func hlbKinds(e HLB) (all []hlbCell) {
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

func hlbSlowed(HLB) []hlbCell {
	c := usual("", slowedLoad)
	c.course = slowed
	return []hlbCell{c}
}

// slowedLoad leaves nine tenths of the capacity that is left when two thirds of it are halved.
const slowedLoad = 0.6

func hlbFigureNames() []string {
	return mapped(hlbFigures(), func(f hlbFigure) string { return f.name })
}

// asked are the figures that are to be made.
func (e HLB) asked() (all []hlbFigure) {
	for _, f := range hlbFigures() {
		if len(e.Figures) == 0 || slices.Contains(e.Figures, f.name) {
			f.policies = e.compared(f)
			all = append(all, f)
		}
	}
	return all
}

// compared are the policies of a figure that are asked for.
func (e HLB) compared(f hlbFigure) []string {
	return slices.DeleteFunc(slices.Clone(f.policies), func(name string) bool {
		if len(e.Policies) > 0 {
			return !slices.Contains(e.Policies, name)
		}
		_, err := farmrun.ParseCompared(name)
		return err != nil || e.Quick && !slices.Contains([]string{"lsq", "sed", "sed" + farmrun.Inverted, learned}, name)
	})
}

// offered are the policies that the asked figures have.
func (e HLB) offered() (all []string) {
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
func (f hlbFigure) runs(e HLB) (all []hlbCell) {
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
func (e HLB) allRuns() (all []hlbCell) {
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
func (e HLB) asksCost() bool {
	return slices.ContainsFunc(e.asked(), func(f hlbFigure) bool { return f.cost })
}
