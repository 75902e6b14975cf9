package edge

import (
	"errors"
	"fmt"
	"io"

	"proffer/lab/farmrun"
	"proffer/lab/stats"
	"proffer/lab/tables"
)

// Report holds an Edge's runs.
type Report struct {
	experiment Experiment
	predicted  []PredictionRow
	runs       []*run
	unclaimed  []farmrun.Unclaimed
}

// find is the row of a cell; false: there is none.
func (r *Report) find(figure, balancer string, share int) (Row, bool) {
	for _, run := range r.runs {
		if run.cell == (cell{figure, balancer, share}) {
			return r.experiment.row(run), true
		}
	}
	return Row{}, false
}

// Print writes the table, and the paper's values beside ours.
func (r *Report) Print(w io.Writer) error {
	e := r.experiment
	if err := r.printPrediction(w); err != nil || len(r.runs)+len(r.unclaimed) == 0 {
		return err
	}
	fmt.Fprintf(w, "two nodes of one virtual core, packets of %v: %.0f times the paper's cost, and as much rarer; noise of reports %v; seed %d\n\n", e.Cost, e.scale(), e.Noise, e.Seed)
	t := tables.New("figure", "balancer", "elephant", "CPU difference", "in 30 ms", "served", "offered", "latency µs", "… / scale", "weight SD", "level after")
	for _, row := range r.Rows()[len(r.predicted):] {
		share, level := "", ""
		if row.Figure == "4" {
			share = fmt.Sprintf("%.0f %%", 100*row.Share)
		} else {
			level = orNever(row.Level)
		}
		t.Addf("%s\t%s\t%s\t%s %%\t%s %%\t%.0f/s\t%.0f/s\t%s\t%s\t%s\t%s", row.Figure, row.Balancer, share, (100 * row.CPU).Text(1),
			(100 * row.CPUTick).Text(1), row.Throughput, row.Offered, row.Latency.Text(0), row.atPaper().Text(1), row.Weights.Text(3), level)
	}
	if err := t.Print(w); err != nil {
		return err
	}
	fmt.Fprintln(w)
	for _, u := range r.unclaimed {
		fmt.Fprintf(w, "%s: %s\n", u.Policy, u.Reason)
	}
	return farmrun.PrintPublished(w, r.beside())
}

// orNever is a time in s that may not have come in the run.
func orNever(s stats.Number) string {
	if !s.Exists() {
		return "not yet"
	}
	return s.Text(2) + " s"
}

// printPrediction writes the table of figure 3.
func (r *Report) printPrediction(w io.Writer) error {
	if len(r.predicted) == 0 {
		return nil
	}
	fmt.Fprintf(w, "figure 3: chains of %v a packet on a real core\n\n", predictedCost)
	t := tables.New("chain", "payload", "packets", "measured", "SD in 30 ms", "by the start's cost", "as the LB learns")
	for _, p := range r.predicted {
		t.Addf("%s\t%d B\t%.0f/s\t%.1f %%\t%.1f %%\t%.1f %%\t%.1f %%", p.Chain, p.Payload, p.Rate, 100*p.Measured, 100*p.Spread, 100*p.Started, 100*p.Learned)
	}
	if err := t.Print(w); err != nil {
		return err
	}
	mean, most := PredictionErrors(r.predicted, PredictionRow.ByStart)
	learned, mostLearned := PredictionErrors(r.predicted, PredictionRow.AsLearned)
	_, err := fmt.Fprintf(w, `
error by the start's cost, as published: mean %.1f points (published: 1.8), greatest %.1f; goals %.1f and %.1f
error as the LB learns from the core's load: mean %.1f points, greatest %.1f; no goal

`, mean, most, meanError, mostError, learned, mostLearned)
	return err
}

// most is the elephant of the paper's text.
const mostShare = 47

// beside are the values of the paper's text, and ours.
func (r *Report) beside() (all []farmrun.Published) {
	for _, of := range []struct {
		balancer, cpu, throughput, latency string
	}{
		{"model", "below 3 %", "1", "1"},
		{"monitor", "at most 7 %", "near 1", "up to 3"},
		{"wrr", "41 %", "0.67", "above 300 µs"},
	} {
		row, some := r.find("4", of.balancer, mostShare)
		model, both := r.find("4", "model", mostShare)
		if !some {
			continue
		}
		all = append(all, farmrun.OfPaper("4c: CPU difference, "+of.balancer, of.cpu, fmt.Sprintf("%s, %s in 30 ms", farmrun.Percent(float64(row.CPU)), farmrun.Percent(float64(row.CPUTick)))))
		if both {
			all = append(all,
				farmrun.OfPaper("4a: throughput over model's, "+of.balancer, of.throughput, fmt.Sprintf("%.2f", row.Throughput/model.Throughput)),
				farmrun.OfPaper("4b: latency over model's, "+of.balancer, of.latency, fmt.Sprintf("%s, %s µs at the paper's cost", (row.Latency/model.Latency).Text(2), row.atPaper().Text(1))))
		}
	}
	for _, of := range []struct{ balancer, level string }{{"model", "about 1 s"}, {"wrr", "about 35 s"}} {
		if row, some := r.find("5", of.balancer, 0); some {
			all = append(all, farmrun.OfPaper("5: level after, "+of.balancer, of.level, orNever(row.Level)))
		}
	}
	return all
}

// The goals at the greatest elephant, and of figure 5.
const (
	mostApart   = 0.03
	throughput  = 1.2    // times wrr's
	mostLatency = 1. / 3 // of monitor's and wrr's
	mostLevel   = 1.0    // s
	meanError   = 1.8    // points of load, figure 3
	mostError   = 3.0
)

// Holds is that all runs are claimed, and, where they were made in full, that the model is as good as it
// is to be.
func (r *Report) Holds() error {
	var errs []error
	for _, u := range r.unclaimed {
		errs = append(errs, fmt.Errorf("%s: %s", u.Policy, u.Reason))
	}
	if r.experiment.Quick {
		return errors.Join(errs...)
	}
	if mean, most := PredictionErrors(r.predicted, PredictionRow.ByStart); len(r.predicted) > 0 && (mean > meanError || most > mostError) {
		errs = append(errs, fmt.Errorf("figure 3: predictions by the start's cost are %.1f points off on average and %.1f at most, and are to be %.1f and %.1f at most", mean, most, meanError, mostError))
	}
	if model, some := r.find("4", "model", mostShare); some {
		if model.CPU > mostApart {
			errs = append(errs, fmt.Errorf("figure 4: model's cores are %s apart, and are to be %s at most", farmrun.Percent(float64(model.CPU)), farmrun.Percent(mostApart)))
		}
		if wrr, some := r.find("4", "wrr", mostShare); some && model.Throughput < throughput*wrr.Throughput {
			errs = append(errs, fmt.Errorf("figure 4: model serves %.2f times wrr's packets, and is to serve %.2f", model.Throughput/wrr.Throughput, throughput))
		}
		for _, other := range []string{"monitor", "wrr"} {
			if row, some := r.find("4", other, mostShare); some && !(model.Latency <= mostLatency*row.Latency) {
				errs = append(errs, fmt.Errorf("figure 4: model's latency is %s of %s's, and is to be %.2f at most", (model.Latency/row.Latency).Text(2), other, mostLatency))
			}
		}
	}
	if row, some := r.find("5", "model", 0); some && !(row.Level <= mostLevel) {
		errs = append(errs, fmt.Errorf("figure 5: model was level after: %s, and is to be within %.0f s", orNever(row.Level), mostLevel))
	}
	return errors.Join(errs...)
}
