package study

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
)

// WriteFoundJSON writes an array of a search's answers.
func WriteFoundJSON(w io.Writer, found []Found) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(found)
}

// WriteFoundCSV writes a line for each number of servers that was tried.
func WriteFoundCSV(w io.Writer, found []Found) error {
	out := csv.NewWriter(w)
	if err := out.Write([]string{"policy", "farm", "goal", "servers", "rho", "ms", "ci_ms", "refused", "fewest"}); err != nil {
		return err
	}
	for _, f := range found {
		for _, t := range f.Tried {
			if err := out.Write([]string{f.Policy, f.Farm, f.Goal, strconv.Itoa(t.Servers), plain(t.Rho), cell(t.Value), cell(t.CI),
				strconv.Itoa(t.Refused), strconv.FormatBool(t.Servers == f.Servers)}); err != nil {
				return err
			}
		}
	}
	out.Flush()
	return out.Error()
}

// Print writes a table for people.
func (s *Search) Print(w io.Writer, found []Found) error {
	fmt.Fprintf(w, "%s; %d requests a run, %s\nrequests as at rho %v; the fewest servers with %s ms\ntimes in ms; ± is half the 95 %% interval of the mean over seeds\n\n",
		s.Setting.Describe(), s.Setting.Farm.Default.Requests, s.seeds(), round(s.Load.Rho, 1e4), s.Goal)
	wide := len("policy")
	for _, f := range found {
		wide = max(wide, len(f.Policy))
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "%-*s\tservers\tby interval\t%s\t±\trho\trefused\t\n", wide, "policy", s.Goal.name())
	for _, f := range found {
		at, any := f.At()
		if !any {
			fmt.Fprintf(t, "%-*s\t–\t–\t–\t–\t–\t–\t\n", wide, f.Policy)
			continue
		}
		fmt.Fprintf(t, "%-*s\t%d\t%s to %s\t%s\t%s\t%v\t%d\t\n", wide, f.Policy, f.Servers, count(f.Low), count(f.High),
			at.Value.Text(1), at.CI.Text(1), round(at.Rho, 1e4), at.Refused)
	}
	return t.Flush()
}

func count(n int) string {
	if n == 0 {
		return "–"
	}
	return strconv.Itoa(n)
}
