package loads

import (
	"errors"
	"fmt"
	"io"
	"math"

	"proffer/lab/figures"
	"proffer/lab/stats"
	"proffer/lab/tables"
)

// GainReport holds a Gain's results.
type GainReport struct {
	experiment Gain
	rows       []GainRow
	latencies  [][]float64 // of the rows
	failed     []error
}

// GainRow sums up one run.
type GainRow struct {
	Program  string  `json:"program"`
	Load     string  `json:"load"` // single (none), default or true
	Policy   string  `json:"policy"`
	Requests int     `json:"requests"` // answered
	Failed   int     `json:"failed"`
	MeanS    float64 `json:"mean_s"`
	P50S     float64 `json:"p50_s"`
	P90S     float64 `json:"p90_s"`
	GainS    float64 `json:"gain_s"`     // of p90, against single
	Share    float64 `json:"gain_share"` // of the gain by the true load; 0 where that has none
	Offered  float64 `json:"offered"`    // CPU time used over the quotas, mean over the run
	LateS    float64 `json:"late_s"`     // requests that left late, on average
}

// The figures that are to hold.
const (
	leastShare = 0.8
	mostLate   = 0.1 // of the true load's p50
)

// add takes a run; those of a program come in turn, single first and true last.
func (r *GainReport) add(program string, w gainWay, run *gained, capacity float64) {
	s := stats.Summarize(run.latencies)
	row := GainRow{
		Program: program, Load: w.name, Policy: w.policy, Requests: len(run.latencies), Failed: len(run.failed),
		MeanS: s.Mean, P50S: s.P50, P90S: s.P90, LateS: run.late.Seconds(),
		Offered: float64(len(run.latencies)+len(run.failed)) / r.experiment.For.Seconds() / capacity,
	}
	r.failed = append(r.failed, errors.Join(run.failed...))
	r.rows, r.latencies = append(r.rows, row), append(r.latencies, run.latencies)
	all := r.rows[len(r.rows)-r.index(w):]
	most := all[0].P90S - row.P90S // of the true load, once that came
	for i := range all {
		all[i].GainS = all[0].P90S - all[i].P90S
		all[i].Share = max(0, ratio(all[i].GainS, max(0, most)))
	}
}

// index is the number of runs of a program up to this way.
func (r *GainReport) index(w gainWay) int {
	for i, other := range r.experiment.ways() {
		if other == w {
			return i + 1
		}
	}
	return 0
}

// JSON is the output of --json: an array of rows.
func (r *GainReport) JSON() any { return r.rows }

// Holds is that all requests were answered, in time, and that the default has most of the gain.
func (r *GainReport) Holds() error {
	var errs []error
	for i, row := range r.rows {
		if row.Failed > 0 {
			errs = append(errs, fmt.Errorf("%s, %s: %d requests failed: %w", row.Program, row.Load, row.Failed, r.failed[i]))
		}
		if row.LateS > mostLate*row.P50S {
			errs = append(errs, fmt.Errorf("%s, %s: requests left %.1f ms late on average: stop other programs, or ask for less", row.Program, row.Load, 1e3*row.LateS))
		}
		if row.Load == "default" && row.Share < leastShare {
			errs = append(errs, fmt.Errorf("%s: the default has %.0f %% of the gain by the true load, and is to have %.0f", row.Program, 100*row.Share, 100*leastShare))
		}
	}
	return errors.Join(errs...)
}

// Print writes the table.
func (r *GainReport) Print(w io.Writer) error {
	e := r.experiment
	fmt.Fprintf(w, "%d servers of %.2f cores, load %.2f, %v of CPU time a request, arrivals of %v, seed %d\n\n", e.Servers, e.Share, e.Load, e.Mean, e.For, e.Seed)
	t := tables.New("program", "load", "policy", "requests", "failed", "mean ms", "p50", "p90", "gain", "of the true load's", "late ms")
	for _, row := range r.rows {
		share := "–"
		if row.Load == "default" {
			share = fmt.Sprintf("%.0f %%", 100*row.Share)
		}
		t.Addf("%s\t%s\t%s\t%d\t%d\t%.0f\t%.0f\t%.0f\t%.0f\t%s\t%.2f", row.Program, row.Load, row.Policy, row.Requests, row.Failed,
			1e3*row.MeanS, 1e3*row.P50S, 1e3*row.P90S, 1e3*row.GainS, share, 1e3*row.LateS)
	}
	return t.Print(w)
}

// Files are the picture and all latencies.
func (r *GainReport) Files() []tables.File {
	t := tables.New("program", "load", "latency_s")
	for i, row := range r.rows {
		for _, s := range r.latencies[i] {
			t.Add(row.Program, row.Load, tables.Digits(s, 4))
		}
	}
	return []tables.File{figures.File("load-gain", r.figure), t.CSVFile("gain-rows.csv")}
}

// figure has each program's p90, over that of single.
func (r *GainReport) figure() (*figures.Figure, error) {
	g := figures.Groups{Title: "p90, over that of single", GroupLabel: "program", GroupColumn: "program"}
	for _, w := range r.experiment.ways() {
		g.Series = append(g.Series, w.name)
	}
	panel := figures.BoxPanel{Y: figures.Axis{Label: "p90 / p90 of single", To: 1.2}, Columns: []string{"p90_ratio"}}
	for i := 0; i+len(g.Series) <= len(r.rows); i += len(g.Series) {
		g.Groups = append(g.Groups, r.rows[i].Program)
		var boxes []figures.Box
		for _, row := range r.rows[i : i+len(g.Series)] {
			ratio := row.P90S / r.rows[i].P90S
			boxes = append(boxes, figures.Box{Value: min(ratio, math.MaxFloat32)})
		}
		panel.Boxes = append(panel.Boxes, boxes)
	}
	g.Panels = []figures.BoxPanel{panel}
	return figures.NewGroups(g)
}
