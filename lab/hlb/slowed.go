package hlb

import (
	"fmt"
	"math"

	"proffer/lab/farmrun"
	"proffer/lab/figures"
)

// Figure 23: other work on the servers with more cores, in the middle; and 24, the cost.

// slowedBins is how many points the course of a run has.
const slowedBins = 60

func (r *Report) drawSlowed(f figure) ([]drawing, error) {
	at := r.experiment.slowedAt().Seconds()
	response := figures.Panel{Y: figures.Axis{Label: "mean response (ms)", Column: "mean_ms"}}
	weights := figures.Panel{Y: figures.Axis{Label: "weights, 2 cores ÷ 1", Column: "weights_ratio"}}
	for _, h := range r.of(f) {
		response.Curves = append(response.Curves, h.course(2*at/slowedBins, 2*at))
		if h.cell.policy == learned {
			weights.Curves = append(weights.Curves, h.weightsCourse())
		}
	}
	all, err := r.chart("23", figures.Chart{
		Title: fmt.Sprintf("HLB Figure 23: servers with 2 cores get other work after %.3g s", at),
		Notes: []string{r.slowedFarm(), "weights: mean of the LBs', by `proffer status --json`, four times a second", "published: HLB sees that both groups are alike from then on, and does better than the others"},
		X:     figures.Axis{Label: "time (s)", Column: "time_s", To: 2 * at}, Panels: []figures.Panel{response, weights},
	})
	if err != nil {
		return all, err
	}
	kinds, err := r.drawKinds(f)
	return append(all, kinds...), err
}

// slowedFarm states the scale of Figure 23.
func (r *Report) slowedFarm() string {
	e, c := r.experiment, slowedCells(r.experiment)[0]
	return fmt.Sprintf("ours: %d servers on virtual cores, mean service %v, %.0f requests a second", e.servers(c), e.mean(c), c.load*e.kinds(c).Capacity()/e.mean(c).Seconds())
}

// course is the mean response time of requests over the time of their arrival.
func (h *result) course(bin, end float64) figures.Curve {
	n := int(math.Round(end / bin))
	sums, counts := make([]float64, n), make([]float64, n)
	for _, q := range h.requests {
		if i := int(q.at / bin); i < n {
			sums[i] += q.took
			counts[i]++
		}
	}
	c := figures.Curve{Name: h.cell.policy}
	for i := range sums {
		if counts[i] > 0 {
			c.Points = append(c.Points, figures.Point{X: (float64(i) + 0.5) * bin, Y: 1e3 * sums[i] / counts[i]})
		}
	}
	return c
}

// weightsCourse is the ratio of weights over time, at the mean LB.
func (h *result) weightsCourse() figures.Curve {
	c := figures.Curve{Name: h.cell.policy}
	m := h.cell.lbs
	for first := 0; first+m <= len(h.beliefs); first += m {
		sum := 0.0
		for _, b := range h.beliefs[first : first+m] {
			sum += h.groups(b.weights())
		}
		c.Points = append(c.Points, figures.Point{X: h.beliefs[first].seconds, Y: sum / float64(m)})
	}
	return c
}

func (r *Report) besideSlowed() (all []farmrun.Published) {
	e, c := r.experiment, slowedCells(r.experiment)[0]
	c.policy = learned
	h := r.find(c)
	if h == nil {
		return nil
	}
	at := e.slowedAt().Seconds()
	all = append(all,
		farmrun.OfPaper("HLB's weights before and after", "no number; alike after", fmt.Sprintf("%.2f and %.2f", h.weightsRatio(at*2/3, at), h.weightsRatio(at*5/3, at*2))),
		farmrun.Published{Shows: "nine tenths of that way", Goal: fmt.Sprintf("%.0f s at most", mostFollow), Ours: fmt.Sprintf("%.1f s", h.followed(e.slowedAt()))})
	text := ""
	for _, name := range bestPolicies {
		if c.policy = name; r.find(c) != nil {
			text += fmt.Sprintf("%s %.0f  ", name, 1e3*r.find(c).meanFrom(at))
		}
	}
	return append(all, farmrun.OfPaper("mean response after the change, ms", "HLB best", text))
}

// meanFrom is the mean of the requests that came from an instant on.
func (h *result) meanFrom(from float64) float64 {
	return mean(h.taken(func(q request) bool { return q.at >= from }))
}

func (r *Report) drawCost(figure) ([]drawing, error) {
	if len(r.costs) == 0 {
		return nil, nil
	}
	g := figures.Groups{
		Title: "HLB Figure 24: a connection of a SYN, a packet of data and a FIN", GroupLabel: "policy", GroupColumn: "policy", Series: []string{"ours"},
		Notes: []string{"the LB's program, a service of 128 servers, 33,333 connections at once", "published: HLB 0.34 µs more than ECMP on 2.6 GHz, 87.38 % of its packet rate"},
		Panels: []figures.BoxPanel{
			{Y: figures.Axis{Label: "ns a connection"}, Columns: []string{"connection_ns"}},
			{Y: figures.Axis{Label: "packet rate, of by hash (%)"}, Columns: []string{"rate_percent"}},
		},
	}
	for i, c := range r.costs {
		g.Groups = append(g.Groups, c.Policy)
		g.Panels[0].Boxes = append(g.Panels[0].Boxes, []figures.Box{{Value: c.NS}})
		g.Panels[1].Boxes = append(g.Panels[1].Boxes, []figures.Box{{Value: 100 * c.Rate}})
		if c.Policy == learned {
			g.Panels[1].Published = append(g.Panels[1].Published, figures.PublishedBox{Group: i, Value: 87.38})
		}
	}
	return r.groups("24", g)
}

func (r *Report) besideCost() (all []farmrun.Published) {
	base := hashCost(r.costs)
	for _, c := range r.costs {
		if c.Policy == learned {
			all = append(all,
				farmrun.OfPaper("a connection of HLB more than by hash", "871 cycles, 335 ns", fmt.Sprintf("%.0f ns", c.NS-base)),
				farmrun.OfPaper("packet rate of HLB, of that by hash", "87.38 %", farmrun.Percent(c.Rate)))
		}
	}
	return all
}
