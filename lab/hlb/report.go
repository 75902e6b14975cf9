package hlb

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"proffer/lab/farmrun"
	"proffer/lab/tables"
)

// Report holds an HLB's results.
type Report struct {
	experiment Experiment
	results    []*result
	costs      []Cost
	unclaimed  []unclaimed
	figures    []Figure
	paths      []string
	unkept     error // files that could not be written
}

// unclaimed is a cell without a result, and why.
type unclaimed struct {
	cell   cell
	reason string
}

// Figure is one figure's part of the output of --json.
type Figure struct {
	Figure    string              `json:"figure"`
	Shows     string              `json:"shows"`
	Scale     string              `json:"scale"` // how ours differs
	Runs      []Run               `json:"runs"`
	Costs     []Cost              `json:"costs"`
	Published []farmrun.Published `json:"beside"` // values of the paper's text beside ours

	Unclaimed []farmrun.Unclaimed `json:"unclaimed"` // runs without a result, and why
}

// find is the result of a cell; nil: it has none, yet.
func (r *Report) find(c cell) *result {
	for _, h := range r.results {
		if h.cell == c {
			return h
		}
	}
	return nil
}

// of returns a figure's results, as far as they are claimed.
func (r *Report) of(f figure) (all []*result) {
	for _, c := range f.runs(r.experiment) {
		if h := r.find(c); h != nil {
			all = append(all, h)
		}
	}
	return all
}

// missing are a figure's cells without a result.
func (r *Report) missing(f figure) []farmrun.Unclaimed {
	all, cells := []farmrun.Unclaimed{}, f.runs(r.experiment)
	for _, u := range r.unclaimed {
		if slices.Contains(cells, u.cell) && r.find(u.cell) == nil {
			all = append(all, farmrun.Unclaimed{Policy: u.cell.String(), Reason: u.reason})
		}
	}
	return all
}

// conclude sums a figure up, and writes it if there is a folder for it.
func (r *Report) conclude(f figure) {
	out := Figure{Figure: f.name, Shows: f.shows, Scale: f.scale, Runs: []Run{}, Costs: []Cost{}, Published: f.beside(r), Unclaimed: r.missing(f)}
	for _, h := range r.of(f) {
		out.Runs = append(out.Runs, h.row)
	}
	if f.cost {
		out.Costs = append(out.Costs, r.costs...)
	}
	r.figures = append(r.figures, out)
	if dir := r.experiment.Out; dir != "" {
		r.unkept = errors.Join(r.unkept, r.save(f, out, dir))
	}
}

// save writes a figure, and its part of the JSON.
func (r *Report) save(f figure, out Figure, dir string) error {
	files := []tables.File{tables.JSONFile("hlb-"+f.name+".json", out)}
	drawings, err := f.draw(r, f)
	for _, d := range drawings {
		files = append(files, func(dir string) ([]string, error) { return d.figure.Save(dir, d.name) })
	}
	paths, failed := tables.Save(dir, files...)
	r.paths = append(r.paths, paths...)
	return errors.Join(err, failed)
}

// JSON is the output of --json: an array of figures.
func (r *Report) JSON() any { return r.figures }

// Files are all that was written when its runs were done.
func (r *Report) Files() []tables.File { return []tables.File{tables.Kept(r.paths, r.unkept)} }

// Print writes a table of runs, and the paper's values beside ours, for each figure.
func (r *Report) Print(w io.Writer) error {
	e := r.experiment
	fmt.Fprintf(w, "%d servers of 32 workers, half of them with more virtual cores; mean service %v, %v a run, seed %d; p90 and the like in ms\n", e.Servers, e.Mean, e.For, e.Seed)
	for _, f := range r.figures {
		fmt.Fprintf(w, "\nFigure %s: %s\n", f.Figure, f.Shows)
		if f.Scale != "" {
			fmt.Fprintf(w, "Otherwise than published: %s.\n", f.Scale)
		}
		if err := errors.Join(printRuns(w, f.Runs), printCosts(w, f.Costs), farmrun.PrintPublished(w, f.Published)); err != nil {
			return err
		}
	}
	for _, u := range r.unclaimed {
		fmt.Fprintf(w, "%s: %s\n", u.cell, u.reason)
	}
	return nil
}

func printRuns(w io.Writer, runs []Run) error {
	if len(runs) == 0 {
		return nil
	}
	t := tables.New("policy", "LBs", "cores", "ρ", "requests", "RTT", "mean", "SD", "p50", "p90", "p99", "to fast", "queued there", "weights", "fidelity", "answered", "failed")
	for _, s := range runs {
		t.Addf("%s\t%d\t1:%d\t%.3g\t%s\t%d\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.0f %%\t%.0f %%\t%.2f\t%.2f\t%d\t%d",
			s.Policy, s.LBs, s.Cores, s.Load, s.Kind, s.RTT, s.Mean*1e3, s.SD*1e3, s.P50*1e3, s.P90*1e3, s.P99*1e3, s.Fast*100, s.Queue*100, s.Weights, s.Fidelity, s.Answered, s.Failed)
	}
	return t.Print(w)
}

// The goals, as parts of p90: learned beside others at the peak, and seconds.
const (
	besideLSQ      = 0.85
	besideInverted = 0.75
	besideSED      = 1.10
	mostFollow     = 5.0
)

// Holds is that all runs are claimed, and, where they were made in full, that learned is as much
// better as it is to be, and follows a change.
func (r *Report) Holds() error {
	var errs []error
	for _, u := range r.unclaimed {
		errs = append(errs, fmt.Errorf("%s: %s", u.cell, u.reason))
	}
	if r.experiment.Quick {
		return errors.Join(errs...)
	}
	for _, goal := range []struct {
		than string
		most float64
	}{{"lsq", besideLSQ}, {"sed" + farmrun.Inverted, besideInverted}, {"sed", besideSED}} {
		ours, other := r.find(usual(learned, peakLoad)), r.find(usual(goal.than, peakLoad))
		if ours == nil || other == nil {
			continue
		}
		if ratio := ours.row.P90 / other.row.P90; ratio > goal.most {
			errs = append(errs, fmt.Errorf("figure 9: the p90 of learned is %.2f of that of %s, and is to be %.2f at most", ratio, goal.than, goal.most))
		}
	}
	c := slowedCells(r.experiment)[0]
	c.policy = learned
	if h := r.find(c); h != nil {
		if took := h.followed(r.experiment.slowedAt()); took > mostFollow {
			errs = append(errs, fmt.Errorf("figure 23: the weights of learned took %.1f s to follow a change, and are to take %.0f at most", took, mostFollow))
		}
	}
	return errors.Join(errs...)
}
