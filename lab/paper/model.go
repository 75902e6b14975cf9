package paper

import (
	"fmt"
	"math"

	"proffer/lab/figures"
	"proffer/lab/queue"
)

// Figures of the analytic model (6LB §V).

func modelFigures() []Figure {
	seconds := "mean response time"
	return []Figure{
		{"6lb-8a", "model: " + seconds + " against load", "", loadChart("8a: mean response time", "mean response time (service times)", "mean_response_time", 0, 10, (*queue.Model).Mean)},
		{"6lb-8b", "model: fairness index against load", "", loadChart("8b: fairness index of the servers' flows", "fairness index", "fairness_index", 0, 1, (*queue.Model).Fairness)},
		{"6lb-8c", "model: 90th percentile against load", "", loadChart("8c: 90th percentile of the response time", "p90 of the response time (service times)", "p90_response_time", 0, 20, percentile90)},
		{"6lb-8d", "model: " + seconds + " if passing on costs a service time", "", loadChart("8d: mean response time with delay δ = 1", "mean response time (service times)", "mean_response_time", 1, 10, (*queue.Model).Mean)},
		{"6lb-8e", "model: distribution of the response time at λ = .88", "", modelCDF},
		{"6lb-8f", "model: servers needed for a promise on p90, over those of single", "", reduction},
		{"6lb-9", "model: share of wrongful rejections against load", "", wrongful},
	}
}

func percentile90(m *queue.Model) float64 { return m.Percentile(90) }

var modelPolicies = []queue.Policy{queue.Single, 2, 4, 8}

var loadAxis = figures.Axis{Label: "load λ, of a server's capacity", Column: "load", From: 0, To: 1}

// modelled is one measure of a policy over the load.
func modelled(p queue.Policy, delay float64, of func(*queue.Model) float64) (figures.Curve, error) {
	c := figures.Curve{Name: p.String()}
	for _, lambda := range append(steps(0.01, 0.98, 0.01), 0.983, 0.985, 0.99, 0.995, 0.999) {
		m, err := queue.Solve(p, lambda, delay)
		if err != nil {
			return c, err
		}
		c.Points = append(c.Points, figures.Point{X: lambda, Y: of(m)})
	}
	return c, nil
}

func loadChart(title, label, column string, delay, top float64, of func(*queue.Model) float64) func(Options) plan {
	return func(Options) plan {
		return computed(func() (*figures.Figure, error) {
			c := figures.Chart{Title: "6LB Figure " + title, X: loadAxis, Panels: []figures.Panel{{Y: figures.Axis{Label: label, Column: column, To: top}}}}
			for _, p := range modelPolicies {
				curve, err := modelled(p, delay, of)
				if err != nil {
					return nil, err
				}
				c.Panels[0].Curves = append(c.Panels[0].Curves, curve)
			}
			if column == "mean_response_time" && delay == 0 {
				at, err := crossing()
				if err != nil {
					return nil, err
				}
				c.Notes = []string{fmt.Sprintf("published: hunt:static:8 beats hunt:static:4 from λ = 0.983 on; ours: from %.4f", at)}
			}
			return figures.NewChart(c)
		})
	}
}

// crossing is the load from which a threshold of 8 is better than one of 4.
func crossing() (float64, error) {
	low, high := 0.9, 0.999
	for range 40 {
		middle := (low + high) / 2
		four, err := queue.Solve(4, middle, 0)
		if err != nil {
			return 0, err
		}
		eight, err := queue.Solve(8, middle, 0)
		if err != nil {
			return 0, err
		}
		if eight.Mean() < four.Mean() {
			high = middle
		} else {
			low = middle
		}
	}
	return high, nil
}

func modelCDF(Options) plan {
	return computed(func() (*figures.Figure, error) {
		c := figures.Chart{
			Title:  "6LB Figure 8e: distribution of the response time, λ = 0.88",
			X:      figures.Axis{Label: "response time (service times)", Column: "response_time", To: 20},
			Panels: []figures.Panel{{Y: figures.Axis{Label: "share of requests answered", Column: "share_of_requests", To: 1}}},
		}
		for _, p := range modelPolicies {
			m, err := queue.Solve(p, 0.88, 0)
			if err != nil {
				return nil, err
			}
			curve := figures.Curve{Name: p.String()}
			for _, t := range steps(0, 20, 0.1) {
				curve.Points = append(curve.Points, figures.Point{X: t, Y: m.CDF(t)})
			}
			c.Panels[0].Curves = append(c.Panels[0].Curves, curve)
		}
		return figures.NewChart(c)
	})
}

func reduction(Options) plan {
	return computed(func() (*figures.Figure, error) {
		curve := figures.Curve{Name: "hunt:static:4"}
		for _, t := range steps(2.5, 25, 0.1) {
			share, err := queue.Reduction(4, queue.SLA{Percentile: 90, Time: t}, 0)
			if err != nil {
				return nil, err
			}
			curve.Points = append(curve.Points, figures.Point{X: t, Y: 100 * share})
		}
		published := figures.Curve{Name: "published: 71 of 100", Kind: figures.Published, Points: []figures.Point{{X: 6, Y: 71}}}
		at6, err := queue.Reduction(4, queue.SLA{Percentile: 90, Time: 6}, 0)
		if err != nil {
			return nil, err
		}
		return figures.NewChart(figures.Chart{
			Title:  "6LB Figure 8f: servers for a promise on the 90th percentile",
			Notes:  []string{fmt.Sprintf("at 6 service times; published: 71 of 100 servers; ours: %.2f, so %.0f", 100*at6, math.Ceil(100*at6))},
			X:      figures.Axis{Label: "promise: 90 % answered within (service times)", Column: "promise_p90", To: 25},
			Panels: []figures.Panel{{Y: figures.Axis{Label: "servers, of 100 with single", Column: "servers_percent_of_single", To: 100}, Curves: []figures.Curve{curve, published}}},
		})
	})
}

func wrongful(Options) plan {
	return computed(func() (*figures.Figure, error) {
		c := figures.Chart{
			Title:  "6LB Figure 9: requests passed on to a busier server",
			Notes:  []string{"published: less than 4.5 % for hunt:static:4 at λ ≤ 0.9"},
			X:      loadAxis,
			Panels: []figures.Panel{{Y: figures.Axis{Label: "wrongful rejections (%)", Column: "wrongful_rejections_percent"}}},
		}
		for _, p := range modelPolicies[1:] {
			curve, err := modelled(p, 0, func(m *queue.Model) float64 { return 100 * m.Wrongful() })
			if err != nil {
				return nil, err
			}
			c.Panels[0].Curves = append(c.Panels[0].Curves, curve)
		}
		c.Panels[0].Curves = append(c.Panels[0].Curves, figures.Curve{Name: "published bound: hunt:static:4", Kind: figures.Published, Of: "hunt:static:4", Points: []figures.Point{{X: 0.9, Y: 4.5}}})
		return figures.NewChart(c)
	})
}
