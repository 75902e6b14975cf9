package hlb

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"proffer/lab/figures"
	"proffer/lab/stats"
	"proffer/lab/tables"
	"proffer/lab/traffic"
	"proffer/topo"
)

// RTTReport holds an RTT's results.
type RTTReport struct {
	experiment RTT
	rows       []RTTRow
	requests   [][]traffic.Row // of the rows
}

// RTTRow sums up one run: the requests after its warm-up, each from when it was due to its answer.
type RTTRow struct {
	RTT      float64 `json:"rtt_ms"`
	Policy   string  `json:"policy"`
	Forged   float64 `json:"forged_per_s"` // SYNs
	Requests int     `json:"requests"`
	Failed   int     `json:"failed"`
	Mean     float64 `json:"mean_ms"`
	P50      float64 `json:"p50_ms"`
	P90      float64 `json:"p90_ms"`
	P90Net   float64 `json:"p90_net_ms"`   // less two round trips: the handshake's, the answer's
	Over     float64 `json:"p90_over"`     // learned's without round trip and flood
	OverNet  float64 `json:"p90_net_over"` // the same, of P90Net
	Weights  float64 `json:"weights"`      // the faster servers' over the others'
	Counting string  `json:"counting"`     // which flows count, at the end
	BoxLate  float64 `json:"box_late_ms"`  // the delay box, on average
}

// add takes a run; learned's without round trip and flood comes first.
func (r *RTTReport) add(rtt time.Duration, run *rttRun) {
	row := RTTRow{
		RTT: milliseconds(rtt), Policy: run.way.dispatch.String(), Weights: run.ratio, Counting: run.counting,
		BoxLate: milliseconds(run.bed.DelayLate()),
	}
	if run.way.flooded {
		row.Forged = run.forged.Rate()
	}
	var took []float64
	warm := time.Duration(rttWarm * float64(run.length()))
	for _, q := range run.rows {
		switch {
		case q.Outcome != traffic.OK:
			row.Failed++
		case q.Intended >= warm:
			took = append(took, milliseconds(q.Latency()))
		}
	}
	s := stats.Summarize(took)
	row.Requests, row.Mean, row.P50, row.P90 = s.N, s.Mean, s.P50, s.P90
	row.P90Net = row.P90 - 2*row.RTT
	r.rows, r.requests = append(r.rows, row), append(r.requests, run.rows)
	last := &r.rows[len(r.rows)-1]
	last.Over, last.OverNet = last.P90/r.rows[0].P90, last.P90Net/r.rows[0].P90
}

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1e3 }

// Summaries are the rows, for each run.
func (r *RTTReport) Summaries() []RTTRow { return slices.Clone(r.rows) }

// JSON is the output of --json: an array, a row a run.
func (r *RTTReport) JSON() any { return r.rows }

// The figures that are to hold.
const (
	rttMost   = 1.10 // of learned's p90 without round trip, net
	floodMost = 1.25 // of learned's p90 with the same round trip
	herdLeast = 1.15 // of learned's p90 with the longest round trip, net: learned:literal
)

// Holds is Kept, that a round trip and a flood cost learned little beyond the round trips themselves,
// and that the paper's rule herds: else the run shows nothing.
func (r *RTTReport) Holds() error {
	errs := []error{r.Kept()}
	n := len(rttWays())
	for i, row := range r.rows {
		calm := r.rows[i/n*n] // learned with the same round trip
		longest := row.RTT > 0 && i/n == (len(r.rows)-1)/n
		over := row.P90Net / calm.P90Net
		switch {
		case row.Forged > 0 && over > floodMost:
			errs = append(errs, fmt.Errorf("%s: p90 under a flood of %.0f SYNs a second is %.2f of that without, want at most %.2f", row.name(), row.Forged, over, floodMost))
		case i%n == 0 && row.OverNet > rttMost:
			errs = append(errs, fmt.Errorf("%s: p90 less two round trips is %.2f of that without, want at most %.2f", row.name(), row.OverNet, rttMost))
		case row.Policy == topo.LearnedLiteral.String() && longest && over < herdLeast:
			errs = append(errs, fmt.Errorf("%s: p90 is %.2f of learned's: there is no herd", row.name(), over))
		}
	}
	return errors.Join(errs...)
}

