package paper

import (
	"fmt"
	"math"
	"slices"
	"time"

	"proffer/lab/figures"
	"proffer/lab/queue"
	"proffer/lab/sim"
)

// Figures of the 6LB testbed over the load and the like (6LB §VI-B), simulated on
// farm A.

const testbed = "simulated, not the testbed; ρ is of the cores' capacity, the paper's of the rate at which connections drop"

func rateFigures() []Figure {
	return []Figure{
		{"6lb-10a", "farm A: mean response time against load, hunt:static and dynamic, with the model", testbed, responses},
		{"6lb-11a", "farm A: mean response time against the number of servers", testbed, fewerServers},
		{"6lb-11e", "farm A: hunting against centralized policies", testbed, centralized},
		{"6lb-11f", "farm A: mean response time against the deviation of service times", testbed, variance},
	}
}

func responseAxis(top float64) figures.Axis {
	return figures.Axis{Label: "mean response time (s)", Column: "mean_response_time_s", To: top}
}

func rhoAxis(from float64) figures.Axis {
	return figures.Axis{Label: "load ρ, of the farm's capacity", Column: "load", From: from, To: 1}
}

var hunting = []string{"single", "hunt:static:4", "hunt:static:8", "hunt:static:16", "hunt:dynamic"}

// responses is 6LB Figure 10a.
func responses(o Options) plan {
	return overLoad(o, sim.FarmA(), overLoadText{
		title: "6LB Figure 10a: mean response time, farm A", runs: "farm A, 80,000 requests a run",
		ratio: 2.3, at: 0.87, top: 1.6,
		published: []figures.Curve{published("single", "single", 0.71, 0.58)},
	}, o.with(0.87, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.55, 0.61, 0.66, 0.71, 0.75, 0.79, 0.83, 0.85, 0.87, 0.89, 0.91, 0.93, 0.95, 0.97))
}

type overLoadText struct {
	title, runs string
	ratio, at   float64 // single ÷ hunt:static:4 as published, and at which load
	top         float64 // of the y axis, in s
	published   []figures.Curve
}

// overLoad draws the mean of the hunting policies with the model. Its units
// are fitted on single as in the paper.
func overLoad(o Options, farm sim.Farm, text overLoadText, rhos []float64) plan {
	s := sweep{hunting, rhos}
	p := plan{cells: s.cells(func(name string, rho float64) cell { return at(farm, name, rho, o).cell(latencies) })}
	p.draw = func(m measured) (*figures.Figure, error) {
		curves := s.curves(m, mean, 1e-3)
		model, err := fitted(curves)
		if err != nil {
			return nil, err
		}
		j := slices.Index(rhos, text.at)
		value, half := ratio(m, s.index(0, j), s.index(1, j), mean)
		notes := []string{overSeeds(o, text.runs),
			fmt.Sprintf("single ÷ hunt:static:4, published: up to %v at ρ = %v; ours there: %.2f ± %.2f", text.ratio, text.at, value, half)}
		model = append(model, published(fmt.Sprintf("single ÷ %v", text.ratio), "hunt:static:4", text.at, curves[0].Points[j].Y/text.ratio))
		return figures.NewChart(figures.Chart{
			Title: text.title, Notes: notes, X: rhoAxis(0),
			Panels: []figures.Panel{{Y: responseAxis(text.top), Curves: append(append(curves, model...), text.published...)}},
		})
	}
	return p
}

// fitted is the model's mean for each policy of curves but the dynamic one, with
// the two scales, of time and of load, that suit the first curve, single, best
// below a load of 0.9 (6LB §VI-B2, footnote 5).
func fitted(curves []figures.Curve) ([]figures.Curve, error) {
	best, time, load := math.Inf(1), 0.0, 0.0
	for b := 0.5; b <= 1.0; b += 0.0025 {
		sum, square := 0.0, 0.0 // of measured · model, model², both over measured²
		used := below(curves[0].Points, 0.9)
		for _, p := range used {
			x := 1 / (1 - b*p.X) / p.Y
			sum, square = sum+x, square+x*x
		}
		a, off := sum/square, 0.0
		for _, p := range used {
			d := 1 - a/(1-b*p.X)/p.Y
			off += d * d
		}
		if off < best {
			best, time, load = off, a, b
		}
	}
	var models []figures.Curve
	for i, c := range []queue.Policy{queue.Single, 4, 8, 16} {
		model := figures.Curve{Name: "model: " + curves[i].Name, Kind: figures.Model, Of: curves[i].Name}
		for _, rho := range steps(0.02, 0.98, 0.02) {
			m, err := queue.Solve(c, load*rho, 0)
			if err != nil {
				return nil, err
			}
			model.Points = append(model.Points, figures.Point{X: rho, Y: time * m.Mean()})
		}
		models = append(models, model)
	}
	return models, nil
}

func below(points []figures.Point, x float64) (some []figures.Point) {
	for _, p := range points {
		if p.X < x {
			some = append(some, p)
		}
	}
	return some
}

