package experiment

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"proffer/lab/figures"
	"proffer/lab/stats"
	"proffer/lab/traffic"
)

// Result is the outcome of one policy.
type Result struct {
	Policy Compared
	Rows   []traffic.Row
	Loads  Loads
	Late   error // the generator could not keep its schedule; nil: it did

	drops dropped
	kinds Kinds
}

// Report holds an SRLB experiment's results, in the order of its policies.
type Report struct {
	Seed     uint64          `json:"seed"`
	Load     float64         `json:"load"`
	Policies []PolicySummary `json:"policies"`

	experiment SRLB
	results    []*Result
	kept       []string // paths of rows that are written
	unkept     error    // the rows that could not be written
}

// Unclaimed is a policy with a run that measured the generator rather than the farm.
type Unclaimed struct {
	Policy string `json:"policy"`
	Reason string `json:"reason"`
}

// PolicySummary is one row of the report; times in seconds.
type PolicySummary struct {
	Policy   string `json:"policy"`
	Requests int    `json:"requests"`
	Resets   int    `json:"resets"` // RST on an open connection
	// Refusals are RSTs to a SYN, and SYNs that had to be sent again because
	// without an answer (Linux drops them silently when an accept queue is full).
	Refusals int     `json:"refusals"`
	Timeouts int     `json:"timeouts"`
	Errors   int     `json:"errors"` // anything else
	Mean     float64 `json:"mean_s"`
	MeanCI   float64 `json:"mean_ci_s"` // half of the 95 % interval, by batch means
	P50      float64 `json:"p50_s"`
	P90      float64 `json:"p90_s"`
	P99      float64 `json:"p99_s"`
	Fairness float64 `json:"fairness"` // Jain's index of busy workers, mean over time
	First    float64 `json:"first_accept"`
	SYNACK   float64 `json:"syn_synack_p50_s"`
	Fidelity float64 `json:"fidelity"`              // mean over that of an exact replay on the same servers
	VsSingle float64 `json:"mean_single_over_this"` // 0 without a run of single, or where either was late
	Fast     float64 `json:"fast_share"`            // of the answers: those by the faster servers
	// Late is why the row shows the generator rather than the policy: it could not keep its
	// schedule. Empty: it did.
	Late string `json:"late,omitempty"`
}

func (r *Report) add(result *Result) {
	r.results = append(r.results, result)
	r.Policies = append(r.Policies, result.summary())
	for _, s := range r.Policies {
		if s.Policy != (Compared{}).String() || s.Late != "" {
			continue
		}
		for i := range r.Policies {
			if p := &r.Policies[i]; p.Late == "" {
				p.VsSingle = orZero(s.Mean / p.Mean)
			}
		}
		return
	}
}

// summary condenses a run. Latencies are those of answered requests; all others
// are counted.
func (r *Result) summary() PolicySummary {
	var connects []float64
	first, fast, answered := 0, 0, 0
	for _, row := range r.Rows {
		if row.Outcome == traffic.OK {
			answered++
			if r.kinds.fast(serverIndex(row.Server)) {
				fast++
			}
			connects = append(connects, (row.Connected - row.Started).Seconds())
		}
		if row.Hops == 1 {
			first++
		}
	}
	latencies := r.latencies()
	slices.Sort(connects)
	mean := stats.MeanCI95(latencies)
	s := stats.Summarize(latencies)
	late := ""
	if r.Late != nil {
		late = r.Late.Error()
	}
	return PolicySummary{
		Policy:   r.Policy.String(),
		Requests: len(r.Rows),
		Resets:   traffic.Count(r.Rows, traffic.Reset),
		Refusals: traffic.Count(r.Rows, traffic.Refused) + int(max(r.drops.synRetransmits, r.drops.listenDrops)),
		Timeouts: traffic.Count(r.Rows, traffic.TimedOut),
		Errors:   traffic.Count(r.Rows, traffic.Failed),
		Mean:     orZero(mean.Mean),
		MeanCI:   orZero(mean.Half),
		P50:      orZero(s.P50),
		P90:      orZero(s.P90),
		P99:      orZero(s.P99),
		Fairness: r.fairness(),
		First:    float64(first) / float64(max(answered, 1)),
		SYNACK:   orZero(stats.Quantile(connects, 0.5)),
		Fidelity: orZero(traffic.Fidelity(r.Rows, r.kinds.named)),
		Fast:     float64(fast) / float64(max(answered, 1)),
		Late:     late,
	}
}

// latencies of the answered requests, in seconds and order of arrival.
func (r *Result) latencies() []float64 {
	var out []float64
	for _, row := range r.Rows {
		if row.Outcome == traffic.OK {
			out = append(out, row.Latency().Seconds())
		}
	}
	return out
}

// fairness is the mean over the samples taken while requests arrived.
func (r *Result) fairness() float64 {
	end := r.Rows[len(r.Rows)-1].Intended.Seconds()
	sum, n := 0.0, 0
	for i, at := range r.Loads.Seconds {
		if at <= end {
			sum += r.Loads.Fairness[i]
			n++
		}
	}
	return sum / float64(max(n, 1))
}

