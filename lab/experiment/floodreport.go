package experiment

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"

	"proffer/lab/figures"
)

// FloodReport holds a Flood's results.
type FloodReport struct {
	experiment Flood
	rows       []FloodRow
}

// FloodRow is the result of one rate.
type FloodRow struct {
	Rate         int     `json:"rate"`          // asked for; 0: as many as go
	SentPPS      float64 `json:"sent_pps"`      // SYNs a second that left
	Offered      uint64  `json:"offered"`       // SYNs that the LB offered to servers: the network lost the others
	CPU          float64 `json:"cpu"`           // share of all CPUs that were busy meanwhile
	Established  int     `json:"established"`   // flows
	Lost         int     `json:"lost"`          // of them, after the flood
	SilentDuring int     `json:"silent_during"` // of them: no answer in time during it
	Tried        int     `json:"tried"`         // new connections during the flood
	OK           int     `json:"ok"`
	TriedSpin    int     `json:"tried_spin"` // … while as much CPU was burnt instead
	OKSpin       int     `json:"ok_spin"`
}

// Summaries are the rows, one a rate.
func (r *FloodReport) Summaries() []FloodRow { return slices.Clone(r.rows) }

// JSON is the output of --json: an array, a row a rate.
func (r *FloodReport) JSON() any { return r.rows }

// Holds is the promise: no established flow is lost. How many new ones come
// through is the machine's matter.
func (r *FloodReport) Holds() error {
	var errs []error
	for _, row := range r.rows {
		if row.Lost > 0 {
			errs = append(errs, fmt.Errorf("a flood of %.0f SYNs a second cost %d of %d established flows, want 0", row.SentPPS, row.Lost, row.Established))
		}
	}
	return errors.Join(errs...)
}

// Print writes the table.
func (r *FloodReport) Print(w io.Writer) error {
	e := r.experiment
	fmt.Fprintf(w, "%d servers, %d established flows, floods of %v, %d new connections a second, seed %d\n\n", e.Servers, e.Flows, e.For, tryRate, e.Seed)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "rate\tsent/s\toffered\tCPU\tlost\tsilent\tnew ok\twith CPU burnt\t")
	for _, row := range r.rows {
		fmt.Fprintf(t, "%s\t%.0f\t%d\t%.0f %%\t%d\t%d\t%d of %d\t%d of %d\t\n", rateName(row.Rate), row.SentPPS, row.Offered, 100*row.CPU,
			row.Lost, row.SilentDuring, row.OK, row.Tried, row.OKSpin, row.TriedSpin)
	}
	return t.Flush()
}

// Save writes the figure and the rows into dir.
func (r *FloodReport) Save(dir string) ([]string, error) {
	figure, err := r.figure()
	if err != nil {
		return nil, err
	}
	paths, err := figure.Save(dir, "flood")
	if err != nil {
		return paths, err
	}
	var rows [][]string
	for _, row := range r.rows {
		one := []string{strconv.Itoa(row.Rate), strconv.FormatFloat(row.SentPPS, 'f', 1, 64),
			strconv.FormatUint(row.Offered, 10), strconv.FormatFloat(row.CPU, 'f', 3, 64)}
		for _, n := range []int{row.Established, row.Lost, row.SilentDuring, row.Tried, row.OK, row.TriedSpin, row.OKSpin} {
			one = append(one, strconv.Itoa(n))
		}
		rows = append(rows, one)
	}
	path, err := saveRows(dir, "flood-rows.csv", []string{"rate", "sent_pps", "offered", "cpu", "established", "lost", "silent_during", "tried", "ok", "tried_spin", "ok_spin"}, rows)
	return append(paths, path), err
}

// figure shows the share of new connections that came through.
func (r *FloodReport) figure() (*figures.Figure, error) {
	flood := figures.Curve{Name: "beside the flood"}
	spin := figures.Curve{Name: "beside as much CPU burnt", Kind: figures.Published} // rings: the lines may coincide
	rows := slices.SortedFunc(slices.Values(r.rows), func(a, b FloodRow) int { return cmp.Compare(a.SentPPS, b.SentPPS) })
	for _, row := range rows {
		x := row.SentPPS / 1000
		flood.Points = append(flood.Points, figures.Point{X: x, Y: 100 * float64(row.OK) / float64(row.Tried)})
		spin.Points = append(spin.Points, figures.Point{X: x, Y: 100 * float64(row.OKSpin) / float64(row.TriedSpin)})
	}
	return figures.NewChart(figures.Chart{
		Title:  fmt.Sprintf("New connections beside a SYN flood, %d servers", r.experiment.Servers),
		X:      figures.Axis{Label: "thousand SYNs a second", Column: "kilo_syns_per_s"},
		Panels: []figures.Panel{{Y: figures.Axis{Label: "new connections served (%)", Column: "ok_percent", To: 105}, Curves: []figures.Curve{flood, spin}}},
	})
}
