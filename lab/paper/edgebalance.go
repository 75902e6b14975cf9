package paper

import (
	"fmt"
	"math"
	"strings"
	"time"

	"proffer/lab/edgesim"
	"proffer/lab/figures"
	"proffer/weights"
)

// EdgeBalance §4, Figures 3 to 5. The paper leaves much open; docs/design/edge.md has
// the inputs chosen, and the numbers of the paper that exclude each other.

func edgeFigures() []Figure {
	return []Figure{
		{"edgebalance-3", "predicted and measured CPU against the cost of a packet", "the size of the error is an assumption (4 % saved on a busy core); its sign and growth are not", prediction},
		{"edgebalance-4", "throughput, latency and CPU difference against the elephant's share", "latency is the core's alone; the published loss of round robin is more than two such servers can lose", elephant},
		{"edgebalance-5", "CPU of two servers after the traffic doubles", "flow lifetimes are chosen; with them the published gains swing", doubling},
		{"edge-lives", "time until an elephant is levelled, and the difference afterwards, against how long flows live", "no published value: a rule for every life is ours", lives},
	}
}

// packetCost is the time of one packet of a run.
const packetCost = 70 * time.Nanosecond

var edgePolicies = map[string]edgesim.Policy{
	"model":       {Kind: edgesim.Model, PID: weights.PublishedGains()},
	"monitor":     {Kind: edgesim.Monitor, PID: weights.PublishedGains(), Noise: edgesim.ReportNoise},
	"round robin": {Kind: edgesim.Static},
	"tuned":       {Kind: edgesim.Model, PID: weights.TunedGains()},
	"levelled":    {Kind: edgesim.Model, Learns: true},
}

func edgeCell(policy string, farm edgesim.Farm, traffic edgesim.Traffic, rate float64, read func(edgesim.Result) []float64) cell {
	return cell{time.Duration(rate*traffic.For.Seconds()) * packetCost, func(seed uint64) ([]float64, error) {
		r, err := edgesim.Run(farm, edgePolicies[policy], traffic, seed)
		if err != nil {
			return nil, err
		}
		return read(r), nil
	}}
}

func prediction(o Options) plan {
	s := sweep{[]string{"model"}, o.some(steps(200, 2000, 200)...)}
	return plan{
		cells: s.cells(func(name string, x float64) cell {
			farm, traffic := edgesim.Prediction(time.Duration(x))
			return edgeCell(name, farm, traffic, edgesim.PredictionRate, predictedAndMeasured)
		}),
		draw: func(m measured) (*figures.Figure, error) { return drawPrediction(s, m) },
	}
}

// predictedAndMeasured are means over a run, and how far they were apart in the
// intervals of a tick, in %.
func predictedAndMeasured(r edgesim.Result) []float64 {
	var predicted, measured float64
	for _, s := range r.Samples[1:] { // the first one fills the farm
		predicted += 100 * s.Predicted[0] / float64(len(r.Samples)-1)
		measured += 100 * s.Measured[0] / float64(len(r.Samples)-1)
	}
	return []float64{predicted, measured, 100 * r.Misjudge}
}

func drawPrediction(s sweep, m measured) (*figures.Figure, error) {
	sum := 0.0
	for i := range s.xs {
		off, _ := m.at(i, 2)
		sum += off
	}
	named := func(name string, number int) figures.Curve {
		c := s.curves(m, number, 1)[0]
		c.Name = name
		return c
	}
	return figures.NewChart(figures.Chart{
		Title: "EdgeBalance Figure 3: CPU usage prediction accuracy",
		Notes: []string{fmt.Sprintf("average absolute error: %.1f points of CPU; published: 1.8 %%", sum/float64(len(s.xs)))},
		X:     figures.Axis{Label: "cost of a packet in the chain of functions (ns)", Column: "cost_ns"},
		Panels: []figures.Panel{
			{Y: figures.Axis{Label: "CPU (%)", Column: "cpu_percent", To: 105}, Curves: []figures.Curve{named("predicted", 0), named("measured", 1)}},
			{Y: figures.Axis{Label: "mean |error| (points)", Column: "error_points", To: 5}, Curves: []figures.Curve{named("|predicted − measured|", 2)}},
		},
	})
}

// The numbers kept of a run of Figure 4.
const (
	edgeServed  = iota // % of the offered packets
	edgeLatency        // µs
	edgeApart          // % of CPU
)

func elephant(o Options) plan {
	s := sweep{[]string{"model", "monitor", "round robin", "levelled"}, o.some(steps(7, 47, 10)...)}
	return plan{
		cells: s.cells(func(name string, x float64) cell {
			farm, traffic := edgesim.Heterogeneous(x / 100)
			if o.Quick {
				traffic.For /= 2
				traffic.WarmUp /= 2
			}
			return edgeCell(name, farm, traffic, edgesim.HeterogeneousRate, func(r edgesim.Result) []float64 {
				return []float64{100 * r.Share, r.Latency.Seconds() * 1e6, 100 * r.Apart}
			})
		}),
		draw: func(m measured) (*figures.Figure, error) { return drawElephant(s, m) },
	}
}

