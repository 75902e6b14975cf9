package bench

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"proffer/dataplane"
	"proffer/lab/figures"
	"proffer/lab/stats"
	"proffer/lab/tables"
)

// Report holds a bench's results.
type Report struct {
	Rows []Result

	clean, runs, counted int
	flowBytes            float64 // of the table of flows that are known throughout; 0: there was none
	verified             []dataplane.Verified
}

// Result is a row. Times are ns a packet, or a whole connection of Packets, the bench's
// own loop included, but for Net.
type Result struct {
	Program string   `json:"program"` // floor, lb, agent, edge or work
	Mode    string   `json:"mode"`    // how the service dispatches, and by which wire
	Case    string   `json:"case"`
	Flows   int      `json:"flows"`
	Packets int      `json:"packets"` // that a time is of: 1, or those of a connection
	Min     float64  `json:"min_ns"`
	Median  *float64 `json:"median_ns"` // of the clean runs; null without any
	Spread  *float64 `json:"spread_ns"` // of the clean runs, 10th to 90th percentile
	Clean   int      `json:"clean_runs"`
	Runs    int      `json:"runs"`
	// FloorRatio is Min over that of the floor of as many flows and packets.
	FloorRatio float64 `json:"floor_ratio"`
	// Net is Min without the least of the bench's own loop. NetRatio is the median of a reading's
	// over its floor's just before, both without their loops, of the clean runs, or of all.
	Net      float64 `json:"net_ns"`
	NetRatio float64 `json:"net_floor_ratio"`
}

func (r *Result) Name() string {
	return fmt.Sprintf("%s/%s/%s/%d", r.Program, r.Mode, r.Case, r.Flows)
}

// report condenses the readings.
func (s *session) report() *Report {
	var all [][]timing
	for _, row := range s.rows {
		all = append(all, row.readings)
	}
	best := fastest(all)
	report := &Report{verified: s.verified()}
	if lb := s.lbs[lbKnown]; lb != nil {
		report.flowBytes = float64(lb.FlowTableBytes()) / float64(s.knownEntries())
	}
	for _, row := range s.rows {
		r := row.result(best)
		floor := s.floorOf(row)
		r.FloorRatio = r.Min / (float64(r.Packets) * least(floor.readings))
		r.Net = s.net(row)
		report.Rows = append(report.Rows, r)
		report.clean += r.Clean
		report.runs += r.Runs
		for _, one := range row.readings {
			if one.counted {
				report.counted++
			}
		}
	}
	return report
}

// leastNet is the resolution of the kernel's times, in ns a packet.
const leastNet = 1

// net is a row's least time without the bench's own loop.
func (s *session) net(row *benchRow) float64 {
	loop := least(s.loopOf(row).readings)
	if s.loopOf(row) == row {
		return 0
	}
	for _, r := range row.readings {
		loop = min(loop, r.loop)
	}
	return least(row.readings) - loop
}

// verified reports the programs that were loaded.
func (s *session) verified() (all []dataplane.Verified) {
	type loaded interface {
		Verified() ([]dataplane.Verified, error)
	}
	var programs []loaded
	for _, lb := range s.lbs {
		programs = []loaded{lb} // all have the same
	}
	if s.agent != nil {
		programs = append(programs, s.agent)
	}
	for _, p := range programs {
		some, err := p.Verified()
		if err != nil {
			s.note(err.Error())
		}
		all = append(all, some...)
	}
	return all
}

func least(readings []timing) float64 {
	ns := readings[0].ns
	for _, r := range readings {
		ns = min(ns, r.ns)
	}
	return ns
}

func (r *benchRow) result(best spins) Result {
	out := Result{
		Program: r.program, Mode: r.mode, Case: r.kind, Flows: r.flows, Packets: max(r.packets, 1),
		Min: least(r.readings), Runs: len(r.readings),
	}
	readings := clean(r.readings, best)
	out.Clean = len(readings)
	if len(readings) == 0 {
		readings = r.readings
	}
	ns, ratios := sorted(readings, func(t timing) float64 { return t.ns }), sorted(readings, func(t timing) float64 { return t.ratio })
	out.NetRatio = stats.Quantile(ratios, 0.5)
	if out.Clean > 0 {
		median, spread := stats.Quantile(ns, 0.5), stats.Quantile(ns, 0.9)-stats.Quantile(ns, 0.1)
		out.Median, out.Spread = &median, &spread
	}
	return out
}

