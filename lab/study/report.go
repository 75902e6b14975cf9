package study

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"proffer/lab/tables"
)

// Table has the rows; bounded and its like are columns only if they are true of a row.
func Table(rows []Row) *tables.Table {
	t := tables.Of(rows)
	t.Widen(extraNames(rows), func(i int) []any { return rows[i].extra() })
	return t
}

// extraNames are the columns of Percentiles and Groups, the same in every row.
func extraNames(rows []Row) (names []string) {
	if len(rows) == 0 {
		return nil
	}
	for _, p := range rows[0].Percentiles {
		value, ci := p.columns()
		if value {
			names = append(names, p.name()+"_ms")
		}
		if ci {
			names = append(names, p.name()+"_ci_ms")
		}
	}
	for _, g := range rows[0].Groups {
		names = append(names, fmt.Sprintf("group%d_utilisation", g.Group), fmt.Sprintf("group%d_refused", g.Group))
	}
	for _, s := range rows[0].Servers {
		for _, column := range []string{"accepted", "passed_on", "refused", "share", "mean_ms"} {
			names = append(names, fmt.Sprintf("server%d_%s", s.Server, column))
		}
	}
	return names
}

// columns reports which of a percentile's two columns a row does not have yet.
func (p Percentile) columns() (value, ci bool) {
	return !slices.Contains([]float64{50, 90, 99}, p.Percentile), p.Percentile != 90
}

func (p Percentile) name() string { return "p" + plain(p.Percentile) }

func (r Row) extra() (cells []any) {
	for _, p := range r.Percentiles {
		value, ci := p.columns()
		if value {
			cells = append(cells, p.Value)
		}
		if ci {
			cells = append(cells, p.CI)
		}
	}
	for _, g := range r.Groups {
		cells = append(cells, g.Utilisation, g.Refused)
	}
	for _, s := range r.Servers {
		cells = append(cells, s.Accepted, s.PassedOn, s.Refused, s.Share, s.Mean)
	}
	return cells
}

// Print writes a table for people.
func (s *Study) Print(w io.Writer, rows []Row) error {
	requests := s.Setting.Farm.Default.Requests
	scatter := ""
	if s.Setting.alike() {
		scatter = ",\nwhich differ in hops and flow hashes alone"
	}
	fmt.Fprintf(w, "%s; %d requests a run, seeds %d to %d\ntimes in ms; ± is half the 95 %% interval of the mean over seeds%s\n\n",
		s.Setting.Describe(), requests, s.seed(job{}), s.seed(job{seed: s.Seeds - 1}), scatter)
	wide := len("policy")
	for _, r := range rows {
		wide = max(wide, len(r.Policy))
	}
	t := tables.New()
	t.Addf("rho\t%-*s\tmean\t±\tp50\tp90\t±\tp99\trefused\thops\tM events/s", wide, "policy")
	for i, r := range rows {
		if i > 0 && rows[i-1].Rho != r.Rho {
			t.Addf("\t%*s\t\t\t\t\t\t\t\t\t", wide, "")
		}
		t.Addf("%s\t%-*s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s", r.load(), wide, r.Policy,
			r.Mean.Text(1), r.MeanCI.Text(1), r.P50.Text(1), r.P90.Text(1), r.P90CI.Text(1), r.P99.Text(1),
			r.refusals(), r.Hops.Text(2), (r.Speed / 1e6).Text(1))
	}
	if err := errors.Join(t.Print(w), printExtra(w, rows), printServers(w, rows)); err != nil {
		return err
	}
	return printMarks(w, rows, requests)
}

// printMarks explains the marks before a load.
func printMarks(w io.Writer, rows []Row, requests int) (err error) {
	if slices.ContainsFunc(rows, func(r Row) bool { return r.Unsettled }) {
		_, err = fmt.Fprintf(w, "\n! Not settled: the run was too short, or counts from too early on, so the mean is not\n  that of a long run, and ± does not show it. More --requests, here %d, and a later\n  --count-from do.\n", requests)
	}
	var reasons []string
	for _, r := range rows {
		if r.Unjudged != "" && err == nil && !slices.Contains(reasons, r.Unjudged) {
			reasons = append(reasons, r.Unjudged)
			_, err = fmt.Fprintf(w, "\n? It is not known whether the times had settled: %s.\n", r.Unjudged)
		}
	}
	if err == nil && slices.ContainsFunc(rows, func(r Row) bool { return r.Overload }) {
		_, err = fmt.Fprintf(w, "\n* More than the farm can serve: queues grow as long as requests come, so these\n  numbers depend on how many come, here %d.\n", requests)
	}
	return err
}

// printServers writes a line for each server, if the study has them.
func printServers(w io.Writer, rows []Row) error {
	if len(rows) == 0 || len(rows[0].Servers) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	t := tables.New("rho", "policy", "server", "group", "accepted", "passed on", "refused", "share", "mean")
	for _, r := range rows {
		for _, s := range r.Servers {
			t.Addf("%s\t%s\t%d\t%d\t%d\t%d\t%d\t%s %%\t%s", r.load(), r.Policy, s.Server, s.Group, s.Accepted, s.PassedOn, s.Refused, (100 * s.Share).Text(2), s.Mean.Text(1))
		}
	}
	return t.Print(w)
}

// printExtra writes tables of Percentiles and Groups, if the study has any.
func printExtra(w io.Writer, rows []Row) error {
	if len(rows) == 0 || len(rows[0].Percentiles)+len(rows[0].Groups) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	columns := []string{"rho", "policy"}
	for _, p := range rows[0].Percentiles {
		columns = append(columns, p.name(), "±")
	}
	for _, g := range rows[0].Groups {
		columns = append(columns, fmt.Sprintf("group %d busy", g.Group), "refused")
	}
	t := tables.New(columns...)
	for _, r := range rows {
		cells := []any{r.load(), r.Policy}
		for _, p := range r.Percentiles {
			cells = append(cells, p.Value.Text(1), p.CI.Text(1))
		}
		for _, g := range r.Groups {
			cells = append(cells, (100*g.Utilisation).Text(1)+" %", g.Refused)
		}
		t.Add(cells...)
	}
	return t.Print(w)
}

func (r Row) load() string {
	text := strconv.FormatFloat(round(r.Rho, 1e4), 'g', -1, 64)
	switch {
	case r.Overload:
		return "*" + text
	case r.Unsettled:
		return "!" + text
	case r.Unjudged != "":
		return "?" + text
	}
	return text
}

func (r Row) refusals() string {
	if r.Refused == 0 {
		return "0"
	}
	return fmt.Sprintf("%d (%.2g %%)", r.Refused, 100*float64(r.Refused)/float64(max(r.Counted, 1)))
}