// fewerServers is 6LB Figure 11a: the load stays that of 48 servers at 0.71.
func fewerServers(o Options) plan {
	const of = 48
	numbers := o.some(34, 35, 36, 37, 38, 39, 40, 42, 44, 46, 48)
	farm := sim.FarmA()
	work := farm.Load(0.71)
	work.Requests = o.requests(work.Requests)
	names := []string{"hunt:static:4", "guided", "jsq"}
	s := sweep{names, numbers}
	p := plan{cells: s.cells(func(name string, n float64) cell {
		fewer := farm
		fewer.Servers = farm.Servers[:int(n)]
		return setup{farm: fewer, policy: name, work: work}.cell(latencies)
	})}
	p.cells = append(p.cells, setup{farm: farm, policy: "single", work: work}.cell(latencies))
	p.draw = func(m measured) (*figures.Figure, error) {
		single, _ := m.at(len(p.cells)-1, mean)
		curves := s.curves(m, mean, 1e-3)
		notes := []string{overSeeds(o, "requests come as to 48 servers at ρ = 0.71"), "servers that are as fast as 48 with single; published for hunt:static:4: 40; ours: "}
		for _, c := range curves {
			notes[1] += fmt.Sprintf("%s %s, ", c.Name, enough(c.Points, single/1e3))
		}
		notes[1] = notes[1][:len(notes[1])-2]
		curves = append(curves,
			figures.Curve{Name: "single, 48 servers", Kind: figures.Model, Points: []figures.Point{{X: 34, Y: single / 1e3}, {X: of, Y: single / 1e3}}},
			published("40 servers, 0.58 s", "hunt:static:4", 40, 0.58))
		return figures.NewChart(figures.Chart{
			Title: "6LB Figure 11a: fewer servers for the same response time, farm A", Notes: notes,
			X:      figures.Axis{Label: "servers", Column: "servers", From: 34, To: of},
			Panels: []figures.Panel{{Y: figures.Axis{Label: "mean response time (s)", Column: "mean_response_time_s", To: 1}, Curves: curves}},
		})
	}
	return p
}

func enough(points []figures.Point, y float64) string {
	for _, p := range points {
		if p.Y <= y {
			return fmt.Sprint(p.X)
		}
	}
	return "none"
}

// centralized is 6LB Figure 11e.
func centralized(o Options) plan {
	s := sweep{[]string{"single", "rr", "wrr-feedback", "hunt:dynamic", "guided", "jsq"}, o.some(0.1, 0.2, 0.3, 0.4, 0.5, 0.61, 0.66, 0.71, 0.75, 0.79, 0.83, 0.87, 0.89, 0.91, 0.93, 0.95)}
	p := plan{cells: s.cells(func(name string, rho float64) cell { return at(sim.FarmA(), name, rho, o).cell(latencies) })}
	p.draw = func(m measured) (*figures.Figure, error) {
		return figures.NewChart(figures.Chart{
			Title:  "6LB Figure 11e: hunting against centralized policies, farm A",
			Notes:  []string{overSeeds(o, "farm A, 80,000 requests a run"), "published: hunt:dynamic < wrr-feedback < rr < single above ρ = 0.7; guided and jsq are not in the paper"},
			X:      rhoAxis(0),
			Panels: []figures.Panel{{Y: responseAxis(1.6), Curves: s.curves(m, mean, 1e-3)}},
		})
	}
	return p
}

// variance is 6LB Figure 11f: lognormal service with the median of the
// exponential of mean 190 ms; the rate stays.
func variance(o Options) plan {
	s := sweep{[]string{"single", "rr", "hunt:dynamic", "guided"}, o.some(0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3)}
	median := 0.190 * math.Ln2
	p := plan{cells: s.cells(func(name string, sd float64) cell {
		run := at(sim.FarmA(), name, 0.71, o)
		// mean² = median²·u with u = exp(σ²), and sd² = median²·u·(u − 1)
		u := (1 + math.Sqrt(1+4*sd*sd/(median*median))) / 2
		run.work.Service = sim.Lognormal(seconds(median*math.Sqrt(u)), seconds(sd))
		return run.cell(latencies)
	})}
	p.draw = func(m measured) (*figures.Figure, error) {
		return figures.NewChart(figures.Chart{
			Title:  "6LB Figure 11f: deviation of service times, farm A",
			Notes:  []string{overSeeds(o, "lognormal service of median 132 ms, requests as at ρ = 0.71 of exponential service (so ρ = 0.49 at deviation 0, 0.83 at 0.3 s)"), "published: at 0 rr is best, then hunt:dynamic, then single; hunt:dynamic becomes the best as the deviation grows"},
			X:      figures.Axis{Label: "standard deviation of service times (s)", Column: "service_sd_s", To: 0.31},
			Panels: []figures.Panel{{Y: figures.Axis{Label: "mean response time (s)", Column: "mean_response_time_s"}, Curves: s.curves(m, mean, 1e-3)}},
		})
	}
	return p
}

func seconds(s float64) time.Duration { return time.Duration(math.Round(s * 1e9)) }
