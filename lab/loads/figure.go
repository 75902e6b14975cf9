package loads

import (
	"math"
	"slices"

	"proffer/lab/application"
	"proffer/lab/figures"
)

// figure has, for the default, busy and the application's own word, each program's mean beside that of
// the requests in progress, by kind of requests; the lowest correlation; and the mean with idle
// connections.
func (r *Report) figure() (*figures.Figure, error) {
	g := figures.Groups{
		Title:      "The load that the agent reads, beside the requests in progress",
		GroupLabel: "program", GroupColumn: "program", Series: []string{"default", "busy", "its own word"}, Dots: true,
	}
	for _, result := range r.results {
		if !slices.Contains(g.Groups, result.program.Name) {
			g.Groups = append(g.Groups, result.program.Name)
		}
	}
	for _, kind := range []application.Kind{application.CPU, application.Wait, application.Mixed} {
		g.Panels = append(g.Panels, r.panel(g, "read / true, "+string(kind), "ratio_"+string(kind), 2, func(rows []Row) float64 {
			for _, row := range rows {
				if row.Requests == string(kind) {
					return 1 + row.Bias
				}
			}
			return math.NaN()
		}))
	}
	g.Panels = append(g.Panels,
		r.panel(g, "least correlation", "correlation", 1, func(rows []Row) float64 {
			least := rows[0].R
			for _, row := range rows {
				least = min(least, row.R)
			}
			return max(0, least)
		}),
		r.panel(g, "read with idle", "idle", float64(max(r.experiment.Idle, 1)), func(rows []Row) float64 { return rows[0].Idle }))
	return figures.NewGroups(g)
}

// panel has three dots for each program, of its rows.
func (r *Report) panel(g figures.Groups, label, column string, to float64, of func([]Row) float64) figures.BoxPanel {
	p := figures.BoxPanel{Y: figures.Axis{Label: label, To: to}, Columns: []string{column}}
	for _, program := range g.Groups {
		var byDefault, busy, word []Row
		for _, result := range r.results {
			if result.program.Name != program {
				continue
			}
			for i, row := range result.rows {
				switch {
				case row.Default:
					byDefault = append(byDefault, row)
				case i == result.own():
					word = append(word, row)
				default:
					busy = append(busy, row)
				}
			}
		}
		boxes := make([]figures.Box, len(g.Series))
		for i, rows := range [][]Row{byDefault, busy, word} {
			boxes[i].Value = math.NaN()
			if len(rows) > 0 {
				boxes[i].Value = of(rows)
			}
		}
		p.Boxes = append(p.Boxes, boxes)
	}
	return p
}
