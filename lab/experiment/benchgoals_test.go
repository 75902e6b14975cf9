package experiment

import (
	"strings"
	"testing"
)

// TestGoals: a goal is held to the ratio of its row to its floor, and left out
// where one of them was not measured.
func TestGoals(t *testing.T) {
	r := &BenchReport{flowBytes: 20, Rows: []BenchResult{
		{Program: "floor", Case: "line", Flows: 1000, Min: 60},
		{Program: "lb", Mode: "hunt", Case: "steer", Flows: 1000, Min: 89},
		{Program: "lb", Mode: "hunt", Case: "steer", Flows: 1_000_000, Min: 130},
		{Program: "agent", Mode: "hunt", Case: "offer-accept", Flows: 100_000, Min: 251},
		{Program: "lb", Mode: "single", Case: "mixed", Flows: 100_000, Min: 100},
		{Program: "lb", Mode: "hunt", Case: "mixed", Flows: 100_000, Min: 103},
	}}
	want := `
goal                            beside                  ns there  ×     ns here  ×
lb/hunt/steer/1000              floor//line/1000        35        1.50  89       1.48  met
lb/hunt/mixed/100000            lb/single/mixed/100000  –         1.03  103      1.03  met
agent/hunt/offer-accept/100000  floor//line/1000        100       4.17  251      4.18  not met
bytes a flow, four fifths of the slots taken: 32 or less, here 20.0: met
`
	var b strings.Builder
	if err := r.printGoals(&b); err != nil {
		t.Fatal(err)
	}
	if got := b.String(); got != want {
		t.Errorf("got%s\nwant%s", got, want)
	}
	b.Reset()
	none := &BenchReport{Rows: r.Rows[:1]}
	if err := none.printGoals(&b); err != nil || b.Len() > 0 {
		t.Errorf("without a row that has a goal: %q, %v", b.String(), err)
	}
}

// TestGoalsAreOfRows: with the usual numbers of flows the bench has each row that
// a goal needs.
func TestGoalsAreOfRows(t *testing.T) {
	names := map[string]bool{}
	for _, row := range newBenchSession(&Bench{Runs: 1, Flows: []int{1, 1000, 10_000, 100_000, 1_000_000, 4_000_000}}).rows {
		names[row.name()] = true
	}
	for _, g := range goals {
		if !names[g.row] || !names[g.floor] {
			t.Errorf("the bench has not both %s and %s", g.row, g.floor)
		}
	}
}
