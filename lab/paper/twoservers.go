package paper

import (
	"math"
	"time"

	"proffer/lab/figures"
)

// HLB Figure 2 (§III-A): two servers, the first twice as fast, as a Markov chain
// of their queues at nominal capacity.

func twoServers() []Figure {
	return []Figure{{
		"hlb-2", "two servers as a Markov chain: ecmp, wcmp, lsq, sed, seeing all or half of the traffic, weights right or wrong",
		"the paper does not state Q, the length of a queue; here it is 32. Requests that meet a full queue are lost", markov,
	}}
}

const (
	queueLength = 32
	fast, slow  = 2.0, 1.0
)

// scene is an LB's knowledge.
type scene struct {
	name    string
	seen    float64 // share of the traffic that it places; the rest is split evenly
	weights [2]float64
}

var scenes = []scene{
	{"sees 100 %, weights 2:1", 1, [2]float64{2, 1}},
	{"sees 50 %, weights 2:1", 0.5, [2]float64{2, 1}},
	{"sees 100 %, weights 1:2", 1, [2]float64{1, 2}},
	{"sees 50 %, weights 1:2", 0.5, [2]float64{1, 2}},
}

// rule is the share of the placed traffic that goes to the first server.
type rule func(queues, weights [2]float64) float64

func argmin(a, b float64) float64 {
	switch {
	case a < b:
		return 1
	case a > b:
		return 0
	}
	return 0.5
}

var rules = map[string]rule{
	"ecmp": func(_, _ [2]float64) float64 { return 0.5 },
	"wcmp": func(_, w [2]float64) float64 { return w[0] / (w[0] + w[1]) },
	"lsq":  func(l, _ [2]float64) float64 { return argmin(l[0], l[1]) },
	"sed":  func(l, w [2]float64) float64 { return argmin((l[0]+1)/w[0], (l[1]+1)/w[1]) },
}

func markov(Options) plan {
	names := []string{"ecmp", "wcmp", "lsq", "sed"}
	var p plan
	p.seeds = 1
	for _, s := range scenes {
		for _, name := range names {
			p.cells = append(p.cells, cell{15 * time.Millisecond, func(uint64) ([]float64, error) { return []float64{weighted(s, rules[name])}, nil }})
		}
	}
	p.draw = func(m measured) (*figures.Figure, error) {
		g := figures.Groups{
			Title:      "HLB Figure 2: two servers of speeds 2:1, full load, queues up to 32",
			Notes:      []string{"published: wcmp and sed are best if all is seen and weights are right; lsq and sed beat wcmp if half is seen; wrong weights harm wcmp and sed"},
			GroupLabel: "knowledge of the LB", GroupColumn: "scenario",
			Series: names,
			Panels: []figures.BoxPanel{{Y: figures.Axis{Label: "weighted duration (1/slow server's rate)", Column: "duration"}, Columns: []string{"weighted_duration"}}},
		}
		for i, s := range scenes {
			g.Groups = append(g.Groups, s.name)
			var group []figures.Box
			for j := range names {
				value, _ := m.at(i*len(names)+j, 0)
				group = append(group, figures.Box{Value: value})
			}
			g.Panels[0].Boxes = append(g.Panels[0].Boxes, group)
		}
		return figures.NewGroups(g)
	}
	return p
}

// weighted is the stationary mean of Σ l_i/(l_1+l_2) · l_i/µ_i over the states
// that have any request, by sweeping the balance equations (Gauss and Seidel).
func weighted(s scene, choose rule) float64 {
	const n = queueLength + 1
	const total = fast + slow
	var p, first [n][n]float64 // the probability of a state, the rate to the first server in it
	for i := range n {
		for j := range n {
			p[i][j] = 1.0 / (n * n)
			first[i][j] = total * (s.seen*choose([2]float64{float64(i), float64(j)}, s.weights) + (1-s.seen)/2)
		}
	}
	for range 4000 {
		sum, moved := 0.0, 0.0
		for i := range n {
			for j := range n {
				in, out := 0.0, 0.0
				if i > 0 {
					in, out = in+p[i-1][j]*first[i-1][j], out+fast
				}
				if j > 0 {
					in, out = in+p[i][j-1]*(total-first[i][j-1]), out+slow
				}
				if i < queueLength {
					in, out = in+p[i+1][j]*fast, out+first[i][j]
				}
				if j < queueLength {
					in, out = in+p[i][j+1]*slow, out+total-first[i][j]
				}
				moved = max(moved, math.Abs(p[i][j]-in/out))
				p[i][j] = in / out
				sum += p[i][j]
			}
		}
		for i := range n {
			for j := range n {
				p[i][j] /= sum
			}
		}
		if moved < 1e-12 {
			break
		}
	}
	return duration(&p)
}

// duration is the mean over the states that have a request.
func duration(p *[queueLength + 1][queueLength + 1]float64) float64 {
	mean, busy := 0.0, 0.0
	for i := range p {
		for j := range p[i] {
			if l1, l2 := float64(i), float64(j); i+j > 0 {
				mean += p[i][j] * (l1*l1/fast + l2*l2/slow) / (l1 + l2)
				busy += p[i][j]
			}
		}
	}
	return mean / busy
}
