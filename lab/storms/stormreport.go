package storms

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"proffer/lab/farmrun"
	"proffer/lab/tables"
	"proffer/lab/testbed"
	"proffer/lab/traffic"
)

// books add up the daemons' counters, over the daemons that have ended.
type books struct {
	mu     sync.Mutex
	totals map[string]uint64 // by role and counter
}

// take adds a node's counters, before its daemon ends or when all is over.
func (b *books) take(ctx context.Context, farm *farmrun.Farm, n *testbed.Node) error {
	status, err := farm.Status(ctx, n)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.totals == nil {
		b.totals = map[string]uint64{}
	}
	for name, value := range status.Counters {
		b.totals[status.Role+"."+name] += value
	}
	return nil
}

// StormReport holds a Storm's results.
type StormReport struct {
	experiment Storm
	began      time.Time
	web, boxed traffic.Result
	flows      []traffic.Answer
	restarts   []outage
	abuses     []Abuse
}

// Abuse is a kind of trouble or attack, and the daemons' account of it.
type Abuse struct {
	Name    string `json:"name"`
	Times   int    `json:"times"`   // changes made, or frames sent
	Counter string `json:"counter"` // of the daemons; empty: the daemon's status, which was asked each time
	Counted uint64 `json:"counted"`
}

// StormSummary is the output of --json.
type StormSummary struct {
	Seconds   float64 `json:"seconds"`
	LBs       int     `json:"lbs"`
	Servers   int     `json:"servers"`
	Requests  int     `json:"requests"`
	Failed    int     `json:"failed"`
	Excused   int     `json:"excused"` // of a container that ended with the request in hand
	Longest   float64 `json:"longest_ms"`
	Flows     int     `json:"flows"`
	FlowsLost int     `json:"flows_lost"`
	Abuses    []Abuse `json:"abuses"`
	Seed      uint64  `json:"seed"`
}

// settle asks all daemons at the end and puts the abuses beside their counters.
func (w *weather) settle(ctx context.Context, r *StormReport, attacks []*attack, lanes [][]*trouble) error {
	for _, n := range append(append([]*testbed.Node{}, w.bed.LBs...), w.bed.Servers...) {
		if err := w.books.take(ctx, w.farm, n); err != nil {
			return err
		}
	}
	for _, a := range attacks {
		for _, name := range a.counted {
			if err := w.account(r, a.name, a.sent.Frames, name); err != nil {
				return err
			}
		}
	}
	for _, lane := range lanes {
		for _, t := range lane {
			if err := w.account(r, t.name, t.times, t.counted); err != nil {
				return err
			}
		}
	}
	return nil
}

// account adds an abuse to the report. One without a counter was noticed each time, as the
// storm ends with an error otherwise.
func (w *weather) account(r *StormReport, name string, times int, counter string) error {
	a := Abuse{Name: name, Times: times, Counter: counter, Counted: uint64(times)}
	if counter != "" {
		var known bool
		if a.Counted, known = w.books.totals[counter]; !known {
			return fmt.Errorf("no daemon has a counter %q", counter)
		}
	}
	r.abuses = append(r.abuses, a)
	return nil
}

// excused reports whether a request was in a container's hands when that ended: it had no
// healthy server. A row's instants count from the moment when its first socket was open,
// which is a little after the report's.
func (r *StormReport) excused(row traffic.Row) bool {
	const opening = 200 * time.Millisecond
	connected, done := r.began.Add(row.Connected), r.began.Add(row.Done)
	for _, o := range r.restarts {
		if row.Connected > 0 && connected.Before(o.closed) && done.Add(opening).After(o.from) {
			return true
		}
	}
	return false
}

