package hlb

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"time"

	"proffer/lab/bench"
	"proffer/lab/farmrun"
	"proffer/lab/tables"
)

// Cost is the cost of a connection at an LB, of the rows of the bench.
type Cost struct {
	Policy string  `json:"policy"`
	NS     float64 `json:"connection_ns"` // net of the bench's own loop
	Rate   float64 `json:"rate_of_hash"`  // of packets, beside the policy that goes by hash alone
}

const (
	costServers = 128
	costTurns   = 7
	costTurn    = 2 * time.Second // takes about
)

// costRows are rows such as lb/learned-128/short-apart/33333.
var costRows = regexp.MustCompile(fmt.Sprintf(`^lb/(.+)-%d/short-apart/`, costServers))

// byHash are the policies that a flow's hash decides alone: the first that the bench has is the
// paper's ECMP.
var byHash = []string{"ecmp", "single"}

// costTurns is how often each row is measured.
func (e Experiment) costTurns() int {
	if e.Quick {
		return 2
	}
	return costTurns
}

// costTakes estimates the bench.
func (e Experiment) costTakes() time.Duration { return time.Duration(1+e.costTurns()) * costTurn }

// cost runs the bench.
func (r *run) cost(ctx context.Context) error {
	r.step("the cost of a connection")
	cpu, err := bench.LastCPU()
	if err != nil {
		return err
	}
	b := bench.Bench{CPU: cpu, Turns: r.costTurns(), Flows: []int{1000}, Rows: costRows}
	report, err := b.Run(ctx, func(farmrun.Step) {}, func(string) {})
	if err != nil {
		return err
	}
	r.report.costs = costs(report.Rows)
	r.over(r.costTakes())
	return nil
}

// costs are those of the rows that are connections of a policy.
func costs(rows []bench.Result) (all []Cost) {
	for _, row := range rows {
		if of := costRows.FindStringSubmatch(row.Name()); of != nil {
			all = append(all, Cost{Policy: of[1], NS: row.Net})
		}
	}
	base := hashCost(all)
	for i := range all {
		all[i].Rate = base / all[i].NS
	}
	return all
}

func hashCost(all []Cost) float64 {
	for _, name := range byHash {
		for _, c := range all {
			if c.Policy == name {
				return c.NS
			}
		}
	}
	return 0
}

func printCosts(w io.Writer, all []Cost) error {
	if len(all) == 0 {
		return nil
	}
	t := tables.New("policy", "ns a connection", "packet rate")
	for _, c := range all {
		t.Addf("%s\t%.0f\t%.0f %%", c.Policy, c.NS, 100*c.Rate)
	}
	return t.Print(w)
}