func sorted(readings []timing, of func(timing) float64) (all []float64) {
	for _, r := range readings {
		all = append(all, of(r))
	}
	slices.Sort(all)
	return all
}

// JSON is the array of rows.
func (r *Report) JSON() any { return r.Rows }

// Print writes the rows and the goals.
func (r *Report) Print(w io.Writer) error {
	t := tables.Left("program", "mode", "case", "flows", "min ns", "net", "median", "spread", "clean", "floor ×", "net ×")
	for _, row := range r.Rows {
		median, spread := "–", "–"
		if row.Median != nil {
			median, spread = fmt.Sprintf("%.0f", *row.Median), fmt.Sprintf("%.0f", *row.Spread)
		}
		t.Addf("%s\t%s\t%s\t%d\t%.0f\t%.0f\t%s\t%s\t%d/%d\t%.2f\t%.2f",
			row.Program, row.Mode, row.Case, row.Flows, row.Min, row.Net, median, spread, row.Clean, row.Runs, row.FloorRatio, row.NetRatio)
	}
	return errors.Join(t.Print(w), r.printCalls(w), r.printGoals(w))
}

// leastClean is the share of clean runs below which nothing has been measured. Minima and pairs
// decide, so a few of each row are enough.
const leastClean = 0.1

// Holds reports whether the CPU was quiet enough to measure.
func (r *Report) Holds() error {
	if float64(r.clean) >= leastClean*float64(r.runs) {
		return nil
	}
	busy := fmt.Sprintf("the CPU was too busy to measure: %d of %d runs were clean (as fast before and after as the CPU can be); stop other processes on it, or choose another with --cpu", r.clean, r.runs)
	if r.counted > 0 {
		busy += fmt.Sprintf("; in %d runs the kernel kept statistics of BPF programs (kernel.bpf_stats_enabled, or a tool that turns them on): stop that", r.counted)
	}
	return errors.New(busy)
}

// Files are the picture of the rows that have several numbers of flows.
func (r *Report) Files() []tables.File { return []tables.File{figures.File("bench", r.figure)} }

func (r *Report) figure() (*figures.Figure, error) {
	curves := r.curves()
	if len(curves) == 0 {
		return nil, errors.New("draw the bench: no row has a number of flows to draw it against")
	}
	most := 1
	for _, row := range r.Rows {
		most = max(most, row.Flows)
	}
	return figures.NewChart(figures.Chart{
		Title: "Cost of a packet, by flows in the table",
		Notes: []string{"Least of all runs, the bench's own loop included."},
		X:     figures.Axis{Label: "flows", Column: "flows", From: 1, To: float64(max(most, 10)), Log: true, Marks: powers(most)},
		Panels: []figures.Panel{{
			Y: figures.Axis{Label: "ns a packet", Column: "min_ns"}, Curves: curves,
		}},
		Taller: 0.4,
	})
}

// powers are the powers of ten up to most.
func powers(most int) (marks []float64) {
	for n := 1; n <= most; n *= 10 {
		marks = append(marks, float64(n))
	}
	return marks
}

// curves are the rows that depend on flows: known flows of every mode, and the floors.
func (r *Report) curves() (curves []figures.Curve) {
	for _, row := range r.Rows {
		name := row.Mode
		switch {
		case row.Program == "floor" && slices.Contains([]string{"line", "hash", "lru-hash"}, row.Case):
			name = "floor: " + row.Case
		case row.Program != "lb" || row.Case != "steer":
			continue
		}
		i := slices.IndexFunc(curves, func(c figures.Curve) bool { return c.Name == name })
		if i < 0 {
			i = len(curves)
			curves = append(curves, figures.Curve{Name: name})
		}
		curves[i].Points = append(curves[i].Points, figures.Point{X: float64(row.Flows), Y: row.Min})
	}
	return curves
}