// Summary sums the run up.
func (r *StormReport) Summary() StormSummary {
	e := r.experiment
	s := StormSummary{
		Seconds: e.For.Seconds(), LBs: e.LBs, Servers: e.Servers, Seed: e.Seed, Abuses: r.abuses,
		Requests: len(r.web.Rows) + len(r.boxed.Rows), Flows: len(r.flows),
		Longest: float64(max(r.web.Longest().Latency(), r.boxed.Longest().Latency())) / float64(time.Millisecond),
	}
	for _, row := range r.web.Rows {
		if row.Outcome != traffic.OK {
			s.Failed++
		}
	}
	for _, row := range r.boxed.Rows {
		switch {
		case row.Outcome == traffic.OK:
		case r.excused(row):
			s.Excused++
		default:
			s.Failed++
		}
	}
	for _, a := range r.flows {
		if a.Outcome != traffic.OK {
			s.FlowsLost++
		}
	}
	return s
}

// JSON is the output of --json.
func (r *StormReport) JSON() any { return r.Summary() }

// Holds is the promise: no request with a healthy server fails or waits long, no flow is
// lost, and each abuse was made and is counted.
func (r *StormReport) Holds() error {
	s := r.Summary()
	var errs []error
	if s.Failed > 0 {
		errs = append(errs, fmt.Errorf("%d of %d requests with a healthy server failed, want 0: %s", s.Failed, s.Requests, r.firstFailure()))
	}
	if s.FlowsLost > 0 {
		errs = append(errs, fmt.Errorf("%d of %d long flows were lost, want 0: %s", s.FlowsLost, s.Flows, r.firstLost()))
	}
	for _, of := range []traffic.Result{r.web, r.boxed} {
		if longest := of.Longest(); longest.Latency() > longestStall {
			errs = append(errs, fmt.Errorf("a request waited %v, want at most %v; it was due %v after the start",
				longest.Latency().Round(time.Millisecond), longestStall, longest.Intended.Round(time.Millisecond)))
		}
	}
	for _, a := range s.Abuses {
		switch {
		case a.Times == 0:
			errs = append(errs, fmt.Errorf("%s: it was never done", a.Name))
		case a.Counted == 0:
			errs = append(errs, fmt.Errorf("%s: done %d times, and %s is 0", a.Name, a.Times, a.Counter))
		}
	}
	return errors.Join(errs...)
}

func (r *StormReport) firstFailure() string {
	for _, row := range append(append([]traffic.Row{}, r.web.Rows...), r.boxed.Rows...) {
		if row.Outcome != traffic.OK && !r.excused(row) {
			return fmt.Sprintf("%s from %s at %v: %s", row.Outcome, row.From, row.Intended.Round(time.Millisecond), row.Cause)
		}
	}
	return ""
}

func (r *StormReport) firstLost() string {
	for _, a := range r.flows {
		if a.Outcome != traffic.OK {
			return fmt.Sprintf("%s from %s: %s", a.Outcome, a.From, a.Cause)
		}
	}
	return ""
}

// Print writes it as text.
func (r *StormReport) Print(w io.Writer) error {
	s := r.Summary()
	fmt.Fprintf(w, `%d LBs, %d servers, a storm of %v, seed %d

requests     %d, of which %d failed; the longest took %.0f ms
             %d more ended with the container that had them
long flows   %d, of which %d were lost

`, s.LBs, s.Servers, r.experiment.For, s.Seed, s.Requests, s.Failed, s.Longest, s.Excused, s.Flows, s.FlowsLost)
	t := tables.Left("abuse", "times", "counted as", "counted")
	for _, a := range s.Abuses {
		counter := a.Counter
		if counter == "" {
			counter = "(asked each time)"
		}
		t.Addf("%s\t%d\t%s\t%d", a.Name, a.Times, counter, a.Counted)
	}
	return t.Print(w)
}

// Files are the abuses and the requests.
func (r *StormReport) Files() []tables.File {
	t := tables.New("abuse", "times", "counter", "counted")
	for _, a := range r.abuses {
		t.Add(a.Name, a.Times, a.Counter, a.Counted)
	}
	return []tables.File{t.CSVFile("storm-abuses.csv"), traffic.File("storm-web.csv", r.web.Rows), traffic.File("storm-boxed.csv", r.boxed.Rows)}
}
