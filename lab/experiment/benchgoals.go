package experiment

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// goal is the highest cost of a packet, or of several one after the other, without the
// bench's own loop. Its ns were chosen on a machine where line took lineFewNs and lineManyNs,
// so the decision here is by the ratio to the same row of the same run.
type goal struct {
	name   string
	rows   []string // of which the costs are added
	beside string
	ns     float64 // there; 0: the ratio alone was chosen
	ratio  float64
}

const (
	lineFew, lineFewNs   = "floor//line/1000", 24
	lineMany, lineManyNs = "floor//line/1000000", 169
)

const (
	rowOffer     = "lb/hunt/offer/250000"
	rowFilling   = "lb/hunt/new-filling/100000"
	rowFull      = "lb/hunt/new-full/100000"
	rowEstablish = "lb/hunt/establish/100000"
	rowRemoved   = "lb/hunt/signal-removed/100000"
	rowAccept    = "agent/hunt/offer-accept/100000"
	rowSteered   = "agent/hunt/steer/1000"
)

// goals are those of the bench's usual rows. A row that reads a large table
// stands beside line at a million flows, where the cache has none of them; a row that
// mostly computes, as the agent's of an offer, beside line at a thousand. Katran opened a
// connection in 748 ns there, a filling table, and in 1170 with a full table.
var goals = []goal{
	few("known flow, of 1,000", 45, "lb/hunt/steer/1000"),
	{"known flow, of a million", []string{"lb/hunt/steer/1000000"}, lineMany, 0, 1.3},
	many("offer", 165, rowOffer),
	many("entry made, table filling", 295, rowFilling),
	many("entry made, table full", 445, rowFull),
	many("single, a million flows", 70, "lb/single/steer/1000000"),
	many("opening, table filling", 595, rowOffer, rowFilling, rowEstablish),
	many("opening, table full", 745, rowOffer, rowFull, rowEstablish),
	many("opening and end", 1.2*748, rowOffer, rowFilling, rowEstablish, rowRemoved),
	{"1 SYN to 9 data, hunt beside single", []string{"lb/hunt/mixed/100000"}, "lb/single/mixed/100000", 0, 1.03},
	few("agent: accept", 315, rowAccept),
	few("agent: pass on", 215, "agent/hunt/offer-pass-on/100000"),
	few("agent: not ours", 15, "agent/hunt/not-ours/1"),
	// Half of the cost of the five when the goal was set, 48 times line.
	{"agent: a connection of one request", []string{rowAccept, "agent/hunt/egress-wait/1000", "agent/hunt/established/1000", rowSteered, "agent/hunt/egress-direct/1000"}, lineFew, 0, 24},
}

func few(name string, ns float64, rows ...string) goal {
	return goal{name, rows, lineFew, ns, ns / lineFewNs}
}

func many(name string, ns float64, rows ...string) goal {
	return goal{name, rows, lineMany, ns, ns / lineManyNs}
}

// mostBytes is the highest size of a flow in the flow table, where it holds the flows
// that it was made for: four fifths of its slots.
const mostBytes = 32

// mostInstructions is how many the verifier may look at of a program.
const mostInstructions = 20_000

// printGoals writes the goals of measured rows.
func (r *BenchReport) printGoals(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	title := "\ngoal, net of the loop\tbeside\tns there\t×\tns here\t×\n"
	for _, g := range goals {
		net, ok := r.sum(g.rows...)
		beside, measured := r.sum(g.beside)
		if !ok || !measured {
			continue
		}
		ns := "–"
		if g.ns > 0 {
			ns = fmt.Sprintf("%.0f", g.ns)
		}
		ratio := net / max(beside, leastNet)
		fmt.Fprintf(t, "%s%s\t%s\t%s\t%.2f\t%.0f\t%.2f\t%s\n", title, g.name, g.beside, ns, g.ratio, net, ratio, met(ratio <= g.ratio))
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

// sum adds up the costs of rows without the loop, if all were measured.
func (r *BenchReport) sum(names ...string) (ns float64, ok bool) {
	for _, name := range names {
		row := r.row(name)
		if row == nil {
			return 0, false
		}
		ns += row.Net
	}
	return ns, true
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
