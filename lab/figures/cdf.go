package figures

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
)

// Responses are the response times of the requests of one policy, in seconds
// and any order.
type Responses struct {
	Name    string
	Seconds []float64
}

// tail is the share of requests that the x axis of a CDF covers for the slowest
// policy. The rest would squeeze the curves into the left edge.
const tail = 0.995

// CDF draws the distribution of response times, one curve a policy: SRLB
// Figures 3 and 5. The table holds every request.
func CDF(title string, policies []Responses) (*Figure, error) {
	names := make([]string, len(policies))
	sorted := make([][]float64, len(policies))
	for i, p := range policies {
		names[i], sorted[i] = p.Name, slices.Sorted(slices.Values(p.Seconds))
	}
	if err := checkResponses(names, sorted); err != nil {
		return nil, fmt.Errorf("draw CDF: %w", err)
	}
	end := 0.0
	for _, seconds := range sorted {
		end = max(end, seconds[rank(tail, len(seconds))])
	}
	end = max(end, 1e-6) // an axis of no length cannot be drawn
	unit := timeUnit(end)
	p := panel("response time ("+unit.name+")", "share of requests answered")
	f := &Figure{title: title, panels: []*plot.Plot{p}, table: table{columns: []string{"series", "response_time_s", "share_of_requests"}}}
	styles := lines(names)
	for i, seconds := range sorted {
		points := distribution(seconds, unit.perSecond, end*unit.perSecond)
		if err := addCurve(p, points, styles[i], plotter.PostStep); err != nil {
			return nil, fmt.Errorf("draw CDF: curve %q: %w", names[i], err)
		}
		f.table.addDistribution(names[i], seconds)
	}
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, end*unit.perSecond, 0, 1
	f.legend = legend(names, styles)
	return f, nil
}

func checkResponses(names []string, sorted [][]float64) error {
	if err := named(names); err != nil {
		return err
	}
	for i, seconds := range sorted {
		if len(seconds) == 0 {
			return fmt.Errorf("curve %q has no points", names[i])
		}
		if err := finite(names[i], "response time", seconds); err != nil {
			return err
		}
		if seconds[0] < 0 {
			return fmt.Errorf("curve %q: response time %v s is below zero", names[i], seconds[0])
		}
	}
	return nil
}

// rank is the index of the q-quantile among n sorted values (nearest rank).
func rank(q float64, n int) int {
	return max(int(math.Ceil(q*float64(n)))-1, 0)
}

// distribution steps up by 1/n at each value and ends at the edge of the panel.
func distribution(seconds []float64, perSecond, end float64) plotter.XYs {
	points := plotter.XYs{{X: 0, Y: 0}}
	n := float64(len(seconds))
	share := 0.0
	for i, s := range seconds {
		if s*perSecond > end {
			break
		}
		share = float64(i+1) / n
		points = append(points, plotter.XY{X: s * perSecond, Y: share})
	}
	return append(points, plotter.XY{X: end, Y: share})
}

func (t *table) addDistribution(name string, seconds []float64) {
	for i, s := range seconds {
		t.rows = append(t.rows, row{curve: name, values: []float64{s, float64(i+1) / float64(len(seconds))}})
	}
}

type unit struct {
	name      string
	perSecond float64
}

// timeUnit keeps the numbers on an axis that ends at end seconds short.
func timeUnit(end float64) unit {
	if end < 2 {
		return unit{"ms", 1000}
	}
	return unit{"s", 1}
}
