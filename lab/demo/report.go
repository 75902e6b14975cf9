package demo

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"proffer/lab/farmrun"
	"proffer/lab/figures"
	"proffer/lab/stats"
	"proffer/lab/tables"
	"proffer/lab/traffic"
)

// Report holds an SRLB experiment's results, in the order of its policies.
type Report struct {
	Seed     uint64          `json:"seed"`
	Load     float64         `json:"load"`
	Servers  int             `json:"servers"`
	Service  float64         `json:"service_s"` // mean
	Policies []PolicySummary `json:"policies"`

	experiment Experiment
	results    []*farmrun.Result
	kept       []string // paths of rows that are written
	unkept     error    // the rows that could not be written
}

// PolicySummary is a row of the report; times in seconds.
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
	VsSingle float64 `json:"mean_single_over_this"` // 0 without a run of single, or where either was late or failed
	Fast     float64 `json:"fast_share"`            // of the answers: those by the faster servers
	// Mark is of a row that is not what it seems, and Reason why; both empty: it is.
	Mark   string `json:"mark,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// The marks of rows.
const (
	failed    = "failed"    // no run, or none to be believed
	late      = "late"      // it shows the generator rather than the policy
	uncertain = "uncertain" // the policy, but not well
)

// compared reports whether the row may be compared with another.
func (p PolicySummary) compared() bool { return p.Mark != late && p.Mark != failed }

func (r *Report) add(result *farmrun.Result) {
	e := r.experiment
	r.Seed, r.Load, r.Servers, r.Service = e.Seed, e.Load, e.Servers, e.Mean.Seconds()
	r.results = append(r.results, result)
	r.Policies = append(r.Policies, summaryOf(result))
	for _, s := range r.Policies {
		if s.Policy != (farmrun.Compared{}).String() || !s.compared() {
			continue
		}
		for i := range r.Policies {
			if p := &r.Policies[i]; p.compared() {
				p.VsSingle = stats.OrZero(s.Mean / p.Mean)
			}
		}
		return
	}
}

// nothing is the error of a report without any answer.
func (r *Report) nothing() error {
	var errs []error
	for _, p := range r.Policies {
		if p.P50 > 0 {
			return nil
		}
		errs = append(errs, fmt.Errorf("%s: %s", p.marked(), p.Reason))
	}
	return errors.Join(errs...)
}

// summaryOf condenses a run. Latencies are those of answered requests; all others
// are counted.
func summaryOf(r *farmrun.Result) PolicySummary {
	var connects []float64
	first, fast, answered := 0, 0, 0
	for _, row := range r.Rows {
		if row.Outcome == traffic.OK {
			answered++
			if r.Kinds.Faster(farmrun.ServerIndex(row.Server)) {
				fast++
			}
			connects = append(connects, (row.Connected - row.Started).Seconds())
		}
		if row.Hops == 1 {
			first++
		}
	}
	latencies := r.Latencies()
	slices.Sort(connects)
	mean := stats.MeanCI95(latencies)
	s := stats.Summarize(latencies)
	summary := PolicySummary{
		Policy:   r.Policy.String(),
		Requests: len(r.Rows),
		Resets:   traffic.Count(r.Rows, traffic.Reset),
		Refusals: traffic.Count(r.Rows, traffic.Refused) + int(max(r.Drops.SYNRetransmits, r.Drops.ListenDrops)),
		Timeouts: traffic.Count(r.Rows, traffic.TimedOut),
		Errors:   traffic.Count(r.Rows, traffic.Failed),
		Mean:     stats.OrZero(mean.Mean),
		MeanCI:   stats.OrZero(mean.Half),
		P50:      stats.OrZero(s.P50),
		P90:      stats.OrZero(s.P90),
		P99:      stats.OrZero(s.P99),
		Fairness: r.Fairness(),
		First:    float64(first) / float64(max(answered, 1)),
		SYNACK:   stats.OrZero(stats.Quantile(connects, 0.5)),
		Fidelity: stats.OrZero(traffic.Fidelity(r.Rows, r.Kinds.Named)),
		Fast:     float64(fast) / float64(max(answered, 1)),
	}
	summary.Mark, summary.Reason = markOf(r, summary, mean.Half)
	return summary
}

const (
	widest   = 0.25 // of the mean: half the interval of a mean that is known well
	truthful = 1.25 // measured times over those of the exact replay, of a machine that is fast enough
)

// markOf is the mark of a row, and its reason. Half is that of the mean's interval.
func markOf(r *farmrun.Result, s PolicySummary, half float64) (mark, reason string) {
	switch {
	case r.Failed != nil:
		return failed, r.Failed.Error()
	case s.P50 == 0:
		return failed, fmt.Sprintf("none of %d requests was answered", s.Requests)
	case r.Late != nil:
		return late, r.Late.Error()
	case s.Fidelity > truthful:
		return uncertain, fmt.Sprintf("responses took %.2f times as long as an exact replay of them: this machine's own delays are in the times", s.Fidelity)
	case half > widest*s.Mean:
		return uncertain, fmt.Sprintf("too few requests: the mean is known to ±%.0f %% only", 100*half/s.Mean)
	}
	return "", ""
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
	t := tables.New()
	t.Addf("policy\tmean ms\t±95 %%\tp50\tp90\tp99\tvs single\tfairness\t1st takes\t%sSYN-ACK ms\tresets\trefusals\ttimeouts", fast("fast serve"))
	for _, p := range r.Policies {
		ratio := "–"
		if p.VsSingle > 0 {
			ratio = fmt.Sprintf("%.2f×", p.VsSingle)
		}
		t.Addf("%s\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%s\t%.2f\t%.0f %%\t%s%.2f\t%d\t%d\t%d",
			p.marked(), p.Mean*1e3, p.MeanCI*1e3, p.P50*1e3, p.P90*1e3, p.P99*1e3, ratio,
			p.Fairness, p.First*100, fast(fmt.Sprintf("%.0f %%", p.Fast*100)), p.SYNACK*1e3, p.Resets, p.Refusals, p.Timeouts+p.Errors)
	}
	if err := t.Print(w); err != nil {
		return err
	}
	for _, reason := range r.reasons() {
		fmt.Fprintf(w, "\n%s\n", reason)
	}
	return nil
}

// reasons of the marked rows.
func (r *Report) reasons() (all []string) {
	for _, p := range r.Policies {
		if p.Mark != "" {
			all = append(all, fmt.Sprintf("%s, %d of %d requests: %s", p.marked(), p.Requests, r.experiment.Requests, p.Reason))
		}
	}
	return all
}

// marked is the policy's name, with its mark.
func (p PolicySummary) marked() string {
	if p.Mark != "" {
		return p.Policy + " (" + p.Mark + ")"
	}
	return p.Policy
}

// JSON is the output of --json.
func (r *Report) JSON() any { return r }

// keep writes a result's rows. That they cannot be written does not end the run: Files has the
// error.
func (r *Report) keep(result *farmrun.Result) {
	if r.experiment.Out == "" || len(result.Rows) == 0 {
		return
	}
	name := "rows-" + strings.ReplaceAll(result.Policy.String(), ":", "-") + ".csv"
	paths, err := tables.Save(r.experiment.Out, traffic.File(name, result.Rows))
	r.kept, r.unkept = append(r.kept, paths...), errors.Join(r.unkept, err)
}

// Files are the pictures, results.json, and the rows that were written meanwhile.
func (r *Report) Files() []tables.File {
	return []tables.File{r.draw, tables.JSONFile("results.json", r), tables.Kept(r.kept, r.unkept)}
}

func (r *Report) draw(dir string) ([]string, error) {
	var responses []figures.Responses
	var loads []figures.Load
	for i, result := range r.results {
		name, seconds := r.Policies[i].marked(), result.Latencies()
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
	at := fmt.Sprintf("%s, ρ = %.3g", r.experiment.Kinds.Short(), r.Load)
	cdf, err := figures.CDF("Response time, "+at, responses)
	if err != nil {
		return nil, err
	}
	cdf.Note(r.reasons()...)
	paths, err := cdf.Save(dir, "cdf")
	if len(loads) == 0 {
		return paths, err
	}
	over, failed := figures.LoadOverTime("Load over time, "+at, loads)
	if failed != nil {
		return paths, errors.Join(err, failed)
	}
	over.Note(r.reasons()...)
	more, failed := over.Save(dir, "load")
	return append(paths, more...), errors.Join(err, failed)
}
