package paper

import (
	"time"

	"proffer/lab/figures"
	"proffer/lab/sim"
	"proffer/lab/stats"
)

// Figures of HLB's parameters (HLB §VI-D).

func sensitivityFigures() []Figure {
	return []Figure{
		{"hlb-17", "farm B c1:2: response times against how often weights are updated, 90 %",
			"the five periods are ours; the simulator updates every 0.5 s, so all other times are scaled instead, which is the same", hlbPeriods},
		{"hlb-18b", "farm B c1:2: the Kalman gain over time, lognormal service of three means, 90 %",
			"the paper does not state the three distributions; the filter's process noise is the authors' simulator's", hlbGain},
		{"hlb-19", "256 servers of 2 and 4 cores: p90 against the size of the flow table", "the loads are ours, 70 and 90 %; a bucket holds one flow", hlbTable},
	}
}

const stepLength = 0.5 // s, of the simulator's learned and awcmp

// scaled is a run in which every time but the steps' is f times as long.
func scaled(s setup, rho, f float64) setup {
	times := func(d time.Duration) time.Duration { return seconds(d.Seconds() * f) }
	s.farm.HopMin, s.farm.HopMax, s.farm.Penalty = times(s.farm.HopMin), times(s.farm.HopMax), times(s.farm.Penalty)
	s.farm.Default.Service = sim.Exponential(times(s.farm.Default.Service.Mean))
	requests := s.work.Requests
	s.work = s.farm.Load(rho)
	s.work.Requests, s.work.PacketRate = requests, 5/f
	return s
}

// hlbPeriods is HLB Figure 17.
func hlbPeriods(o Options) plan {
	periods := o.some(0.1, 0.2, 0.5, 1, 2, 5)
	s := sweep{[]string{"awcmp", "learned:ages", "learned:completed"}, periods}
	p := plan{cells: s.cells(func(name string, period float64) cell {
		f := stepLength / period
		return scaled(at(farmB("c1:2", 4), name, 0.9, o), 0.9, f).cell(func(r sim.Result) []float64 {
			values := latencies(r)
			for i := range refused {
				values[i] /= f
			}
			return values
		})
	})}
	p.draw = func(m measured) (*figures.Figure, error) {
		return figures.NewChart(figures.Chart{
			Title: "HLB Figure 17: how often weights are updated, farm B c1:2, 4 LBs, 90 %",
			Notes: []string{overSeeds(o, "80,000 requests a run"), "published: awcmp degrades with longer periods, HLB less"},
			X:     figures.Axis{Label: "period of updates (s)", Column: "period_s", From: periods[0], To: periods[len(periods)-1], Log: true, Marks: periods},
			Panels: []figures.Panel{
				{Y: figures.Axis{Label: "mean (s)", Column: "mean_s"}, Curves: s.curves(m, mean, 1e-3)},
				{Y: figures.Axis{Label: "p90 (s)", Column: "p90_s"}, Curves: s.curves(m, p90, 1e-3)},
			},
		})
	}
	return p
}

// hlbGain is HLB Figure 18b.
func hlbGain(o Options) plan {
	const until = 60
	var p plan
	for _, name := range lognormals {
		run := at(lognormal(farmB("c1:2", 4), name), "learned:ages", 0.9, o)
		if o.Quick {
			run.work.Requests *= 2
		}
		p.cells = append(p.cells, cell{time.Duration(run.work.Requests) * requestCost, func(seed uint64) ([]float64, error) { return gains(run, seed, until) }})
	}
	p.draw = func(m measured) (*figures.Figure, error) {
		panel := figures.Panel{Y: figures.Axis{Label: "Kalman gain", Column: "kalman_gain", From: 0.01, To: 1, Log: true}}
		for i, name := range lognormals {
			curve := figures.Curve{Name: "mean " + name}
			for j := range until {
				if m[i][0][j] > 0 {
					curve.Points = append(curve.Points, m.point(float64(j+1), i, j, 1))
				}
			}
			panel.Curves = append(panel.Curves, curve)
		}
		return figures.NewChart(figures.Chart{
			Title:  "HLB Figure 18b: Kalman gain of learned:ages, farm B c1:2, 4 LBs, 90 %",
			Notes:  []string{overSeeds(o, "mean over the 4 LBs"), "published: other distributions of service times make the gain converge to other values"},
			X:      figures.Axis{Label: "time (s)", Column: "time_s", To: until},
			Panels: []figures.Panel{panel},
		})
	}
	return p
}

// gains are those of each second; 0 after the end.
func gains(run setup, seed uint64, until int) ([]float64, error) {
	out := make([]float64, until)
	run.work.ProbeEvery = time.Second
	run.work.Probe = func(s sim.Snapshot) {
		if i := int(s.Now.Seconds()+0.5) - 1; i >= 0 && i < until {
			out[i] = stats.Mean(s.Gain)
		}
	}
	_, err := run.run(seed)
	return out, err
}

// hlbTable is HLB Figure 19.
func hlbTable(o Options) plan {
	sizes := o.some(512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
	s := sweep{[]string{"lsq", "sed", "learned:ages", "learned:completed"}, sizes}
	loads := []float64{0.7, 0.9}
	var p plan
	for _, rho := range loads {
		p.cells = append(p.cells, s.cells(func(name string, size float64) cell {
			farm := farmB("c1:2", 4)
			farm.Servers = append(farm.Servers, farm.Servers...)
			for i := range farm.Servers {
				farm.Servers[i].Cores = 2 + 2*(i/128)
			}
			farm.FlowTable = int(size)
			return at(farm, name, rho, o).cell(func(r sim.Result) []float64 {
				return append(latencies(r), 100*float64(r.Untracked)/float64(2*r.Counted)) // half of them count
			})
		})...)
	}
	p.draw = func(m measured) (*figures.Figure, error) {
		c := figures.Chart{
			Title: "HLB Figure 19: size of the flow table, 256 servers of 2 and 4 cores, 4 LBs",
			Notes: []string{overSeeds(o, "80,000 requests a run"), "published: HLB is less sensitive than lsq and sed, and best with the least table"},
			X:     figures.Axis{Label: "flow table of an LB (buckets)", Column: "buckets", From: sizes[0], To: sizes[len(sizes)-1], Log: true, Marks: sizes},
		}
		half := len(p.cells) / 2
		c.Panels = []figures.Panel{
			{Y: figures.Axis{Label: "p90 at 70 % (s)", Column: "p90_at_70_s"}, Curves: s.curves(m[:half], p90, 1e-3)},
			{Y: figures.Axis{Label: "p90 at 90 % (s)", Column: "p90_at_90_s"}, Curves: s.curves(m[half:], p90, 1e-3)},
			{Y: figures.Axis{Label: "untracked at 90 % (%)", Column: "untracked_at_90_percent"}, Curves: s.curves(m[half:], visits+1, 1)},
		}
		return figures.NewChart(c)
	}
	return p
}
