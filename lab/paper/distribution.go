package paper

import (
	"fmt"
	"math"
	"time"

	"proffer/lab/figures"
	"proffer/lab/sim"
	"proffer/lab/stats"
)

// Figures of one load of the 6LB testbed: over time, and as distributions.

func distributionFigures() []Figure {
	return []Figure{
		{"6lb-10b", "farm A: busy workers and their fairness over time at ρ = .89", testbed, func(o Options) plan {
			return overTime(o, sim.FarmA(), 0.89, hunting, "6LB Figure 10b: busy workers of the servers, farm A, ρ = 0.89, one run")
		}},
		{"6lb-10c", "farm A: distribution of the response time at ρ = .71 and .89", testbed, func(o Options) plan {
			return distributions(o, sim.FarmA(), []float64{0.71, 0.89}, 3, "6LB Figure 10c: distribution of the response time, farm A")
		}},
		{"6lb-11c", "farm A: time from SYN to SYN-ACK at ρ = .71",
			"a hop here takes 0.1 to 1 ms, on the testbed some tens of µs: only the number of hops compares", handshakes},
	}
}

// overTime is a run of each policy, probed.
func overTime(o Options, farm sim.Farm, rho float64, policies []string, title string) plan {
	const every = 100 * time.Millisecond
	p := plan{seeds: 1}
	for _, name := range policies {
		run := at(farm, name, rho, o)
		p.cells = append(p.cells, cell{time.Duration(run.work.Requests) * requestCost, func(seed uint64) ([]float64, error) { return loadOf(run, seed, every) }})
	}
	p.draw = func(m measured) (*figures.Figure, error) {
		var loads []figures.Load
		for i, name := range policies {
			l := figures.Load{Name: name}
			values := m[i][0]
			for j := 0; j < len(values); j += 2 {
				l.Seconds = append(l.Seconds, float64(j/2)*every.Seconds())
				l.Busy = append(l.Busy, values[j])
				l.Fairness = append(l.Fairness, values[j+1])
			}
			loads = append(loads, l)
		}
		return figures.LoadOverTime(title, loads)
	}
	return p
}

// loadOf is busy workers and fairness in turn, while requests come.
func loadOf(run setup, seed uint64, every time.Duration) ([]float64, error) {
	var values []float64
	busy := make([]float64, len(run.farm.Servers))
	run.work.ProbeEvery = every
	run.work.Probe = func(s sim.Snapshot) {
		sum := 0.0
		for i, n := range s.Busy {
			busy[i] = float64(min(int(n), run.farm.Servers[i].Workers))
			sum += busy[i]
		}
		values = append(values, sum/float64(len(busy)), stats.Jain(busy))
	}
	_, err := run.run(seed)
	come := float64(run.work.Requests) / run.perSecond
	return values[:min(len(values), 2*int(come/every.Seconds()))], err
}

// distributions are CDFs, one panel a load.
func distributions(o Options, farm sim.Farm, rhos []float64, until float64, title string) plan {
	var p plan
	for _, rho := range rhos {
		for _, name := range hunting {
			p.cells = append(p.cells, at(farm, name, rho, o).cell(quantiles))
		}
	}
	p.draw = func(m measured) (*figures.Figure, error) {
		c := figures.Chart{
			Title: title,
			Notes: []string{fmt.Sprintf("each quantile is the mean over %d seeds", o.Seeds)},
			X:     figures.Axis{Label: "response time (ms)", Column: "response_time_ms", To: until * 1000},
		}
		for i, rho := range rhos {
			panel := figures.Panel{Y: figures.Axis{Label: fmt.Sprintf("share answered, ρ = %v", rho), Column: fmt.Sprintf("share_of_requests_at_%v", rho), To: 1}}
			for j, name := range hunting {
				panel.Curves = append(panel.Curves, distribution(name, m, i*len(hunting)+j))
			}
			c.Panels = append(c.Panels, panel)
		}
		return figures.NewChart(c)
	}
	return p
}

// handshakes is 6LB Figure 11c: three hops with single; with hunting one more,
// since the SYN-ACK goes by the LB, and another for each request that is passed
// on; the simulator gives their share.
func handshakes(o Options) plan {
	farm := sim.FarmA()
	run := at(farm, "hunt:static:4", 0.71, o)
	p := plan{cells: []cell{run.cell(latencies)}}
	p.draw = func(m measured) (*figures.Figure, error) {
		on, half := m.at(0, visits)
		on--
		names := []string{"single", "hunt:static:4", "accepted by the first", "accepted by the second"}
		cdf := []func(float64) float64{
			func(ms float64) float64 { return hops(farm, 3, ms) },
			func(ms float64) float64 { return (1-on)*hops(farm, 4, ms) + on*hops(farm, 5, ms) },
			func(ms float64) float64 { return hops(farm, 4, ms) },
			func(ms float64) float64 { return hops(farm, 5, ms) },
		}
		c := figures.Chart{
			Title: "6LB Figure 11c: from SYN to SYN-ACK, farm A, ρ = 0.71",
			Notes: []string{
				fmt.Sprintf("accepted by the second, published: 38 %%; ours: %.1f ± %.1f %%", 100*on, 100*half),
				fmt.Sprintf("median later than with single, published: 69 µs of unknown hops; ours: %.2f hops of 0.55 ms on average", (median(cdf[1])-median(cdf[0]))/0.55),
			},
			X:      figures.Axis{Label: "SYN to SYN-ACK (ms)", Column: "syn_to_synack_ms", To: 5},
			Panels: []figures.Panel{{Y: figures.Axis{Label: "share of connections", Column: "share_of_connections", To: 1}}},
		}
		for i, name := range names {
			curve := figures.Curve{Name: name}
			for _, ms := range steps(0, 5, 0.05) {
				curve.Points = append(curve.Points, figures.Point{X: ms, Y: round(cdf[i](ms))})
			}
			c.Panels[0].Curves = append(c.Panels[0].Curves, curve)
		}
		return figures.NewChart(c)
	}
	return p
}

// hops is the distribution of the time that n hops take: of the sum of n uniform
// numbers (Irwin and Hall).
func hops(f sim.Farm, n int, ms float64) float64 {
	least, most := f.HopMin.Seconds()*1e3, f.HopMax.Seconds()*1e3
	x := (ms - float64(n)*least) / (most - least)
	switch {
	case x <= 0:
		return 0
	case x >= float64(n):
		return 1
	}
	sum, sign, choose, factorial := 0.0, 1.0, 1.0, 1.0
	for k := 0; float64(k) <= x; k++ {
		sum += sign * choose * math.Pow(x-float64(k), float64(n))
		sign, choose = -sign, choose*float64(n-k)/float64(k+1)
	}
	for k := 2; k <= n; k++ {
		factorial *= float64(k)
	}
	return sum / factorial
}

func median(cdf func(float64) float64) float64 {
	low, high := 0.0, 100.0
	for range 60 {
		if middle := (low + high) / 2; cdf(middle) < 0.5 {
			low = middle
		} else {
			high = middle
		}
	}
	return high
}