func drawElephant(s sweep, m measured) (*figures.Figure, error) {
	c := figures.Chart{
		Title: "EdgeBalance Figure 4: varying fraction of elephant flow traffic",
		Notes: []string{"two servers of one core asked for 1.9 can lose at most 21 % of the packets, not the published 33 %"},
		X:     figures.Axis{Label: "share of the packets that the elephant sends (%)", Column: "elephant_percent", To: 50},
		Panels: []figures.Panel{
			{Y: figures.Axis{Label: "packets served (%)", Column: "served_percent", From: 60, To: 102}, Curves: s.curves(m, edgeServed, 1)},
			{Y: figures.Axis{Label: "mean latency (µs)", Column: "latency_us", From: 1, To: 1000, Log: true}, Curves: s.curves(m, edgeLatency, 1)},
			{Y: figures.Axis{Label: "CPU difference (%)", Column: "cpu_difference_percent"}, Curves: s.curves(m, edgeApart, 1)},
		},
	}
	for i, published := range []float64{67, 300, 41} {
		c.Panels[i].Curves = append(c.Panels[i].Curves,
			figures.Curve{Name: "published: round robin", Of: "round robin", Kind: figures.Published, Points: []figures.Point{{X: 47, Y: published}}})
	}
	for i, bound := range []float64{3, 7} { // of model, monitor
		c.Panels[edgeApart].Curves = append(c.Panels[edgeApart].Curves,
			figures.Curve{Name: "published bound: " + s.names[i], Of: s.names[i], Kind: figures.Published, Points: []figures.Point{{X: 47, Y: bound}}})
	}
	return figures.NewChart(c)
}

// cpuSlice is over how long Figure 5 takes a mean.
const cpuSlice = 480 * time.Millisecond

func doubling(Options) plan {
	names := []string{"round robin", "model", "tuned", "levelled"}
	var cells []cell
	for _, name := range names {
		farm, traffic := edgesim.Dynamic(edgesim.Tail)
		cells = append(cells, edgeCell(name, farm, traffic, 200_000, sliced))
	}
	return plan{cells: cells, draw: func(m measured) (*figures.Figure, error) { return drawDoubling(names, m) }}
}

// sliced are the CPU of both servers, in %, in turn, a slice after the other;
// first of all, when they were level, in s after the second one joined.
func sliced(r edgesim.Result) []float64 {
	n := int(cpuSlice / edgesim.Period)
	values := []float64{edgesim.Level(r.Samples)}
	for i := 0; i+n <= len(r.Samples); i += n {
		for server := range 2 {
			sum := 0.0
			for _, s := range r.Samples[i : i+n] {
				sum += s.Measured[server]
			}
			values = append(values, 100*sum/float64(n))
		}
	}
	return values
}

func drawDoubling(names []string, m measured) (*figures.Figure, error) {
	c := figures.Chart{
		Title: "EdgeBalance Figure 5: CPU usage for a dynamic workload",
		X:     figures.Axis{Label: "time (s)", Column: "time_s", To: 60},
	}
	for i, name := range names {
		p := figures.Panel{Y: figures.Axis{Label: name + ": CPU (%)", Column: strings.ReplaceAll(name, " ", "_") + "_cpu_percent", To: 105}}
		for server, called := range []string{"first server", "spare server"} {
			curve := figures.Curve{Name: called}
			for k := 1 + server; k < len(m[i][0]); k += 2 {
				x := (float64((k-1)/2) + 0.5) * cpuSlice.Seconds()
				curve.Points = append(curve.Points, m.point(x, i, k, 1))
			}
			p.Curves = append(p.Curves, curve)
		}
		c.Panels = append(c.Panels, p)
	}
	for i, x := range []float64{35, 1} {
		c.Panels[i].Curves = append(c.Panels[i].Curves, figures.Curve{Name: "published: level from here", Kind: figures.Published,
			Points: []figures.Point{{X: edgesim.Doubling.Seconds() + x, Y: 100 * edgesim.Before}}})
	}
	var notes []string
	for i, name := range names {
		level, _ := m.at(i, 0)
		notes = append(notes, name+" "+after(level))
	}
	c.Notes = []string{"level, within 4 points for a second, after the server joined: " + strings.Join(notes, ", ") +
		fmt.Sprintf("; round robin's means over seeds stay so after %.0f s (published: model about 1 s, round robin about 35)", settled(m, 0))}
	return figures.NewChart(c)
}

// settled is when, after the doubling, the means over seeds came within 4 points
// for good.
func settled(m measured, cell int) float64 {
	last := 0.0
	for k := 1; k+1 < len(m[cell][0]); k += 2 {
		a, _ := m.at(cell, k)
		b, _ := m.at(cell, k+1)
		if math.Abs(a-b) > 4 {
			last = float64((k+1)/2) * cpuSlice.Seconds()
		}
	}
	return last - edgesim.Doubling.Seconds()
}

// after is a time that may never come.
func after(s float64) string {
	if math.IsInf(s, 0) {
		return "not in every run"
	}
	return fmt.Sprintf("%.1f s", s)
}
