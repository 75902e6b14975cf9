package experiment

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"text/tabwriter"
	"time"

	"proffer/lab/edge"
)

// EdgeReport holds an Edge's runs.
type EdgeReport struct {
	experiment Edge
	predicted  []PredictionRow
	runs       []*edgeRun
	unclaimed  []Unclaimed
}

// EdgeRow sums up a run.
type EdgeRow struct {
	Figure     string  `json:"figure"`
	Balancer   string  `json:"balancer"`
	Share      float64 `json:"share"`          // the elephant's, of the packets; figure 4
	CPU        float64 `json:"cpu_difference"` // of a core, mean over intervals
	CPUTick    float64 `json:"cpu_difference_30ms"`
	Throughput float64 `json:"throughput"` // packets served, a second
	Offered    float64 `json:"offered"`    // packets, a second
	Latency    float64 `json:"latency_us"` // mean at the core
	Weights    float64 `json:"weights_sd"` // of the first node's, of mean 1
	Level      float64 `json:"level_s"`    // figure 5: after the second node had joined; 0: never
	Scale      float64 `json:"scale"`      // of a packet's cost, beside the paper's

	Chain     string  `json:"chain,omitempty"` // figure 3: the functions; CPU is the distance of the next two
	Payload   int     `json:"payload_bytes,omitempty"`
	Predicted float64 `json:"predicted_load,omitempty"`
	Measured  float64 `json:"measured_load,omitempty"`
}

// edgeLevel is the distance at which two loads are level, in figure 5.
const edgeLevel = 0.04

// row sums up a run: of figure 4 after the warm-up; of figure 5 after the loads were level, or after the
// second node joined if they never were.
func (e Edge) row(r *edgeRun) EdgeRow {
	row := EdgeRow{Figure: r.cell.figure, Balancer: r.cell.balancer, Share: float64(r.cell.share) / 100, Scale: e.scale()}
	from := r.traffic.WarmUp.Seconds()
	if r.cell.spare() {
		from = r.joins()
		if level := r.level(edgeLevel); !math.IsInf(level, 0) {
			row.Level = level
			from += level
		}
	}
	samples := r.from(from)
	if len(samples) < 2 {
		return row
	}
	row.CPU, row.CPUTick = meanApart(samples, e.interval()), meanApart(samples, edge.Period/2)
	row.Weights = weightsSD(samples)
	var served, dropped, stayed, elapsed float64
	first, last := samples[0], samples[len(samples)-1]
	for i := range first.core {
		a, b := first.core[i], last.core[i]
		served += float64(b.Served - a.Served)
		dropped += float64(b.Dropped - a.Dropped)
		stayed += float64(b.Stayed - a.Stayed)
		elapsed += float64(b.At-a.At) / float64(len(first.core))
	}
	row.Throughput = served / elapsed * 1e9
	row.Offered = (served + dropped) / elapsed * 1e9
	row.Latency = stayed / max(1, served) / 1e3
	return row
}

// interval is that over which loads are compared: it has as many packets as the paper's 30 ms, but for
// the longest ones.
func (e Edge) interval() time.Duration {
	return min(time.Duration(e.scale()*float64(edge.Period)), e.For/4)
}

// weightsSD is the standard deviation of the first node's weight.
func weightsSD(samples []edgeSample) float64 {
	var all []float64
	for _, s := range samples {
		all = append(all, s.weights[0])
	}
	return deviation(all)
}

// Rows are the results, a run each.
func (r *EdgeReport) Rows() []EdgeRow {
	rows := []EdgeRow{}
	for _, p := range r.predicted {
		rows = append(rows, EdgeRow{Figure: "3", Balancer: "model", CPU: math.Abs(p.Learned - p.Measured), Throughput: p.Rate, Offered: p.Rate,
			Scale: float64(edgePredictedCost) / float64(edgePaperCost), Chain: p.Chain, Payload: p.Payload, Predicted: p.Learned, Measured: p.Measured})
	}
	for _, run := range r.runs {
		rows = append(rows, r.experiment.row(run))
	}
	return rows
}

// JSON is the output of --json: an array, a row a run.
func (r *EdgeReport) JSON() any { return r.Rows() }

// edgePredictedCost is that of figure 3's packets.
const edgePredictedCost = 10 * time.Microsecond

// find is the row of a cell; false: there is none.
func (r *EdgeReport) find(figure, balancer string, share int) (EdgeRow, bool) {
	for _, run := range r.runs {
		if run.cell == (edgeCell{figure, balancer, share}) {
			return r.experiment.row(run), true
		}
	}
	return EdgeRow{}, false
}

// Print writes the table, and the paper's values beside ours.
func (r *EdgeReport) Print(w io.Writer) error {
	e := r.experiment
	if err := r.printPrediction(w); err != nil || len(r.runs)+len(r.unclaimed) == 0 {
		return err
	}
	fmt.Fprintf(w, "two nodes of one virtual core, packets of %v: %.0f times the paper's cost, and as much rarer; seed %d\n\n", e.Cost, e.scale(), e.Seed)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "figure\tbalancer\telephant\tCPU difference\tin 30 ms\tserved\toffered\tlatency µs\t… / scale\tweight SD\tlevel after\t")
	for _, row := range r.Rows()[len(r.predicted):] {
		share, level := "", ""
		if row.Figure == "4" {
			share = fmt.Sprintf("%.0f %%", 100*row.Share)
		} else if level = fmt.Sprintf("%.2f s", row.Level); row.Level == 0 {
			level = "never"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%.1f %%\t%.1f %%\t%.0f/s\t%.0f/s\t%.0f\t%.1f\t%.3f\t%s\t\n", row.Figure, row.Balancer, share,
			100*row.CPU, 100*row.CPUTick, row.Throughput, row.Offered, row.Latency, row.Latency/row.Scale, row.Weights, level)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	for _, u := range r.unclaimed {
		fmt.Fprintf(w, "%s: %s\n", u.Policy, u.Reason)
	}
	return printBeside(w, r.beside())
}

