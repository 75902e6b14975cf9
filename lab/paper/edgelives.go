package paper

import (
	"math"
	"time"

	"proffer/lab/edgesim"
	"proffer/lab/figures"
)

// The numbers kept of a run of edge-lives.
const (
	livesLevel = iota // s
	livesApart        // % of CPU
	livesUnrest
)

// lives is an elephant that comes to two cores with mice, which live from 10 ms to 100 s.
func lives(o Options) plan {
	s := sweep{[]string{"model", "tuned", "levelled"}, o.some(0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100)}
	if o.Quick {
		s.xs = s.xs[:2]
	}
	return plan{
		cells: s.cells(func(name string, life float64) cell {
			farm, traffic, comes := edgesim.Arrival(2, time.Duration(life*float64(time.Second)), 0)
			return edgeCell(name, farm, traffic, 100_000, func(r edgesim.Result) []float64 {
				settled := edgesim.Settle(r.Samples, comes, 0.03)
				// An axis has an end: never is as late as the run.
				return []float64{min(settled.Level, (traffic.For - comes).Seconds()), 100 * settled.Apart, settled.Unrest}
			})
		}),
		draw: func(m measured) (*figures.Figure, error) { return drawLives(o, s, m) },
	}
}

func drawLives(o Options, s sweep, m measured) (*figures.Figure, error) {
	level := s.curves(m, livesLevel, 1)
	least := figures.Curve{Name: "least time"}
	for _, life := range s.xs {
		// The elephant's core has mice of .45 and needs .2 of them: so many end in 5/9 of
		// their life, if none follows.
		least.Points = append(least.Points, figures.Point{X: life, Y: math.Round(life*5/9*1e6) / 1e6})
	}
	return figures.NewChart(figures.Chart{
		Title: "How long flows live: an elephant of half a core comes to two cores with mice",
		Notes: []string{overSeeds(o, "mice all live alike"), "level: both within 3 points of their average; the other panels from then on"},
		X:     figures.Axis{Label: "life of the mice (s)", Column: "life_s", From: s.xs[0], To: s.xs[len(s.xs)-1], Log: true},
		Panels: []figures.Panel{
			{Y: figures.Axis{Label: "level after (s)", Column: "level_s", From: 0.1, To: 100, Log: true}, Curves: append(level, least)},
			{Y: figures.Axis{Label: "CPU difference (%)", Column: "cpu_difference_percent"}, Curves: s.curves(m, livesApart, 1)},
			{Y: figures.Axis{Label: "weight: std. deviation", Column: "weight_deviation"}, Curves: s.curves(m, livesUnrest, 1)},
		},
	})
}
