package loads

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"gonum.org/v1/gonum/stat"

	"proffer/lab/application"
	"proffer/lab/figures"
	"proffer/lab/tables"
)

// Report holds a Load's results.
type Report struct {
	experiment Experiment
	results    []*result
}

// result is that of one program under one kind of requests.
type result struct {
	program *application.Program
	kind    application.Kind
	rows    []Row      // the default first, and last the application's own word if it has one
	errors  []errorsOf // of the rows
	samples []sampled
}

// Row sums up one signal.
type Row struct {
	Program  string  `json:"program"`
	Requests string  `json:"requests"` // cpu, wait or mixed
	Signal   string  `json:"signal"`
	Default  bool    `json:"default"`
	Bias     float64 `json:"bias"`          // of the truth's mean
	Over     float64 `json:"bias_requests"` // in requests
	R        float64 `json:"correlation"`   // 0 where either does not vary
	Idle     float64 `json:"idle"`          // the mean with idle connections
}

// errorsOf are figures that are no part of the JSON.
type errorsOf struct {
	mean   float64 // of the truth
	missed float64 // the share of samples that read 0 with a long request in progress
	worst  float64 // the greatest error of a sample
}

// The figures that a signal is to keep.
const (
	mostBias     = 0.15
	mostOver     = 1.0
	leastR       = 0.95
	mostMissed   = 0.02
	mostIdleRead = 0.5 // rounds to 0
)

// add takes the samples of a program under a kind of requests.
func (r *Report) add(p *application.Program, kind application.Kind, signals []string, samples []sampled, idle []float64) {
	result := &result{program: p, kind: kind, samples: samples}
	truth := make([]float64, len(samples))
	for i, s := range samples {
		truth[i] = s.truth
	}
	for k, name := range signals {
		read := make([]float64, len(samples))
		e := errorsOf{mean: stat.Mean(truth, nil)}
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
		result.rows = append(result.rows, Row{
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
func (r *Report) Rows() (rows []Row) {
	for _, result := range r.results {
		rows = append(rows, result.rows...)
	}
	return rows
}

// JSON is the output of --json: an array of rows.
func (r *Report) JSON() any { return r.Rows() }

// wrong names the figure that a row does not keep; empty: none.
func (r *result) wrong(i int) string {
	row, e := r.rows[i], r.errors[i]
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

// own is the row of the application's own word; 0: it has none.
func (r *result) own() int {
	if r.program.Word == nil {
		return 0
	}
	return len(r.rows) - 1
}

// mark is the last column of a row.
func (r *result) mark(i int) string {
	switch why := r.wrong(i); {
	case i == 0:
		return why
	case i != r.own() || r.wrong(0) == "":
		return "" // no more than information
	case why == "":
		return "keeps them"
	default:
		return why
	}
}

// holds is that the default keeps the figures, or for an exception the application's own word.
func (r *result) holds() error {
	why, own := r.wrong(0), r.own()
	switch {
	case why == "":
		return nil
	case r.program.Exceptions[r.kind] == "":
		return fmt.Errorf("the default is wrong: %s", why)
	case own == 0:
		return fmt.Errorf("the default is wrong: %s, and the application has no word of its own", why)
	}
	if why = r.wrong(own); why != "" {
		return fmt.Errorf("the default is wrong, and so is the application's own word: %s", why)
	}
	return nil
}

// cured is that the program that cures another keeps the figures under the same requests; else it
// adds the reason.
func (r *Report) cured(of *result, wrong error) error {
	for _, result := range r.results {
		if result.program.Name != of.program.Cure || result.kind != of.kind {
			continue
		}
		err := result.holds()
		if err == nil {
			return nil
		}
		return fmt.Errorf("%w; %s, which cures it: %w", wrong, of.program.Cure, err)
	}
	return fmt.Errorf("%w; %s, which cures it, is not run", wrong, of.program.Cure)
}

// Holds is that each program has a load that keeps the figures: by default, or, if it is an exception,
// by its own word, or by the one that cures it.
func (r *Report) Holds() error {
	var errs []error
	for _, result := range r.results {
		err := result.holds()
		if err != nil && result.program.Cure != "" && result.program.Exceptions[result.kind] != "" {
			err = r.cured(result, err)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s, %s: %w", result.program.Name, result.kind, err))
		}
	}
	return errors.Join(errs...)
}

// Files are the picture and all samples.
func (r *Report) Files() []tables.File {
	t := tables.New("program", "requests", "signal", "seconds", "truth", "read")
	for _, result := range r.results {
		for _, s := range result.samples {
			for k, row := range result.rows {
				t.Add(row.Program, row.Requests, row.Signal, tables.Digits(s.at.Seconds(), 3), tables.Digits(s.truth, 1), tables.Digits(s.read[k], 0))
			}
		}
	}
	return []tables.File{figures.File("load-truth", r.figure), t.CSVFile("load-rows.csv")}
}
