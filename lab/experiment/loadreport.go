package experiment

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"gonum.org/v1/gonum/stat"

	"proffer/lab/application"
)

// LoadReport holds a Load's results.
type LoadReport struct {
	experiment Load
	results    []*loadResult
}

// loadResult is that of one program under one kind of requests.
type loadResult struct {
	program *application.Program
	kind    application.Kind
	rows    []LoadRow
	errors  []loadErrors // of the rows
	samples []sampled
}

// LoadRow sums up one signal.
type LoadRow struct {
	Program  string  `json:"program"`
	Requests string  `json:"requests"` // cpu, wait or mixed
	Signal   string  `json:"signal"`
	Default  bool    `json:"default"`
	Bias     float64 `json:"bias"`          // of the truth's mean
	Over     float64 `json:"bias_requests"` // in requests
	R        float64 `json:"correlation"`   // 0 where either does not vary
	Idle     float64 `json:"idle"`          // the mean with idle connections
}

// loadErrors are figures that are no part of the JSON.
type loadErrors struct {
	mean   float64 // of the truth
	missed float64 // the share of samples that read 0 with a long request in progress
	worst  float64 // the greatest error of a sample
}

// The figures that the default is to keep.
const (
	mostBias     = 0.15
	mostOver     = 1.0
	leastR       = 0.95
	mostMissed   = 0.02
	mostIdleRead = 0.5 // rounds to 0
)

// add takes the samples of a program under a kind of requests.
func (r *LoadReport) add(p *application.Program, kind application.Kind, signals []string, samples []sampled, idle []float64) {
	result := &loadResult{program: p, kind: kind, samples: samples}
	truth := make([]float64, len(samples))
	for i, s := range samples {
		truth[i] = s.truth
	}
	for k, name := range signals {
		read := make([]float64, len(samples))
		e := loadErrors{mean: stat.Mean(truth, nil)}
		long, missed := 0, 0
		for i, s := range samples {
			read[i] = s.read[k]
			e.worst = max(e.worst, math.Abs(s.read[k]-s.truth))
			if s.long {
				long++
				missed += cmp.Compare(1, min(s.read[k], 1))
			}
		}
		e.missed = float64(missed) / float64(max(long, 1))
		over := stat.Mean(read, nil) - e.mean
		result.errors = append(result.errors, e)
		result.rows = append(result.rows, LoadRow{
			Program: p.Name, Requests: string(kind), Signal: name, Default: k == 0,
			Bias: ratio(over, e.mean), Over: over, R: correlation(truth, read), Idle: at(idle, k),
		})
	}
	r.results = append(r.results, result)
}

func at(values []float64, i int) float64 {
	if i >= len(values) {
		return 0
	}
	return values[i]
}

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

func correlation(x, y []float64) float64 {
	r := stat.Correlation(x, y, nil)
	if math.IsNaN(r) {
		return 0
	}
	return r
}

// meansOf are the means of each signal.
func meansOf(samples []sampled) []float64 {
	if len(samples) == 0 {
		return nil
	}
	means := make([]float64, len(samples[0].read))
	for _, s := range samples {
		for i, n := range s.read {
			means[i] += n
		}
	}
	for i := range means {
		means[i] /= float64(len(samples))
	}
	return means
}

// Rows are all rows: a program, a kind of requests and a signal each.
func (r *LoadReport) Rows() (rows []LoadRow) {
	for _, result := range r.results {
		rows = append(rows, result.rows...)
	}
	return rows
}

// JSON is the output of --json: an array of rows.
func (r *LoadReport) JSON() any { return r.Rows() }

// wrong names the figure that the default does not keep; empty: none.
func (r *loadResult) wrong() string {
	row, e := r.rows[0], r.errors[0]
	switch {
	case row.Idle >= mostIdleRead:
		return fmt.Sprintf("%.1f with idle connections", row.Idle)
	case math.Abs(row.Bias) > mostBias && math.Abs(row.Over) > mostOver:
		return fmt.Sprintf("bias %+.0f %%", 100*row.Bias)
	case row.R < leastR:
		return fmt.Sprintf("correlation %.2f", row.R)
	case e.missed > mostMissed:
		return fmt.Sprintf("0 in %.1f %% of the samples with a long request", 100*e.missed)
	}
	return ""
}

// Holds is that the default keeps its figures for each program but the exceptions.
func (r *LoadReport) Holds() error {
	var errs []error
	for _, result := range r.results {
		if why := result.wrong(); why != "" && result.program.Exceptions[result.kind] == "" {
			errs = append(errs, fmt.Errorf("%s, %s: the default is wrong: %s", result.program.Name, result.kind, why))
		}
	}
	return errors.Join(errs...)
}

// Print writes the table.
func (r *LoadReport) Print(w io.Writer) error {
	e := r.experiment
	fmt.Fprintf(w, "Signals beside the requests in progress; %v clients, %v each; %d idle connections; seed %d\n\n", levels, e.each(), e.Idle, e.Seed)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "program\trequests\tmean\tsignal\tidle\tbias\trequests\tr\tworst\tread 0\t")
	var notes []string
	for i, result := range r.results {
		if i > 0 && result.program != r.results[i-1].program {
			fmt.Fprintln(t, strings.Repeat("\t", 10)) // a line without text, which keeps the columns
		}
		for k, row := range result.rows {
			head, mark := "\t\t", ""
			if k == 0 {
				head = fmt.Sprintf("%s\t%s\t%.1f", row.Program, row.Requests, result.errors[k].mean)
				mark = result.wrong()
			}
			fmt.Fprintf(t, "%s\t%s\t%.1f\t%+.0f %%\t%+.1f\t%.2f\t%.0f\t%.1f %%\t%s\n", head, row.Signal, row.Idle, 100*row.Bias, row.Over, row.R,
				result.errors[k].worst, 100*result.errors[k].missed, mark)
		}
		if why := result.program.Exceptions[result.kind]; why != "" {
			notes = append(notes, fmt.Sprintf("%s: %s", result.program.Name, why))
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for i, note := range slices.Compact(notes) {
		if i == 0 {
			fmt.Fprintln(w, "\nExceptions:")
		}
		fmt.Fprintln(w, note)
	}
	return nil
}

// Save writes the picture and all samples into dir.
func (r *LoadReport) Save(dir string) ([]string, error) {
	figure, err := r.figure()
	if err != nil {
		return nil, err
	}
	paths, err := figure.Save(dir, "load-truth")
	if err != nil {
		return paths, err
	}
	path, err := saveRows(dir, "load-rows.csv", []string{"program", "requests", "signal", "seconds", "truth", "read"}, r.table())
	return append(paths, path), err
}

func (r *LoadReport) table() (rows [][]string) {
	for _, result := range r.results {
		for _, s := range result.samples {
			for k, row := range result.rows {
				rows = append(rows, []string{row.Program, row.Requests, row.Signal,
					strconv.FormatFloat(s.at.Seconds(), 'f', 3, 64), strconv.FormatFloat(s.truth, 'f', 1, 64), strconv.FormatFloat(s.read[k], 'f', 0, 64)})
			}
		}
	}
	return rows
}
