package study

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"proffer/lab/stats"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// WriteJSON writes an array of rows.
func WriteJSON(w io.Writer, rows []Row) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(rows)
}

// WriteCSV writes the columns of WriteJSON, under the same names; bounded is
// there only if it is true of a row.
func WriteCSV(w io.Writer, rows []Row) error {
	out := csv.NewWriter(w)
	columns := columns(rows)
	var names []string
	for _, c := range columns {
		names = append(names, c.name)
	}
	names = append(names, extraNames(rows)...)
	if err := out.Write(names); err != nil {
		return err
	}
	for _, row := range rows {
		var cells []string
		for _, c := range columns {
			cells = append(cells, cell(reflect.ValueOf(row).Field(c.field).Interface()))
		}
		cells = append(cells, row.extra()...)
		if err := out.Write(cells); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

type column struct {
	name  string
	field int
}

// columns are the fields of Row as JSON calls them.
func columns(rows []Row) []column {
	var all []column
	for i := range reflect.TypeFor[Row]().NumField() {
		name, option, _ := strings.Cut(reflect.TypeFor[Row]().Field(i).Tag.Get("json"), ",")
		kind := reflect.TypeFor[Row]().Field(i).Type.Kind()
		if name == "-" || kind == reflect.Slice || option != "" && !stated(rows, i) {
			continue
		}
		all = append(all, column{name, i})
	}
	return all
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

func (r Row) extra() (cells []string) {
	for _, p := range r.Percentiles {
		value, ci := p.columns()
		if value {
			cells = append(cells, cell(p.Value))
		}
		if ci {
			cells = append(cells, cell(p.CI))
		}
	}
	for _, g := range r.Groups {
		cells = append(cells, cell(g.Utilisation), strconv.Itoa(g.Refused))
	}
	for _, s := range r.Servers {
		cells = append(cells, strconv.Itoa(s.Accepted), strconv.Itoa(s.PassedOn), strconv.Itoa(s.Refused), cell(s.Share), cell(s.Mean))
	}
	return cells
}

func cell(v any) string {
	switch v := v.(type) {
	case stats.Number:
		if !v.Exists() {
			return ""
		}
		return strconv.FormatFloat(float64(v), 'f', -1, 64)
	default:
		return fmt.Sprint(v)
	}
}

// stated is true if any row has the field, which may be left out.
func stated(rows []Row, field int) bool {
	return slices.ContainsFunc(rows, func(r Row) bool { return !reflect.ValueOf(r).Field(field).IsZero() })
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
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "rho\t%-*s\tmean\t±\tp50\tp90\t±\tp99\trefused\thops\tM events/s\t\n", wide, "policy")
	for i, r := range rows {
		if i > 0 && rows[i-1].Rho != r.Rho {
			fmt.Fprintf(t, "\t%*s\t\t\t\t\t\t\t\t\t\t\n", wide, "")
		}
		fmt.Fprintf(t, "%s\t%-*s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", r.load(), wide, r.Policy,
			r.Mean.Text(1), r.MeanCI.Text(1), r.P50.Text(1), r.P90.Text(1), r.P90CI.Text(1), r.P99.Text(1),
			r.refusals(), r.Hops.Text(2), (r.Speed / 1e6).Text(1))
	}
	if err := errors.Join(t.Flush(), printExtra(w, rows), printServers(w, rows)); err != nil {
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
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "rho\tpolicy\tserver\tgroup\taccepted\tpassed on\trefused\tshare\tmean\t")
	for _, r := range rows {
		for _, s := range r.Servers {
			fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%s %%\t%s\t\n", r.load(), r.Policy, s.Server, s.Group, s.Accepted, s.PassedOn, s.Refused, (100 * s.Share).Text(2), s.Mean.Text(1))
		}
	}
	return t.Flush()
}

// printExtra writes tables of Percentiles and Groups, if the study has any.
func printExtra(w io.Writer, rows []Row) error {
	if len(rows) == 0 || len(rows[0].Percentiles)+len(rows[0].Groups) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "rho\tpolicy\t")
	for _, p := range rows[0].Percentiles {
		fmt.Fprintf(t, "%s\t±\t", p.name())
	}
	for _, g := range rows[0].Groups {
		fmt.Fprintf(t, "group %d busy\trefused\t", g.Group)
	}
	for _, r := range rows {
		fmt.Fprintf(t, "\n%s\t%s\t", r.load(), r.Policy)
		for _, p := range r.Percentiles {
			fmt.Fprintf(t, "%s\t%s\t", p.Value.Text(1), p.CI.Text(1))
		}
		for _, g := range r.Groups {
			fmt.Fprintf(t, "%s %%\t%d\t", (100 * g.Utilisation).Text(1), g.Refused)
		}
	}
	fmt.Fprintln(t)
	return t.Flush()
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
