package paper

import (
	"fmt"
	"math"
	"slices"
	"time"

	"proffer/lab/figures"
	"proffer/lab/sim"
	"proffer/lab/stats"
)

// Figures of the beliefs of HLB's LBs: their weights and scores against the queues
// (HLB §VI-B2, §VI-C2).

func weightFigures() []Figure {
	return []Figure{
		{"hlb-12b", "farm B: weights and requests of the second 64 servers, for 1:1, 1:2 and 1:4 cores",
			"requests are drawn as a share, not as a ratio: under sed at 70 %, 1:4, the first 64 get nearly nothing", hlbShares},
		{"hlb-14", "farm B c1:2: learned weights and queues, second over first 64 servers, with 1 to 8 LBs",
			"queues are drawn as the share of the second 64 servers, not as a ratio: under sed at 50 % the first 64 get nothing", hlbQueues},
		{"hlb-15", "farm B c1:2: do scores follow the work left? 8 LBs, 90 %", "drawn as means over classes of the score where the paper draws all points", hlbScores},
	}
}

// halves is the sum of the second half of x over that of the first.
func halves[T int | int32 | float64](x []T) float64 {
	var first, second float64
	for i, v := range x {
		if i < len(x)/2 {
			first += float64(v)
		} else {
			second += float64(v)
		}
	}
	return second / first
}

// strong is the share of the second half, in %; of all when the first has none.
func strong[T int | float64](x []T) float64 { return 100 * (1 - 1/(1+halves(x))) }

// weightRatio is that of the mean LB's weights.
func weightRatio(weights [][]float64) float64 {
	if weights == nil {
		return math.NaN()
	}
	sum := 0.0
	for _, w := range weights {
		sum += halves(w)
	}
	return sum / float64(len(weights))
}

// hlbShares is HLB Figure 12b.
func hlbShares(o Options) plan {
	g := grid{[]string{"70 %", "90 %"}, []string{"1:1", "1:2", "1:4"}, []string{"lsq", "sed", "learned:ages", "learned:completed", "guided", "oracle"}, nil}
	p := plan{cells: g.cells(func(load, cores, policy string) cell {
		rho := map[string]float64{"70 %": 0.7, "90 %": 0.9}[load]
		return at(farmB("c"+cores, 4), policy, rho, o).cell(func(r sim.Result) []float64 {
			return []float64{weightRatio(r.Weights), strong(r.Served), halves(r.Served)}
		})
	})}
	p.draw = func(m measured) (*figures.Figure, error) {
		picture := figures.Groups{
			Title:      "HLB Figure 12b: which servers get the requests, farm B, 4 LBs",
			GroupLabel: "load, and cores of the first 64 and the second 64 servers", GroupColumn: "setting",
			Series: g.series,
			Panels: []figures.BoxPanel{
				{Y: figures.Axis{Label: "weights, second ÷ first"}, Columns: []string{"weights_ratio"}},
				{Y: figures.Axis{Label: "requests to the second (%)", To: 100}, Columns: []string{"requests_to_second_percent"}},
			},
		}
		n := 0
		for _, load := range g.panels {
			for _, cores := range g.groups {
				picture.Groups = append(picture.Groups, load+", "+cores)
				var boxes [2][]figures.Box
				for range g.series {
					for i := range boxes {
						value, half := m.at(n, i)
						boxes[i] = append(boxes[i], figures.Box{Value: value, Half: half})
					}
					n++
				}
				for i := range boxes {
					picture.Panels[i].Boxes = append(picture.Panels[i].Boxes, boxes[i])
				}
			}
		}
		const ofStrong = 12.14 // sed at 90 %, 1:4: requests second ÷ first, as published
		picture.Panels[1].Published = []figures.PublishedBox{{Group: len(picture.Groups) - 1, Series: 1, Value: scale(100*ofStrong/(1+ofStrong), 1)}}
		value, half := m.at(n-len(g.series)+1, 2)
		picture.Notes = []string{overSeeds(o, "weights of an LB at the end of a run; guided and oracle have none"),
			fmt.Sprintf("sed at 90 %%, 1:4, requests second ÷ first, published: %v; ours: %.2f ± %.2f", ofStrong, value, half)}
		return figures.NewGroups(picture)
	}
	return p
}

// watched runs s and calls look every second of the middle half.
func watched(s setup, seed uint64, look func(sim.Snapshot)) (sim.Result, error) {
	come := seconds(float64(s.work.Requests) / s.perSecond)
	s.work.ProbeEvery = time.Second
	s.work.Probe = func(shot sim.Snapshot) {
		if shot.Now >= come/4 && shot.Now <= come*3/4 {
			look(shot)
		}
	}
	return s.run(seed)
}

