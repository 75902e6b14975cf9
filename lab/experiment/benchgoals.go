package experiment

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// goal is a row's highest cost. Its ns were chosen on a machine where
// line and loop took lineFew, lineMany and loop, so the decision here is by
// the ratio to the same floor of the same run.
type goal struct {
	row   string
	floor string // or another row beside which it stands
	ns    float64
	ratio float64
}

const (
	lineFew, lineFewNs   = "floor//line/1000", 24
	lineMany, lineManyNs = "floor//line/1000000", 83
	loop, loopNs         = "floor//loop/1", 7
)

// goals are those of the bench's usual rows. A row that reads a large table
// stands beside line at a million flows, where the cache has none of them; a row that
// mostly computes, as the agent's of an offer, beside line at a thousand.
var goals = []goal{
	{"lb/hunt/steer/1000", lineFew, 35, 1.5},
	{"lb/hunt/steer/1000000", lineMany, 120, 1.5},
	scaled("lb/hunt/offer/250000", lineMany, 120, lineManyNs),
	scaled("lb/hunt/new-filling/100000", lineMany, 170, lineManyNs),
	scaled("lb/hunt/new-full/100000", lineMany, 200, lineManyNs),
	{"lb/hunt/mixed/100000", "lb/single/mixed/100000", 0, 1.03},
	scaled("agent/hunt/not-ours/1", loop, loopNs+15, loopNs),
	scaled("agent/hunt/offer-accept/100000", lineFew, 100, lineFewNs),
	scaled("agent/hunt/offer-pass-on/100000", lineFew, 100, lineFewNs),
}

func scaled(row, floor string, ns, floorNs float64) goal {
	return goal{row, floor, ns, ns / floorNs}
}

// mostBytes is the highest size of a flow in the flow table, where it holds the flows
// that it was made for: four fifths of its slots.
const mostBytes = 32

// mostInstructions is how many the verifier may look at of a program.
const mostInstructions = 20_000

// printGoals writes the goals of measured rows.
func (r *BenchReport) printGoals(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	title := "\ngoal\tbeside\tns there\t×\tns here\t×\n"
	for _, g := range goals {
		row, floor := r.row(g.row), r.row(g.floor)
		if row == nil || floor == nil {
			continue
		}
		ns := "–"
		if g.ns > 0 {
			ns = fmt.Sprintf("%.0f", g.ns)
		}
		fmt.Fprintf(t, "%s%s\t%s\t%s\t%.2f\t%.0f\t%.2f\t%s\n",
			title, g.row, g.floor, ns, g.ratio, row.Min, row.Min/floor.Min, met(row.Min/floor.Min <= g.ratio))
		title = ""
	}
	if r.flowBytes > 0 {
		fmt.Fprintf(t, "bytes a flow, four fifths of the slots taken: %d or less, here %.1f: %s\n",
			mostBytes, r.flowBytes, met(r.flowBytes <= mostBytes))
	}
	for _, v := range r.verified {
		fmt.Fprintf(t, "instructions of %s that the verifier looks at: %d or less, here %d: %s\n",
			v.Program, mostInstructions, v.Instructions, met(v.Instructions <= mostInstructions))
	}
	return t.Flush()
}

func (r *BenchReport) row(name string) *BenchResult {
	i := slices.IndexFunc(r.Rows, func(row BenchResult) bool { return row.name() == name })
	if i < 0 {
		return nil
	}
	return &r.Rows[i]
}

func met(ok bool) string {
	if ok {
		return "met"
	}
	return "not met"
}
