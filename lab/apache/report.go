package apache

import (
	"fmt"
	"io"
	"slices"
	"time"

	"proffer/lab/farmrun"
	"proffer/lab/stats"
	"proffer/lab/tables"
	"proffer/lab/traffic"
)

// Report holds an Apache's results.
type Report struct {
	Calibration Calibration         `json:"calibration"`
	Runs        []Row               `json:"runs"`
	Unclaimed   []farmrun.Unclaimed `json:"unclaimed,omitempty"`

	experiment Experiment
	results    []*outcome
	cellsDone  int
}

// Row sums up one run. Times are in mean service times of a request alone on its server.
type Row struct {
	Servers   string  `json:"servers"` // apache or virtual
	Load      float64 `json:"load"`
	Policy    string  `json:"policy"`
	Requests  int     `json:"requests"`
	Refusals  int     `json:"refusals"` // and resets: RST of a full backlog
	Failed    int     `json:"failed"`   // timeouts and errors
	MeanS     float64 `json:"mean_s"`   // as measured, in seconds
	Mean      float64 `json:"mean"`
	MeanCI    float64 `json:"mean_ci"`
	P50       float64 `json:"p50"`
	P90       float64 `json:"p90"`
	P99       float64 `json:"p99"`
	Fairness  float64 `json:"fairness"`
	Busy      float64 `json:"busy"`         // workers of a server, mean over time
	First     float64 `json:"first_accept"` // 1 for policies that do not offer
	Fidelity  float64 `json:"fidelity"`     // mean over that of an exact replay on ideal servers
	VsSingle  float64 `json:"mean_single_over_this"`
	Cores     float64 `json:"server_cores"`  // CPU that Apache used
	CoresElse float64 `json:"machine_cores"` // and all of the machine
}

// unit is the time of the mean request, alone on its server.
func (r *Report) unit(c cell) float64 {
	if c.virtual {
		return r.experiment.Mean.Seconds()
	}
	return r.Calibration.Alone
}

func (r *Report) add(result *outcome) {
	r.results = append(r.results, result)
	r.Runs = append(r.Runs, r.row(result))
	for _, s := range r.Runs {
		if s.Policy != "single" {
			continue
		}
		for i := range r.Runs {
			if o := &r.Runs[i]; o.Servers == s.Servers && o.Load == s.Load {
				o.VsSingle = s.Mean / o.Mean
			}
		}
	}
}

func (r *Report) row(result *outcome) Row {
	c, unit, latencies := result.cell, r.unit(result.cell), result.Latencies()
	mean, s := stats.MeanCI95(latencies), stats.Summarize(latencies)
	row := Row{
		Servers: c.kind(), Load: c.load, Policy: c.policy, Requests: len(result.Rows),
		Refusals: traffic.Count(result.Rows, traffic.Refused) + traffic.Count(result.Rows, traffic.Reset),
		Failed:   traffic.Count(result.Rows, traffic.TimedOut) + traffic.Count(result.Rows, traffic.Failed),
		MeanS:    mean.Mean, Mean: mean.Mean / unit, MeanCI: mean.Half / unit,
		P50: s.P50 / unit, P90: s.P90 / unit, P99: s.P99 / unit,
		Fairness: result.Fairness(), Busy: busyMean(result.Result), First: result.first(),
		Fidelity: r.fidelity(result), Cores: result.cores.servers, CoresElse: result.cores.machine,
	}
	return row
}

// fidelity compares with servers that give each request its exact share at any instant.
func (r *Report) fidelity(result *outcome) float64 {
	rows := slices.Clone(result.Rows)
	if !result.cell.virtual {
		k := r.Calibration
		for i := range rows {
			rows[i].Service = time.Duration((rows[i].Service.Seconds() + k.Overhead) / k.Share * 1e9)
		}
	}
	return traffic.Fidelity(rows, result.Kinds.Named)
}

// busyMean is the mean of busy workers while requests arrived.
func busyMean(r *farmrun.Result) float64 {
	end := r.Rows[len(r.Rows)-1].Intended.Seconds()
	sum, n := 0.0, 0
	for i, at := range r.Loads.Seconds {
		if at <= end {
			sum += r.Loads.Busy[i]
			n++
		}
	}
	return sum / float64(max(n, 1))
}

// first is the share of answers by the first candidate.
func (r *outcome) first() float64 {
	if central(r.cell.policy) {
		return 1
	}
	first, answered := 0, 0
	for _, row := range r.Rows {
		if row.Outcome == traffic.OK {
			answered++
		}
		if row.Hops == 1 {
			first++
		}
	}
	return float64(first) / float64(max(answered, 1))
}

// JSON is the output of --json.
func (r *Report) JSON() any { return r }

// Holds is that the servers got the share of a core that they were promised, and that every
// request below the farm's capacity was answered. How long that took decides nothing.
func (r *Report) Holds() error {
	const within = 0.1
	if k := r.Calibration; k.LeastUsed < (1-within)*r.experiment.Share || k.MostUsed > (1+within)*r.experiment.Share {
		return fmt.Errorf("the servers got %.3f to %.3f of a core, want %.3f within a tenth: free the machine, or ask for fewer servers", k.LeastUsed, k.MostUsed, r.experiment.Share)
	}
	for _, row := range r.Runs {
		if row.Failed > 0 {
			return fmt.Errorf("%s at ρ = %.2f on %s: %d of %d requests failed", row.Policy, row.Load, row.Servers, row.Failed, row.Requests)
		}
	}
	if len(r.Unclaimed) > 0 {
		return fmt.Errorf("%s: %s", r.Unclaimed[0].Policy, r.Unclaimed[0].Reason)
	}
	return nil
}

// Print writes the table.
func (r *Report) Print(w io.Writer) error {
	e, k := r.experiment, r.Calibration
	fmt.Fprintf(w, "%d servers × %.2f core × %d workers, quota over %v, mean %v of CPU a request, %v of arrivals a run, seed %d\n",
		e.Servers, e.Share, e.Workers, e.Period, e.Mean, e.For, e.Seed)
	fmt.Fprintf(w, "always busy, the servers got %.3f of a core each (%.3f to %.3f) and the machine used %.2f cores; a request costs %.2f ms beside its loop and takes %.0f ms alone; λ₀ = %.1f requests/s\n\n",
		k.Share, k.LeastUsed, k.MostUsed, k.Machine, k.Overhead*1e3, k.Alone*1e3, k.Capacity)
	t := tables.New("ρ", "policy", "servers", "mean", "±95 %", "p50", "p90", "p99", "vs single", "busy", "fairness", "1st takes", "fidelity", "requests", "refused", "failed", "cores")
	for _, s := range r.Runs {
		ratio, used := "–", "–"
		if s.VsSingle > 0 {
			ratio = fmt.Sprintf("%.2f×", s.VsSingle)
		}
		if s.Cores > 0 {
			used = fmt.Sprintf("%.2f of %.2f", s.Cores, s.CoresElse)
		}
		t.Addf("%.2f\t%s\t%s\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%s\t%.1f\t%.2f\t%.0f %%\t%.2f\t%d\t%d\t%d\t%s",
			s.Load, s.Policy, s.Servers, s.Mean, s.MeanCI, s.P50, s.P90, s.P99, ratio, s.Busy, s.Fairness, s.First*100, s.Fidelity, s.Requests, s.Refusals, s.Failed, used)
	}
	if err := t.Print(w); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nTimes in units of the mean request alone on its server.\n")
	for _, u := range r.Unclaimed {
		fmt.Fprintf(w, "%s: %s\n", u.Policy, u.Reason)
	}
	return nil
}
