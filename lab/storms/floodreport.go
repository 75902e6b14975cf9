package storms

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"proffer/lab/figures"
	"proffer/lab/tables"
)

// FloodReport holds a Flood's results.
type FloodReport struct {
	experiment Flood
	rows       []FloodRow
}

// FloodRow is the result of one rate.
type FloodRow struct {
	Rate         int     `json:"rate"`                // asked for; 0: as many as go
	SentPPS      float64 `json:"sent_pps" digits:"1"` // SYNs a second that left
	Offered      uint64  `json:"offered"`             // SYNs that the LB offered to servers: the network lost the others
	CPU          float64 `json:"cpu" digits:"3"`      // share of all CPUs that were busy meanwhile
	Established  int     `json:"established"`         // flows
	Lost         int     `json:"lost"`                // of them, after the flood
	SilentDuring int     `json:"silent_during"`       // of them: no answer in time during it
	Recovered    uint64  `json:"recovered"`           // packets of theirs that met no entry, during the flood and after
	TableFull    uint64  `json:"table_full"`          // new flows that found no room in the LB's table
	Tried        int     `json:"tried"`               // new connections during the flood
	OK           int     `json:"ok"`
	P90          float64 `json:"p90_ms" digits:"3"` // of those, from due to answered
	TriedSpin    int     `json:"tried_spin"`        // … while as much CPU was burnt instead
	OKSpin       int     `json:"ok_spin"`
	P90Spin      float64 `json:"p90_spin_ms" digits:"3"`
}

// Summaries are the rows, for each rate.
func (r *FloodReport) Summaries() []FloodRow { return slices.Clone(r.rows) }

// JSON is the output of --json: an array, a row a rate.
func (r *FloodReport) JSON() any { return r.rows }

// How many more new connections may fail beside a flood than beside as much CPU burnt, and
// how much longer nine of ten may take: no SYN of theirs is to be sent again, a second later
// (RFC 6298 §2.1). Where the network itself loses SYNs on the way to the LB, the time is the
// network's, and more may fail.
const (
	floodFails     = 0.01
	floodFailsLost = 0.05
	floodLonger    = 500 * time.Millisecond
	floodDelivered = 0.98 // of the SYNs: the network lost hardly any
	floodNoRoom    = 0.01 // of the SYNs may find no room in the table, where CPUs compete for a slot
)

// delivered is whether the network brought the flood, and so new connections, to the LB.
func (r *FloodReport) delivered(row FloodRow) bool {
	return float64(row.Offered) >= floodDelivered*row.SentPPS*r.experiment.For.Seconds()
}

// Holds is Kept, and that new connections take hardly longer than beside as much CPU burnt.
func (r *FloodReport) Holds() error {
	err := r.Kept()
	for _, row := range r.rows {
		if most := row.P90Spin + floodLonger.Seconds()*1e3; r.delivered(row) && row.P90 > most {
			err = errors.Join(err, fmt.Errorf("beside a flood of %.0f SYNs a second nine of ten new connections took up to %.0f ms, want at most %.0f", row.SentPPS, row.P90, most))
		}
	}
	return err
}

// Kept is the promise but for times: each established flow kept its entries, none was
// lost, new flows always found room, and new connections come through as beside as much CPU burnt.
func (r *FloodReport) Kept() error {
	var errs []error
	for _, row := range r.rows {
		flood := fmt.Sprintf("a flood of %.0f SYNs a second", row.SentPPS)
		if row.Lost > 0 {
			errs = append(errs, fmt.Errorf("%s cost %d of %d established flows, want 0", flood, row.Lost, row.Established))
		}
		if row.Recovered > 0 {
			errs = append(errs, fmt.Errorf("%s displaced established flows: %d of their packets met no entry, want 0", flood, row.Recovered))
		}
		if most := floodNoRoom * float64(row.Offered); float64(row.TableFull) > most {
			errs = append(errs, fmt.Errorf("%s left no room in the table for %d of %d new flows, want at most %.0f: embryonic flows are to give way", flood, row.TableFull, row.Offered, most))
		}
		fails := floodFailsLost
		if r.delivered(row) {
			fails = floodFails
		}
		if least := (1 - fails) * share(row.OKSpin, row.TriedSpin); share(row.OK, row.Tried) < least {
			errs = append(errs, fmt.Errorf("%s let %d of %d new connections through, want %.0f %%", flood, row.OK, row.Tried, 100*least))
		}
	}
	return errors.Join(errs...)
}

func share(some, all int) float64 { return float64(some) / float64(max(all, 1)) }

// Print writes the table.
func (r *FloodReport) Print(w io.Writer) error {
	e := r.experiment
	fmt.Fprintf(w, "%d servers, %d established flows, floods of %v, %d new connections a second, seed %d\n\n", e.Servers, e.Flows, e.For, tryRate, e.Seed)
	t := tables.New("rate", "sent/s", "offered", "CPU", "lost", "silent", "recovered", "no room", "new ok", "p90 ms", "with CPU burnt", "p90 ms")
	for _, row := range r.rows {
		t.Addf("%s\t%.0f\t%d\t%.0f %%\t%d\t%d\t%d\t%d\t%d of %d\t%.1f\t%d of %d\t%.1f", rateName(row.Rate), row.SentPPS, row.Offered, 100*row.CPU,
			row.Lost, row.SilentDuring, row.Recovered, row.TableFull, row.OK, row.Tried, row.P90, row.OKSpin, row.TriedSpin, row.P90Spin)
	}
	return t.Print(w)
}

// Files are the figure and the rows.
func (r *FloodReport) Files() []tables.File {
	return []tables.File{figures.File("flood", r.figure), tables.Of(r.rows).CSVFile("flood-rows.csv")}
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
