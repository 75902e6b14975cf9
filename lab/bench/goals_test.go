package bench

import (
	"slices"
	"strings"
	"testing"
)

// TestGoals: a goal is held to the ratio of its rows to their floor, without the loop, and
// left out where one of them was not measured.
func TestGoals(t *testing.T) {
	r := &Report{flowBytes: 20, Rows: []Result{
		{Program: "floor", Case: "line", Flows: 1000, Min: 60, Net: 40, NetRatio: 1, Packets: 1},
		{Program: "lb", Mode: "hunt", Case: "steer", Flows: 1000, Min: 95, Net: 75, NetRatio: 1.875, Packets: 1},
		{Program: "floor", Case: "line", Flows: 1_000_000, Min: 190, Net: 170, NetRatio: 1, Packets: 1},
		{Program: "lb", Mode: "hunt", Case: "opening-apart", Flows: 20_000, Min: 660, Net: 600, NetRatio: 1.2, Packets: 3},
		{Program: "agent", Mode: "hunt", Case: "offer-accept", Flows: 100_000, Min: 551, Net: 531, NetRatio: 13.28, Packets: 1},
		{Program: "lb", Mode: "single", Case: "mixed", Flows: 100_000, Min: 120, Net: 100},
		{Program: "lb", Mode: "hunt", Case: "mixed", Flows: 100_000, Min: 123, Net: 103},
		{Program: "agent", Mode: "hunt", Case: "egress-wait", Flows: 1000, Min: 220, Net: 200, NetRatio: 5, Packets: 1},
		{Program: "agent", Mode: "hunt", Case: "established", Flows: 1000, Min: 220, Net: 200, NetRatio: 5, Packets: 1},
		{Program: "agent", Mode: "hunt", Case: "steer", Flows: 1000, Min: 45, Net: 25, NetRatio: 0.7, Packets: 1},
		{Program: "agent", Mode: "hunt", Case: "egress-direct", Flows: 1000, Min: 24, Net: 4, NetRatio: 0.02, Packets: 1},
	}}
	want := `
goal, net of the loop                beside                  ns there  ×      ns here  ×
known flow, of 1,000                 floor//line/1000        45        1.88   75       1.88   met
opening, table filling               floor//line/1000000     595       3.52   600      3.60   not met
1 SYN to 9 data, hunt beside single  lb/single/mixed/100000  –         1.03   103      1.03   met
agent: accept                        floor//line/1000        315       13.12  531      13.28  not met
agent: data of a known flow, in      floor//line/1000        60        2.50   25       0.70   met
agent: data of a known flow, out     floor//line/1000        60        2.50   4        0.02   met
agent: a connection of one request   floor//line/1000        –         24.00  960      24.00  met
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
	none := &Report{Rows: r.Rows[:1]}
	if err := none.printGoals(&b); err != nil || b.Len() > 0 {
		t.Errorf("without a row that has a goal: %q, %v", b.String(), err)
	}
}

// TestGoalsAreOfRows: with the usual numbers of flows the bench has each row that
// a goal needs, beside the goal's floor.
func TestGoalsAreOfRows(t *testing.T) {
	s := newSession(&Bench{Turns: 1, Flows: []int{1, 1000, 10_000, 100_000, 1_000_000, 4_000_000}})
	rows := map[string]*benchRow{}
	for _, row := range s.rows {
		rows[row.name()] = row
	}
	for _, g := range goals {
		for _, name := range append(slices.Clone(g.rows), g.beside) {
			row := rows[name]
			if row == nil {
				t.Errorf("%s: the bench has no row %s", g.name, name)
			} else if floor := s.floorOf(row).name(); (g.beside == lineFew || g.beside == lineMany) && floor != g.beside {
				t.Errorf("%s: %s has %s beside it, the goal %s", g.name, name, floor, g.beside)
			}
		}
	}
}
