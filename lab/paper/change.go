package paper

import (
	"time"

	"proffer/lab/figures"
	"proffer/lab/sim"
)

// HLB Figure 23 (§VI-E2): the strong servers get other work.

func changeFigures() []Figure {
	return []Figure{{
		"hlb-23", "farm B c1:2: mean response time and weights when the strong servers get other work after 30 s",
		"simulated, not the Wikipedia testbed: 128 servers, 60 % of all cores; one core's worth of other work on each strong server, so 90 % of the rest", changed,
	}}
}

const (
	changeAt    = 30 // s
	changeUntil = 90
	changeEvery = 2
)

func changed(o Options) plan {
	names := []string{"lsq", "gsq2", "sed", "learned:ages", "learned:completed", "guided"}
	farm := farmB("c1:2", 4)
	other := sim.Background{From: changeAt * time.Second, Cores: 1}
	for i := 64; i < 128; i++ {
		other.Servers = append(other.Servers, i)
	}
	farm.Background = []sim.Background{other}
	farm.Default.From, farm.Default.To = 0, 0
	var p plan
	for _, name := range names {
		run := at(farm, name, 0.6, o)
		run.work.Requests = int(run.perSecond * changeUntil)
		if o.Quick {
			run.work.Requests /= 2
		}
		p.cells = append(p.cells, cell{time.Duration(run.work.Requests) * requestCost, func(seed uint64) ([]float64, error) { return course(run, seed) }})
	}
	const bins = changeUntil / changeEvery
	p.draw = func(m measured) (*figures.Figure, error) {
		x := figures.Axis{Label: "time of arrival (s)", Column: "time_s", To: changeUntil}
		fct := figures.Panel{Y: figures.Axis{Label: "mean response time (s)", Column: "mean_s"}}
		weights := figures.Panel{Y: figures.Axis{Label: "weights, strong ÷ weak", Column: "weights_ratio"}}
		for i, name := range names {
			a, b := figures.Curve{Name: name}, figures.Curve{Name: name}
			for j := range bins {
				t := (float64(j) + 0.5) * changeEvery
				if m[i][0][j] > 0 {
					a.Points = append(a.Points, m.point(t, i, j, 1e-3))
				}
				if m[i][0][bins+j] > 0 {
					b.Points = append(b.Points, m.point(t, i, bins+j, 1))
				}
			}
			fct.Curves = append(fct.Curves, a)
			if name == "sed" || name == "learned:completed" || name == "learned:ages" {
				weights.Curves = append(weights.Curves, b)
			}
		}
		return figures.NewChart(figures.Chart{
			Title: "HLB Figure 23: strong servers get other work after 30 s, farm B c1:2, 4 LBs",
			Notes: []string{overSeeds(o, "requests of 2 s together"), "published: HLB sees that both halves are alike from 30 s on, and does better than the others"},
			X:     x, Panels: []figures.Panel{fct, weights},
		})
	}
	return p
}

// course is the mean response time in ms of each bin of arrivals, then the ratio
// of weights in it; 0 where there is none.
func course(run setup, seed uint64) ([]float64, error) {
	const bins = changeUntil / changeEvery
	out, count := make([]float64, 2*bins), make([]float64, 2*bins)
	bin := func(t time.Duration) int { return int(t.Seconds() / changeEvery) }
	run.work.KeepRows = true
	run.work.ProbeEvery = time.Second
	run.work.Probe = func(s sim.Snapshot) {
		if i := bin(s.Now); i < bins && s.Weights != nil {
			out[bins+i] += weightRatio(s.Weights)
			count[bins+i]++
		}
	}
	r, err := run.run(seed)
	for _, row := range r.Rows {
		if i := bin(row.At); i < bins {
			out[i] += float64(row.FCT) / 1e6
			count[i]++
		}
	}
	for i := range out {
		out[i] /= max(1, count[i])
	}
	return out, err
}
