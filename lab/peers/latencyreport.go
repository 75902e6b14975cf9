package peers

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"proffer/lab/farmrun"
	"proffer/lab/figures"
	"proffer/lab/stats"
	"proffer/lab/tables"
)

// LatencyReport holds a Latency's results, in the order of ways.
type LatencyReport struct {
	experiment Latency
	took       [][]time.Duration // in order of connections

	first, second uint64 // connections that the agents say they took so
}

// LatencyRow sums up one way.
type LatencyRow struct {
	Method      string  `json:"method"`
	Connections int     `json:"connections"`
	P50         float64 `json:"p50_us"`
	P90         float64 `json:"p90_us"`
	P99         float64 `json:"p99_us"`
	Mean        float64 `json:"mean_us"`
}

// count asks the agents how the connections came to them.
func (r *LatencyReport) count(ctx context.Context, farm *farmrun.Farm) (err error) {
	if r.first, err = farm.Count(ctx, farm.Bed.Servers, "accept_avail"); err != nil {
		return err
	}
	r.second, err = farm.Count(ctx, farm.Bed.Servers, "accept_force")
	return err
}

// Summaries are the rows, for each way.
func (r *LatencyReport) Summaries() (rows []LatencyRow) {
	for i, w := range ways() {
		s := stats.Summarize(microseconds(r.took[i]))
		rows = append(rows, LatencyRow{Method: w.name, Connections: len(r.took[i]), P50: s.P50, P90: s.P90, P99: s.P99, Mean: s.Mean})
	}
	return rows
}

func microseconds(took []time.Duration) []float64 {
	us := make([]float64, len(took))
	for i, d := range took {
		us[i] = float64(d) / float64(time.Microsecond)
	}
	return us
}

// JSON is the output of --json: an array, a row a way.
func (r *LatencyReport) JSON() any { return r.Summaries() }

// Holds is that each way was the one it is named after; how long it took decides
// nothing.
func (r *LatencyReport) Holds() error {
	if want := uint64(r.experiment.Connections); r.first != want || r.second != want {
		return fmt.Errorf("%d connections were taken by their first candidate and %d by their second, want %d each", r.first, r.second, want)
	}
	return nil
}

// Print writes the table.
func (r *LatencyReport) Print(w io.Writer) error {
	e := r.experiment
	fmt.Fprintf(w, "SYN to SYN-ACK at the client, %d servers, %d connections each, seed %d\n\n", e.Servers, e.Connections, e.Seed)
	t := tables.New("method", "p50 µs", "p90", "p99", "mean", "p50 over single")
	rows := r.Summaries()
	for _, row := range rows {
		t.Addf("%s\t%.0f\t%.0f\t%.0f\t%.0f\t%+.0f", row.Method, row.P50, row.P90, row.P99, row.Mean, row.P50-rows[0].P50)
	}
	return t.Print(w)
}

// Files are the figure, and a row a connection.
func (r *LatencyReport) Files() []tables.File {
	t := tables.New("method", "connection", "syn_synack_us")
	for i, w := range ways() {
		for k, us := range microseconds(r.took[i]) {
			t.Add(w.name, k, tables.Digits(us, 3))
		}
	}
	return []tables.File{figures.File("latency", r.figure), t.CSVFile("latency-rows.csv")}
}

// figure is the distribution up to the slowest way's 99th percentile: 6LB Figure
// 11c.
func (r *LatencyReport) figure() (*figures.Figure, error) {
	var curves []figures.Curve
	end := 0.0
	for i, w := range ways() {
		us := slices.Sorted(slices.Values(microseconds(r.took[i])))
		c := figures.Curve{Name: w.name}
		for k, x := range us {
			c.Points = append(c.Points, figures.Point{X: x, Y: float64(k+1) / float64(len(us))})
		}
		curves = append(curves, c)
		end = max(end, stats.Quantile(us, 0.99))
	}
	return figures.NewChart(figures.Chart{
		Title:  fmt.Sprintf("SYN to SYN-ACK on an idle farm, %d servers", r.experiment.Servers),
		Notes:  []string{"6LB Figure 11c, medians over single under load: first candidate +32 µs, second +57 µs."},
		X:      figures.Axis{Label: "time (µs)", Column: "syn_synack_us", To: end},
		Panels: []figures.Panel{{Y: figures.Axis{Label: "share of connections", Column: "share", To: 1}, Curves: curves}},
	})
}
