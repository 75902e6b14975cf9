package bench

import (
	"fmt"
	"io"
	"slices"

	"proffer/lab/tables"
)

// goal is the highest cost of a packet, of several in turn, or of a connection,
// without the bench's own loop. Its ns were chosen on a machine where line took lineFewNs and
// lineManyNs, so the decision here is by the ratio to line just before each reading, or to
// another row of the same session.
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
	rowAccept  = "agent/hunt/offer-accept/100000"
	rowSteered = "agent/hunt/steer/1000"
	rowDirect  = "agent/hunt/egress-direct/1000"
)

// goals are those of the bench's usual rows. A row that reads a large table
// stands beside line at a million flows, where the cache has none of them; a row that
// mostly computes, as the agent's of an offer, beside line at a thousand. Katran opened a
// connection in 748 ns there, a filling table, and in 1170 with a full table. A connection has
// others under way beside it.
var goals = []goal{
	few("known flow, of 1,000", 45, "lb/hunt/steer/1000"),
	{"known flow, of a million", []string{"lb/hunt/steer/1000000"}, lineMany, 0, 1.3},
	many("offer", 165, "lb/hunt/offer/250000"),
	many("entry made, table filling", 295, "lb/hunt/new-filling/100000"),
	many("entry made, table full", 445, "lb/hunt/new-full/100000"),
	many("single, a million flows", 70, "lb/single/steer/1000000"),
	many("stateless, a million flows", 70, "lb/stateless/steer/1000000"), // as single was when its goal was set
	many("opening, table filling", 595, "lb/hunt/opening-apart/20000"),
	many("opening, table full", 745, "lb/hunt/opening-apart-full/20000"),
	many("opening and end", 1.2*748, "lb/hunt/opening-end-apart/20000"),
	{"1 SYN to 9 data, hunt beside single", []string{"lb/hunt/mixed/100000"}, "lb/single/mixed/100000", 0, 1.03},
	{"1 SYN, 1 data, 1 FIN, learned beside ecmp (95 % of the rate)", []string{"lb/learned-128/short-apart/33333"}, "lb/ecmp-128/short-apart/33333", 0, 1 / 0.95},
	{"known flow of learned, of 1,000, beside hunt", []string{"lb/learned/steer/1000"}, "lb/hunt/steer-kept/1000", 0, 1.1},
	{"known flow of learned, of a million, beside hunt", []string{"lb/learned/steer/1000000"}, "lb/hunt/steer-kept/1000000", 0, 1.1},
	few("agent: accept", 315, rowAccept),
	few("agent: pass on", 215, "agent/hunt/offer-pass-on/100000"),
	few("agent: not ours", 15, "agent/hunt/not-ours/1"),
	few("agent: data of a known flow, in", 60, rowSteered),
	few("agent: data of a known flow, out", 60, rowDirect),
	// Half of the cost of the five when the goal was set, 48 times line.
	{"agent: a connection of one request", []string{rowAccept, "agent/hunt/egress-wait/1000", "agent/hunt/established/1000", rowSteered, rowDirect}, lineFew, 0, 24},
	few("edge LB: known flow, of 1,000", 60, "edge/lb/steer/1000"),
	few("work: a stranger's switch", 50, "work//switch/1"),
	few("work: a request of threads (3000: 3 % of a core at 10,000/s)", 3000, "work//threads/8"),
	few("work: a request of an event loop (the same)", 3000, "work//events/8"),
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
func (r *Report) printGoals(w io.Writer) error {
	t := tables.Left("goal, net of the loop", "beside", "ns there", "×", "ns here", "×")
	for _, g := range goals {
		net, ratio, ok := r.sum(g.rows...)
		beside, _, measured := r.sum(g.beside)
		if !ok || !measured {
			continue
		}
		if g.beside != lineFew && g.beside != lineMany { // the rows have another neighbour
			ratio = net / max(beside, leastNet)
		}
		ns := "–"
		if g.ns > 0 {
			ns = fmt.Sprintf("%.0f", g.ns)
		}
		t.Addf("%s\t%s\t%s\t%.2f\t%.0f\t%.2f\t%s", g.name, g.beside, ns, g.ratio, net, ratio, met(ratio <= g.ratio))
	}
	var err error
	if !t.Empty() {
		fmt.Fprintln(w)
		err = t.Print(w)
	}
	if r.flowBytes > 0 {
		fmt.Fprintf(w, "bytes a flow, four fifths of the slots taken: %d or less, here %.1f: %s\n",
			mostBytes, r.flowBytes, met(r.flowBytes <= mostBytes))
	}
	for _, v := range r.verified {
		fmt.Fprintf(w, "instructions of %s that the verifier looks at: %d or less, here %d: %s\n",
			v.Program, mostInstructions, v.Instructions, met(v.Instructions <= mostInstructions))
	}
	return err
}

// sum adds up the costs of rows without the loop, in ns and in their floor's, if all were
// measured.
func (r *Report) sum(names ...string) (ns, ratio float64, ok bool) {
	for _, name := range names {
		row := r.row(name)
		if row == nil {
			return 0, 0, false
		}
		ns += row.Net
		ratio += row.NetRatio * float64(row.Packets)
	}
	return ns, ratio, true
}

// benchCalls is how many calls the rows calls and helpers make.
const benchCalls = 10

// printCalls writes the cost of a call on this host.
func (r *Report) printCalls(w io.Writer) error {
	calls, helpers := r.row("floor//calls/1"), r.row("floor//helpers/1")
	if calls == nil || helpers == nil {
		return nil
	}
	_, err := fmt.Fprintf(w, "\na call of a BPF function takes %.1f ns here, a call of a helper %.1f ns\n", calls.Net/benchCalls, helpers.Net/benchCalls)
	return err
}

func (r *Report) row(name string) *Result {
	i := slices.IndexFunc(r.Rows, func(row Result) bool { return row.Name() == name })
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