// Print writes the table.
func (r *Report) Print(w io.Writer) error {
	e := r.experiment
	fast := func(string) string { return "" }
	if e.Fast > 0 { // else there is no such column
		fast = func(cell string) string { return cell + "\t" }
	}
	fmt.Fprintf(w, "%s, %s, load %.3g, mean service %v, %d requests a policy, seed %d\n\n",
		e.Kinds, stats.Counted(max(e.LBs, 1), "LB"), e.Load, e.Mean, e.Requests, e.Seed)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "policy\tmean ms\t±95 %%\tp50\tp90\tp99\tvs single\tfairness\t1st takes\t%sSYN-ACK ms\tresets\trefusals\ttimeouts\t\n", fast("fast serve"))
	for _, p := range r.Policies {
		ratio := "–"
		if p.VsSingle > 0 {
			ratio = fmt.Sprintf("%.2f×", p.VsSingle)
		}
		fmt.Fprintf(t, "%s\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%s\t%.2f\t%.0f %%\t%s%.2f\t%d\t%d\t%d\t\n",
			p.marked(), p.Mean*1e3, p.MeanCI*1e3, p.P50*1e3, p.P90*1e3, p.P99*1e3, ratio,
			p.Fairness, p.First*100, fast(fmt.Sprintf("%.0f %%", p.Fast*100)), p.SYNACK*1e3, p.Resets, p.Refusals, p.Timeouts+p.Errors)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, p := range r.Policies {
		if p.Late != "" {
			fmt.Fprintf(w, "\n%s, %d of %d requests: %s\n", p.marked(), p.Requests, e.Requests, p.Late)
		}
	}
	return nil
}

// marked is the policy's name, with a mark if its run was late.
func (p PolicySummary) marked() string {
	if p.Late != "" {
		return p.Policy + " (late)"
	}
	return p.Policy
}

// JSON is the output of --json.
func (r *Report) JSON() any { return r }

// keep writes a result's rows. That they cannot be written does not end the run: Save
// returns the error.
func (r *Report) keep(result *Result) {
	dir := r.experiment.Out
	if dir == "" {
		return
	}
	path := filepath.Join(dir, "rows-"+strings.ReplaceAll(result.Policy.String(), ":", "-")+".csv")
	if err := errors.Join(makeFolder(dir), writeRows(path, result.Rows)); err != nil {
		r.unkept = errors.Join(r.unkept, err)
		return
	}
	r.kept = append(r.kept, path)
}

// Save writes pictures and results.json into dir, as far as it can, and returns their
// paths and those of the rows.
func (r *Report) Save(dir string) ([]string, error) {
	if err := makeFolder(dir); err != nil {
		return nil, err
	}
	paths, err := r.draw(dir)
	path := filepath.Join(dir, "results.json")
	if failed := r.write(path); failed != nil {
		err = errors.Join(err, failed)
	} else {
		paths = append(paths, path)
	}
	return append(paths, r.kept...), errors.Join(err, r.unkept)
}

func (r *Report) write(path string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = os.WriteFile(path, append(data, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	return nil
}

func (r *Report) draw(dir string) ([]string, error) {
	var responses []figures.Responses
	var loads []figures.Load
	for i, result := range r.results {
		name, seconds := r.Policies[i].marked(), result.latencies()
		if len(seconds) == 0 { // no answer, no curve
			continue
		}
		responses = append(responses, figures.Responses{Name: name, Seconds: seconds})
		if len(result.Loads.Seconds) > 0 { // a run that ends at once has no sample
			loads = append(loads, figures.Load{Name: name, Seconds: result.Loads.Seconds, Busy: result.Loads.Busy, Fairness: result.Loads.Fairness})
		}
	}
	if len(responses) == 0 {
		return nil, nil
	}
	at := fmt.Sprintf("%s, ρ = %.3g", r.experiment.Kinds.short(), r.Load)
	cdf, err := figures.CDF("Response time, "+at, responses)
	if err != nil {
		return nil, err
	}
	paths, err := cdf.Save(dir, "cdf")
	if len(loads) == 0 {
		return paths, err
	}
	over, failed := figures.LoadOverTime("Load over time, "+at, loads)
	if failed != nil {
		return paths, errors.Join(err, failed)
	}
	more, failed := over.Save(dir, "load")
	return append(paths, more...), errors.Join(err, failed)
}

func writeRows(path string, rows []traffic.Row) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write rows: %w", err)
	}
	defer f.Close()
	if err := traffic.WriteRows(f, rows); err != nil {
		return fmt.Errorf("write rows to %s: %w", path, err)
	}
	return f.Close()
}

// Left is a duration as progress shows it.
func Left(d time.Duration) string {
	d = d.Round(time.Second)
	return fmt.Sprintf("%d:%02d", int(d.Minutes()), int(d.Seconds())%60)
}
