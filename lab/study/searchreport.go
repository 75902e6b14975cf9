package study

import (
	"fmt"
	"io"
	"strconv"

	"proffer/lab/tables"
)

// FoundTable has a row for each number of servers that was tried; its JSON is an array of the answers.
func FoundTable(found []Found) *tables.Table {
	t := tables.New("policy", "farm", "goal", "servers", "rho", "ms", "ci_ms", "refused", "fewest").From(found)
	for _, f := range found {
		for _, tried := range f.Tried {
			t.Add(f.Policy, f.Farm, f.Goal, tried.Servers, tried.Rho, tried.Value, tried.CI, tried.Refused, tried.Servers == f.Servers)
		}
	}
	return t
}

// Print writes a table for people.
func (s *Search) Print(w io.Writer, found []Found) error {
	fmt.Fprintf(w, "%s; %d requests a run, %s\nrequests as at rho %v; the fewest servers with %s ms\ntimes in ms; ± is half the 95 %% interval of the mean over seeds\n\n",
		s.Setting.Describe(), s.Setting.Farm.Default.Requests, s.seeds(), round(s.Load.Rho, 1e4), s.Goal)
	wide := len("policy")
	for _, f := range found {
		wide = max(wide, len(f.Policy))
	}
	t := tables.New()
	t.Addf("%-*s\tservers\tby interval\t%s\t±\trho\trefused", wide, "policy", s.Goal.name())
	for _, f := range found {
		at, any := f.At()
		if !any {
			t.Addf("%-*s\t–\t–\t–\t–\t–\t–", wide, f.Policy)
			continue
		}
		t.Addf("%-*s\t%d\t%s to %s\t%s\t%s\t%v\t%d", wide, f.Policy, f.Servers, count(f.Low), count(f.High),
			at.Value.Text(1), at.CI.Text(1), round(at.Rho, 1e4), at.Refused)
	}
	return t.Print(w)
}

func count(n int) string {
	if n == 0 {
		return "–"
	}
	return strconv.Itoa(n)
}
