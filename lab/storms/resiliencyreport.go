package storms

import (
	"errors"
	"fmt"
	"io"
	"net/netip"

	"proffer/lab/figures"
	"proffer/lab/tables"
	"proffer/lab/traffic"
)

// Change is one replacement's effect on the flows.
type Change struct {
	Number    int  `json:"change"` // the first is 1
	Cold      bool `json:"cold"`   // the LB that took over was started just then
	Live      int  `json:"live"`   // flows that went on
	Removed   int  `json:"removed"`
	Extra     int  `json:"extra_resets"`
	Silent    int  `json:"silent"` // of Extra: no answer in time, and no RST
	Recovered int  `json:"recovered"`

	fates []fate
}

// fate is a change's effect on one flow.
type fate struct {
	Flow    netip.AddrPort
	Server  string
	Outcome traffic.Outcome
	Removed bool // with its server
}

// resilience is one method's result.
type resilience struct {
	method     Method
	experiment Resiliency
	firstTakes float64
	changes    []Change
}

// ResiliencyReport holds a Resiliency's results, in the order of its methods.
type ResiliencyReport struct{ results []*resilience }

// ResiliencyRow sums up one method.
type ResiliencyRow struct {
	Method      Method   `json:"method"`
	Changes     int      `json:"changes"`
	Flows       int      `json:"flows"`
	Removed     int      `json:"removed"`      // flows of removed servers
	ExtraResets int      `json:"extra_resets"` // flows that died although their server is there
	Silent      int      `json:"silent"`       // of those: no answer in time
	Recovered   int      `json:"recovered"`    // by the LBs, over all changes
	FirstTakes  float64  `json:"first_takes"`  // share of flows that are with their first candidate
	PerChange   []Change `json:"per_change"`
	Seed        uint64   `json:"seed"`
	Servers     int      `json:"servers"`
	Buckets     int      `json:"buckets"`
}

// Summaries are the rows, for each method.
func (r *ResiliencyReport) Summaries() []ResiliencyRow {
	rows := []ResiliencyRow{}
	for _, result := range r.results {
		rows = append(rows, result.summary())
	}
	return rows
}

func (r *resilience) summary() ResiliencyRow {
	row := ResiliencyRow{
		Method: r.method, Changes: len(r.changes), Flows: r.experiment.Flows, FirstTakes: r.firstTakes,
		PerChange: r.changes, Seed: r.experiment.Seed, Servers: r.experiment.Servers, Buckets: r.experiment.Buckets,
	}
	for _, c := range r.changes {
		row.Removed += c.Removed
		row.ExtraResets += c.Extra
		row.Silent += c.Silent
		row.Recovered += c.Recovered
	}
	return row
}

// JSON is the output of --json: an array, a row a method.
func (r *ResiliencyReport) JSON() any { return r.Summaries() }

// Holds is the promise: with the history no flow of a remaining server is lost, and without it some
// are, or the changes would prove nothing.
func (r *ResiliencyReport) Holds() error {
	var errs []error
	for _, row := range r.Summaries() {
		switch keeps := row.Method.keeps(); {
		case keeps && row.ExtraResets > 0:
			errs = append(errs, fmt.Errorf("%s lost %d of %d flows of servers that are still there, want 0", row.Method, row.ExtraResets, row.Flows))
		case !keeps && row.ExtraResets == 0:
			errs = append(errs, fmt.Errorf("%s lost no flow of %d by %d changes: they prove nothing; ask for more --flows or --changes", row.Method, row.Flows, row.Changes))
		}
	}
	return errors.Join(errs...)
}

// Print writes the table.
func (r *ResiliencyReport) Print(w io.Writer) error {
	if len(r.results) == 0 {
		return nil
	}
	e := r.results[0].experiment
	fmt.Fprintf(w, "%d flows, %d servers of which one is replaced %d times, each time another LB; %d buckets, seed %d\n\n",
		e.Flows, e.Servers, e.Changes, e.Buckets, e.Seed)
	t := tables.New("method", "removed", "extra resets", "of flows", "a change", "silent", "recovered", "1st takes")
	for _, row := range r.Summaries() {
		extra := 100 * float64(row.ExtraResets) / float64(row.Flows)
		t.Addf("%s\t%d\t%d\t%.1f %%\t%.2f %%\t%d\t%d\t%.0f %%", row.Method, row.Removed, row.ExtraResets,
			extra, extra/float64(max(row.Changes, 1)), row.Silent, row.Recovered, 100*row.FirstTakes)
	}
	return t.Print(w)
}

// Files are the figure, and a row a flow and change.
func (r *ResiliencyReport) Files() []tables.File {
	t := tables.New("method", "change", "cold", "flow", "server", "removed", "outcome")
	for _, result := range r.results {
		for _, c := range result.changes {
			for _, f := range c.fates {
				t.Add(result.method, c.Number, c.Cold, f.Flow, f.Server, f.Removed, f.Outcome)
			}
		}
	}
	return []tables.File{figures.File("resiliency", r.figure), t.CSVFile("resiliency-rows.csv")}
}

// figure shows how the extra resets add up, as 6LB Figure 11d for one change.
func (r *ResiliencyReport) figure() (*figures.Figure, error) {
	if len(r.results) == 0 {
		return nil, errors.New("draw the extra resets: no method has a result")
	}
	var curves []figures.Curve
	most := 1.0 // per cent: an axis of no length cannot be drawn
	for _, result := range r.results {
		curve := figures.Curve{Name: string(result.method), Points: []figures.Point{{}}}
		sum := 0
		for _, c := range result.changes {
			sum += c.Extra
			share := 100 * float64(sum) / float64(result.experiment.Flows)
			curve.Points = append(curve.Points, figures.Point{X: float64(c.Number), Y: share})
			most = max(most, 1.05*share)
		}
		curves = append(curves, curve)
	}
	e := r.results[0].experiment
	return figures.NewChart(figures.Chart{
		Title: fmt.Sprintf("Flows lost beside those of removed servers, %d servers, %d buckets", e.Servers, e.Buckets),
		Notes: []string{"6LB Figure 11d, a single change: up to 2 % of the flows with two candidates, up to 4 % with one."},
		X:     figures.Axis{Label: "replacements, each with another LB", Column: "changes"},
		Panels: []figures.Panel{{
			Y:      figures.Axis{Label: "extra resets (% of the flows, cumulative)", Column: "extra_resets_percent", To: most},
			Curves: curves,
		}},
	})
}