// printPrediction writes the table of figure 3.
func (r *EdgeReport) printPrediction(w io.Writer) error {
	if len(r.predicted) == 0 {
		return nil
	}
	fmt.Fprintf(w, "figure 3: chains of %v a packet on a real core\n\n", edgePredictedCost)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "chain\tpayload\tpackets\tmeasured\tpredicted\tby the start's cost\t")
	for _, p := range r.predicted {
		fmt.Fprintf(t, "%s\t%d B\t%.0f/s\t%.1f %%\t%.1f %%\t%.1f %%\t\n", p.Chain, p.Payload, p.Rate, 100*p.Measured, 100*p.Learned, 100*p.Started)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	mean, most := PredictionErrors(r.predicted, PredictionRow.AsLearned)
	_, err := fmt.Fprintf(w, "\nerror: mean %.1f points (published: 1.8), greatest %.1f\n\n", mean, most)
	return err
}

// most is the elephant of the paper's text.
const edgeMost = 47

// beside are the values of the paper's text, and ours.
func (r *EdgeReport) beside() (all []Beside) {
	for _, of := range []struct {
		balancer, cpu, throughput, latency string
	}{
		{"model", "below 3 %", "1", "1"},
		{"monitor", "at most 7 %", "near 1", "up to 3"},
		{"wrr", "41 %", "0.67", "above 300 µs"},
	} {
		row, some := r.find("4", of.balancer, edgeMost)
		model, both := r.find("4", "model", edgeMost)
		if !some {
			continue
		}
		all = append(all, Beside{"4c: CPU difference, " + of.balancer, of.cpu, percent(row.CPU)})
		if both {
			all = append(all,
				Beside{"4a: throughput over model's, " + of.balancer, of.throughput, fmt.Sprintf("%.2f", row.Throughput/model.Throughput)},
				Beside{"4b: latency over model's, " + of.balancer, of.latency, fmt.Sprintf("%.2f, %.1f µs at the paper's cost", row.Latency/model.Latency, row.Latency/row.Scale)})
		}
	}
	for _, of := range []struct{ balancer, level string }{{"model", "about 1 s"}, {"wrr", "about 35 s"}} {
		if row, some := r.find("5", of.balancer, 0); some {
			ours := fmt.Sprintf("%.2f s", row.Level)
			if row.Level == 0 {
				ours = "not yet"
			}
			all = append(all, Beside{"5: level after, " + of.balancer, of.level, ours})
		}
	}
	return all
}

// The goals at the greatest elephant, and of figure 5.
const (
	edgeMostApart   = 0.03
	edgeThroughput  = 1.2    // times wrr's
	edgeMostLatency = 1. / 3 // of monitor's and wrr's
	edgeMostLevel   = 1.0    // s
	edgeMeanError   = 1.8    // points of load, figure 3
	edgeMostError   = 3.0
)

// Holds is that all runs are claimed, and, where they were made in full, that the model is as good as it
// is to be.
func (r *EdgeReport) Holds() error {
	var errs []error
	for _, u := range r.unclaimed {
		errs = append(errs, fmt.Errorf("%s: %s", u.Policy, u.Reason))
	}
	if r.experiment.Quick {
		return errors.Join(errs...)
	}
	if mean, most := PredictionErrors(r.predicted, PredictionRow.AsLearned); len(r.predicted) > 0 && (mean > edgeMeanError || most > edgeMostError) {
		errs = append(errs, fmt.Errorf("figure 3: predictions are %.1f points off on average and %.1f at most, and are to be %.1f and %.1f at most", mean, most, edgeMeanError, edgeMostError))
	}
	if model, some := r.find("4", "model", edgeMost); some {
		if model.CPU > edgeMostApart {
			errs = append(errs, fmt.Errorf("figure 4: model's cores are %s apart, and are to be %s at most", percent(model.CPU), percent(edgeMostApart)))
		}
		if wrr, some := r.find("4", "wrr", edgeMost); some && model.Throughput < edgeThroughput*wrr.Throughput {
			errs = append(errs, fmt.Errorf("figure 4: model serves %.2f times wrr's packets, and is to serve %.2f", model.Throughput/wrr.Throughput, edgeThroughput))
		}
		for _, other := range []string{"monitor", "wrr"} {
			if row, some := r.find("4", other, edgeMost); some && model.Latency > edgeMostLatency*row.Latency {
				errs = append(errs, fmt.Errorf("figure 4: model's latency is %.2f of %s's, and is to be %.2f at most", model.Latency/row.Latency, other, edgeMostLatency))
			}
		}
	}
	if row, some := r.find("5", "model", 0); some && cmp.Or(row.Level, math.Inf(1)) > edgeMostLevel {
		errs = append(errs, fmt.Errorf("figure 5: model was level after %.2f s (0: never), and is to be within %.0f", row.Level, edgeMostLevel))
	}
	return errors.Join(errs...)
}
