package storms

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"

	"proffer/lab/figures"
	"proffer/lab/tables"
	"proffer/lab/traffic"
)

// lossy is the result of one way at one loss.
type lossy struct {
	loss   float64
	way    string
	rows   []traffic.Row
	served map[string]int // how often, by the request's id
	frames uint64         // that were lost

	accepted map[netip.AddrPort]int // connections, by the client's end
	answered map[netip.AddrPort]int // servers that answered one SYN of it
}

// LossReport holds a Loss's results.
type LossReport struct {
	experiment Loss
	results    []*lossy
}

// LossRow sums up one way at one loss.
type LossRow struct {
	Loss        float64 `json:"loss"`
	Method      string  `json:"method"`
	Requests    int     `json:"requests"`
	OK          int     `json:"ok"`
	Failed      int     `json:"failed"` // all that are not OK
	Resets      int     `json:"resets"` // of those: a RST, to the SYN or later
	ServedTwice int     `json:"served_twice"`
	Unserved    int     `json:"unserved"` // answered, and in no server's books
	// Accepted is connections of which two servers, or a server twice, have a socket; Doubled
	// those for which two servers had a request socket after two SYNs at most. A third SYN
	// meets the candidates in another order, as a host may be down.
	Accepted   int    `json:"accepted_twice"`
	Doubled    int    `json:"requested_twice"`
	LostFrames uint64 `json:"lost_frames"`
}

func (l *lossy) summary() LossRow {
	row := LossRow{Loss: l.loss, Method: l.way, Requests: len(l.rows), OK: traffic.Count(l.rows, traffic.OK), LostFrames: l.frames}
	row.Failed = row.Requests - row.OK
	row.Resets = traffic.Count(l.rows, traffic.Reset) + traffic.Count(l.rows, traffic.Refused)
	for _, r := range l.rows {
		times := l.served[strconv.Itoa(r.ID)]
		if times > 1 {
			row.ServedTwice++
		}
		if r.Outcome == traffic.OK && times == 0 {
			row.Unserved++
		}
		if l.accepted[r.From] > 1 {
			row.Accepted++
		}
		if l.answered[r.From] > 1 && r.SYNRetransmits <= 1 {
			row.Doubled++
		}
	}
	return row
}

// Summaries are the rows, three a loss.
func (r *LossReport) Summaries() []LossRow {
	rows := []LossRow{}
	for _, l := range r.results {
		rows = append(rows, l.summary())
	}
	return rows
}

// JSON is the output of --json: an array, a row a way and loss.
func (r *LossReport) JSON() any { return r.Summaries() }

// Holds is the promise: no request is served twice, and hunting resets no client that
// the network alone would not.
func (r *LossReport) Holds() error {
	resets := map[float64]int{} // without us
	for _, row := range r.Summaries() {
		if row.Method == lossRoute {
			resets[row.Loss] = row.Resets
		}
	}
	var errs []error
	for _, row := range r.Summaries() {
		at := fmt.Sprintf("%s, %.3g %% lost", row.Method, 100*row.Loss)
		if row.ServedTwice > 0 {
			errs = append(errs, fmt.Errorf("%s: %d requests were served twice, want 0", at, row.ServedTwice))
		}
		if row.Unserved > 0 {
			errs = append(errs, fmt.Errorf("%s: %d answered requests are in no server's books, want 0", at, row.Unserved))
		}
		if row.Accepted > 0 {
			errs = append(errs, fmt.Errorf("%s: %d connections were accepted twice, want 0", at, row.Accepted))
		}
		if row.Doubled > 0 {
			errs = append(errs, fmt.Errorf("%s: %d connections had request sockets on two servers after at most two SYNs, want 0", at, row.Doubled))
		}
		if row.Resets > resets[row.Loss] {
			errs = append(errs, fmt.Errorf("%s: %d resets, want at most %d, as without a load balancer: %s", at, row.Resets, resets[row.Loss], r.firstReset(row)))
		}
	}
	return errors.Join(errs...)
}

func (r *LossReport) firstReset(of LossRow) string {
	for _, l := range r.results {
		if l.loss != of.Loss || l.way != of.Method {
			continue
		}
		for _, row := range l.rows {
			if row.Outcome == traffic.Reset || row.Outcome == traffic.Refused {
				return fmt.Sprintf("request %d from %s: %s", row.ID, row.From, row.Cause)
			}
		}
	}
	return ""
}

// Print writes the table.
func (r *LossReport) Print(w io.Writer) error {
	e := r.experiment
	fmt.Fprintf(w, "%d servers, %d connections each, %d a second, seed %d\n\n", e.Servers, e.Requests, lossRate, e.Seed)
	t := tables.New("loss", "method", "requests", "ok", "failed", "resets", "served twice", "unserved", "accepted twice", "requested twice", "lost frames")
	for _, row := range r.Summaries() {
		t.Addf("%.3g %%\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d", 100*row.Loss, row.Method,
			row.Requests, row.OK, row.Failed, row.Resets, row.ServedTwice, row.Unserved, row.Accepted, row.Doubled, row.LostFrames)
	}
	return t.Print(w)
}

// Files are the figure, and the requests of each way and loss.
func (r *LossReport) Files() []tables.File {
	t := tables.New("loss", "method", "id", "client", "outcome", "server",
		"intended_s", "done_s", "syn_retransmits", "times_served", "times_accepted", "servers_answered", "cause")
	for _, l := range r.results {
		for _, row := range l.rows {
			t.Add(l.loss, l.way, row.ID, row.From, row.Outcome, row.Server, row.Intended, row.Done, row.SYNRetransmits,
				l.served[strconv.Itoa(row.ID)], l.accepted[row.From], l.answered[row.From], strings.ReplaceAll(row.Cause, "\n", " "))
		}
	}
	return []tables.File{figures.File("loss", r.figure), t.CSVFile("loss-rows.csv")}
}

// figure is how long the answered requests took.
func (r *LossReport) figure() (*figures.Figure, error) {
	var all []figures.Responses
	for _, l := range r.results {
		one := figures.Responses{Name: fmt.Sprintf("%s, %.3g %%", l.way, 100*l.loss)}
		for _, row := range l.rows {
			if row.Outcome == traffic.OK {
				one.Seconds = append(one.Seconds, row.Latency().Seconds())
			}
		}
		all = append(all, one)
	}
	return figures.CDF("Short connections while every link loses frames", all)
}
