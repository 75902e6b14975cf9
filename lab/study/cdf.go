package study

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"

	"proffer/lab/sim"
	"proffer/lab/tables"
)

// cdfShares are the shares of the requests at which CDF has a time: each
// thousandth, and the tail more finely.
var cdfShares = func() (shares []float64) {
	for i := range 1000 {
		shares = append(shares, float64(i)/1000)
	}
	for i := 1; i <= 10; i++ {
		shares = append(shares, float64(9990+i)/10_000)
	}
	return shares
}()

// shares are those that a study measures.
func (s *Study) shares() []float64 {
	if !s.CDF {
		return nil
	}
	return cdfShares
}

// CDF is the distribution of the response time of each row: the time within which a share of the
// requests was answered, the mean over seeds.
func CDF(rows []Row) *tables.Table {
	t := tables.New("policy", "farm", "rho", "share", "response_ms")
	for _, row := range rows {
		for i, ms := range row.CDF {
			t.Add(row.Policy, row.Farm, row.Rho, cdfShares[i], ms)
		}
	}
	return t
}

func plain(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

// Log writes a line for each request: times in seconds from the begin of its
// run.
type Log struct {
	farm sim.Farm
	out  *csv.Writer
}

// NewLog begins a log with its header.
func NewLog(w io.Writer, farm sim.Farm) (*Log, error) {
	l := &Log{farm, csv.NewWriter(w)}
	return l, l.out.Write([]string{"policy", "rho", "seed", "request", "arrival_s", "start_s", "end_s", "lb", "group", "server", "outcome"})
}

// ended is how a request ended.
func ended(r sim.Row) string {
	switch {
	case r.Refused:
		return "refused"
	case r.Lost:
		return "lost"
	case r.Reset:
		return "reset"
	}
	return "served"
}

// Add is for Study.Each.
func (l *Log) Add(load Load, p sim.Policy, r sim.Result) error {
	for i, row := range r.Rows {
		start, group, server := "", "", ""
		if row.Begun > 0 {
			start = plain(row.Begun.Seconds())
		}
		if row.Hops > 0 { // else no server ever had it
			group, server = strconv.Itoa(l.farm.Servers[row.Server].Group), strconv.Itoa(row.Server)
		}
		if err := l.out.Write([]string{
			p.Name, plain(load.Rho), fmt.Sprint(r.Seed), strconv.Itoa(i),
			plain(row.At.Seconds()), start, plain(row.Ended.Seconds()),
			strconv.Itoa(row.LB), group, server, ended(row),
		}); err != nil {
			return err
		}
	}
	l.out.Flush()
	return l.out.Error()
}