func (r RTTRow) name() string { return fmt.Sprintf("%s, round trip %.0f ms", r.Policy, r.RTT) }

// Kept is the promise but for times: every request is answered, and the LBs noticed the flood, and
// nothing else.
func (r *RTTReport) Kept() error {
	var errs []error
	for i, row := range r.rows {
		want := rttWays()[i%len(rttWays())].counting()
		if row.Failed > 0 {
			errs = append(errs, fmt.Errorf("%s: %d requests failed", row.name(), row.Failed))
		}
		if row.Counting != want.String() {
			errs = append(errs, fmt.Errorf("%s, %.0f forged SYNs a second: flows count by %s, want %s", row.name(), row.Forged, row.Counting, want))
		}
	}
	return errors.Join(errs...)
}

// counting is which flows are to count.
func (w rttWay) counting() topo.Counting {
	if w.flooded {
		return topo.FloodCounting
	}
	return w.dispatch.Row().Counting
}

// Print writes the table.
func (r *RTTReport) Print(w io.Writer) error {
	e := r.experiment
	fmt.Fprintf(w, "%s, %s, no agents, load %.3f: %.0f requests a second of %v on average, for %v, seed %d\n\n",
		stats.Counted(e.LBs, "LB"), e.kinds(), e.Load, e.rate(), e.Mean, e.length(), e.Seed)
	t := tables.New("round trip", "policy", "forged/s", "requests", "failed", "mean ms", "p50", "p90", "less 2 trips", "p90 over", "net", "weights", "counting", "box late ms")
	for _, row := range r.rows {
		t.Addf("%.0f ms\t%s\t%.0f\t%d\t%d\t%.0f\t%.0f\t%.0f\t%.0f\t%.2f\t%.2f\t%.2f\t%s\t%.2f", row.RTT, row.Policy, row.Forged, row.Requests, row.Failed,
			row.Mean, row.P50, row.P90, row.P90Net, row.Over, row.OverNet, row.Weights, row.Counting, row.BoxLate)
	}
	return t.Print(w)
}

// Files are the picture and all requests.
func (r *RTTReport) Files() []tables.File {
	t := tables.New("rtt_ms", "policy", "flooded", "intended_s", "service_ms", "latency_ms", "server", "outcome")
	for i, row := range r.rows {
		for _, q := range r.requests[i] {
			t.Add(row.RTT, row.Policy, row.Forged > 0, tables.Digits(q.Intended.Seconds(), 3),
				tables.Digits(milliseconds(q.Service), 3), tables.Digits(milliseconds(q.Latency()), 3), q.Server, q.Outcome)
		}
	}
	return []tables.File{figures.File("rtt", r.figure), t.CSVFile("rtt-rows.csv")}
}

// figure has the p90 of each run, less two round trips.
func (r *RTTReport) figure() (*figures.Figure, error) {
	g := figures.Groups{
		Title:      fmt.Sprintf("90th percentile, less two round trips, %s", r.experiment.kinds().Short()),
		GroupLabel: "round trip of the clients", GroupColumn: "rtt",
	}
	panel := figures.BoxPanel{Y: figures.Axis{Label: "p90 (ms)"}, Columns: []string{"p90_net_ms"}}
	for _, w := range rttWays() {
		name := w.dispatch.String()
		if w.flooded {
			name += ", SYN flood"
		}
		g.Series = append(g.Series, name)
	}
	for i := 0; i < len(r.rows); i += len(g.Series) {
		g.Groups = append(g.Groups, fmt.Sprintf("%.0f ms", r.rows[i].RTT))
		var boxes []figures.Box
		for _, row := range r.rows[i : i+len(g.Series)] {
			boxes = append(boxes, figures.Box{Value: row.P90Net})
		}
		panel.Boxes = append(panel.Boxes, boxes)
	}
	g.Panels = []figures.BoxPanel{panel}
	return figures.NewGroups(g)
}
