package paper

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"time"

	"proffer/lab/bench"
	"proffer/lab/farmrun"
	"proffer/lab/figures"
)

// 6LB Figure 13: packets a second of one core. It is the only figure that is
// measured, by the bench, on the machine where it is drawn.

func throughputFigures() []Figure {
	return []Figure{{
		"6lb-13", "packets a second of one core against known flows, hunt and single; measured: needs root, not in --all",
		"the programs alone, without a NIC; single has a table of flows, as the paper's Maglev", throughput,
	}}
}

func throughput(o Options) plan {
	s := sweep{[]string{"hunt", "single"}, o.some(1, 1e3, 1e4, 1e5, 1e6, 4e6)}
	return plan{
		seeds: 1, measured: true,
		cells: []cell{{15 * time.Second, func(uint64) ([]float64, error) { return s.packetRates(o) }}},
		draw:  func(m measured) (*figures.Figure, error) { return s.drawRates(m[0][0]) },
	}
}

// packetRates are millions of packets a second of each name at each number of
// flows. A sketch takes any measurement, even of a busy CPU.
func (s sweep) packetRates(o Options) ([]float64, error) {
	b := &bench.Bench{Turns: 8, Rows: regexp.MustCompile(`^lb/(hunt|single)/steer/`)}
	if o.Quick {
		b.Turns = 2
	}
	for _, n := range s.xs {
		b.Flows = append(b.Flows, int(n))
	}
	var err error
	if b.CPU, err = bench.LastCPU(); err != nil {
		return nil, err
	}
	if err := b.Check(); err != nil {
		return nil, err
	}
	report, err := b.Run(context.Background(), func(farmrun.Step) {}, func(string) {})
	if err == nil && !o.Quick {
		err = report.Holds()
	}
	if err != nil {
		return nil, err
	}
	rates := make([]float64, len(s.names)*len(s.xs))
	for _, row := range report.Rows {
		name, x := slices.Index(s.names, row.Mode), slices.Index(s.xs, float64(row.Flows))
		if row.Program == "lb" && name >= 0 && x >= 0 {
			rates[s.index(name, x)] = 1e3 / row.Min
		}
	}
	return rates, nil
}

func (s sweep) drawRates(rates []float64) (*figures.Figure, error) {
	note := "hunt ÷ single, time a packet, published: 1.08 (6LB ÷ Maglev); ours:"
	var curves []figures.Curve
	for i, name := range s.names {
		c := figures.Curve{Name: name}
		for j, x := range s.xs {
			c.Points = append(c.Points, figures.Point{X: x, Y: round(rates[s.index(i, j)])})
		}
		curves = append(curves, c)
	}
	for j, x := range s.xs {
		note += fmt.Sprintf(" %.2f at %.0f,", rates[s.index(1, j)]/rates[s.index(0, j)], x)
	}
	return figures.NewChart(figures.Chart{
		Title: "6LB Figure 13: packets a second of one core",
		Notes: []string{
			"1 ÷ the least time of all runs; data of known flows through the load balancer's program, without a NIC",
			"published: about 8 Mpps (VPP, 3.2 GHz, with a NIC), less from 100,000 flows on",
			note[:len(note)-1] + " flows",
		},
		X:      figures.Axis{Label: "known flows", Column: "flows", From: 1, To: s.xs[len(s.xs)-1], Log: true, Marks: s.xs},
		Panels: []figures.Panel{{Y: figures.Axis{Label: "million packets a second", Column: "mpps"}, Curves: curves}},
	})
}