// hlbQueues is HLB Figure 14.
func hlbQueues(o Options) plan {
	policies, lbs := []string{"sed", "learned:ages"}, []float64{1, 2, 4, 8}
	rhos := o.with(0.9, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95)
	var names []string
	for _, name := range policies {
		for _, n := range lbs {
			names = append(names, fmt.Sprintf("%s, M = %v", name, n))
		}
	}
	s := sweep{names, rhos}
	var p plan
	for _, name := range policies {
		for _, n := range lbs {
			for _, rho := range rhos {
				run := at(farmB("c1:2", int(n)), name, rho, o)
				p.cells = append(p.cells, cell{time.Duration(run.work.Requests) * requestCost, func(seed uint64) ([]float64, error) { return queues(run, seed) }})
			}
		}
	}
	p.draw = func(m measured) (*figures.Figure, error) {
		x := rhoAxis(0.5)
		c := figures.Chart{
			Title: "HLB Figure 14: weights and queues of the strong (2 cores) and the weak, farm B c1:2", X: x,
			Panels: []figures.Panel{
				{Y: figures.Axis{Label: "weights, strong ÷ weak", Column: "weights_ratio"}, Curves: s.curves(m, 0, 1)[len(lbs):]},
				{Y: figures.Axis{Label: "strong's queues, sed (%)", Column: "sed_queues_at_strong_percent", To: 100}, Curves: s.curves(m, 1, 1)[:len(lbs)]},
				{Y: figures.Axis{Label: "strong's queues, HLB (%)", Column: "learned_ages_queues_at_strong_percent", To: 100}, Curves: s.curves(m, 1, 1)[len(lbs):]},
			},
		}
		const toStrong = 74.2 // % of the requests under sed at 90 % with 8 LBs, as published
		requests := append(s.curves(m, 2, 1)[:len(lbs)], published("sed, M = 8", names[3], 0.9, toStrong))
		c.Panels = append(c.Panels, figures.Panel{Y: figures.Axis{Label: "strong's requests, sed (%)", Column: "sed_requests_to_strong_percent", To: 100}, Curves: requests})
		value, half := m.at(s.index(3, slices.Index(rhos, 0.9)), 2)
		c.Notes = []string{overSeeds(o, "each second of the middle half of a run"), fmt.Sprintf("share of requests that sed gives to the strong at 90 %% with 8 LBs, published: %v %%; ours: %.1f ± %.1f %%", toStrong, value, half)}
		return figures.NewChart(c)
	}
	return p
}

func queues(run setup, seed uint64) ([]float64, error) {
	busy := make([]float64, len(run.farm.Servers))
	weights, looks := 0.0, 0.0
	r, err := watched(run, seed, func(s sim.Snapshot) {
		for i, n := range s.Busy {
			busy[i] += float64(n)
		}
		weights += weightRatio(s.Weights)
		looks++
	})
	return []float64{weights / looks, strong(busy), strong(r.Served)}, err
}

// The classes of hlbScores: scores over their mean, from 0 to 2.
const (
	classes    = 20
	classWidth = 0.1
)

// hlbScores is HLB Figure 15.
func hlbScores(o Options) plan {
	names := []string{"sed", "learned:ages", "learned:completed"}
	var p plan
	for _, name := range names {
		run := at(farmB("c1:2", 8), name, 0.9, o)
		p.cells = append(p.cells, cell{2 * time.Duration(run.work.Requests) * requestCost, func(seed uint64) ([]float64, error) { return scores(run, seed) }})
	}
	p.draw = func(m measured) (*figures.Figure, error) {
		c := figures.Chart{
			Title: "HLB Figure 15: score against work left, farm B c1:2, 8 LBs, 90 %",
			Notes: []string{overSeeds(o, "each LB and server, each second of the middle half of a run; both axes over their mean at that instant")},
			X:     figures.Axis{Label: "score of a server at an LB ÷ mean score", Column: "normalized_score", To: classes * classWidth},
		}
		panel := figures.Panel{Y: figures.Axis{Label: "work left ÷ mean work left", Column: "normalized_work_left"}}
		for i, name := range names {
			curve := figures.Curve{Name: name}
			for class := range classes {
				if rare(m[i], class) {
					continue
				}
				curve.Points = append(curve.Points, m.point((float64(class)+0.5)*classWidth, i, 1+class, 1))
			}
			value, half := m.at(i, 0)
			c.Notes = append(c.Notes, fmt.Sprintf("correlation with %s: %.2f ± %.2f", name, value, half))
			panel.Curves = append(panel.Curves, curve)
		}
		c.Notes = append(c.Notes, "published: not correlated with sed, more accurate with HLB")
		c.Panels = []figures.Panel{panel}
		return figures.NewChart(c)
	}
	return p
}

// rare means that some run saw next to no request of a class.
func rare(runs [][]float64, class int) bool {
	for _, values := range runs {
		if values[1+classes+class] < 20 {
			return true
		}
	}
	return false
}

// scores are the correlation of score and work left, the mean work left of each
// class of scores, and how many there were in each.
func scores(run setup, seed uint64) ([]float64, error) {
	out := make([]float64, 1+2*classes)
	var n, x, y, xx, yy, xy float64
	_, err := watched(run, seed, func(s sim.Snapshot) {
		left := stats.Mean(s.Left)
		for _, lb := range s.Scores {
			score := stats.Mean(lb)
			for i, value := range lb {
				a, b := value/score, s.Left[i]/left
				n, x, y, xx, yy, xy = n+1, x+a, y+b, xx+a*a, yy+b*b, xy+a*b
				if class := int(a / classWidth); class < classes {
					out[1+class] += b
					out[1+classes+class]++
				}
			}
		}
	})
	out[0] = (n*xy - x*y) / math.Sqrt((n*xx-x*x)*(n*yy-y*y))
	for class := range classes {
		out[1+class] /= max(1, out[1+classes+class])
	}
	return out, err
}
