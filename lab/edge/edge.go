// Package edge runs EdgeBalance's experiments on real LBs and datapath nodes, and the demo of the edge.
package edge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"proffer/lab/edgesim"
	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/lab/traffic"
	"proffer/topo"
)

// Experiment is EdgeBalance §4 on real daemons: an LB, and two datapath nodes of one virtual core each.
type Experiment struct {
	Figures   []string // by number; empty: all
	Balancers []string // only these; empty: all
	Shares    []int    // of figure 4, in %; empty: all of the paper's
	Cost      time.Duration
	For       time.Duration // that a run of figure 4 counts
	Noise     float64       // of the reported loads, in parts of a core (topo.Virtual)
	Quick     bool          // fewer shares, and a shorter figure 5
	Seed      uint64
	Programs  string // path of the proffer binary
}

// The paper's packet costs 0.7 µs (Figures 4 and 5); ours are dearer by a scale, and as much rarer.
const paperCost = 700 * time.Nanosecond

const (
	tries      = 3
	queue      = 512                     // packets, as in the paper's ring
	warm       = 1500 * time.Millisecond // before a run of figure 4 counts
	aroundEdge = 1200 * time.Millisecond // start and end of the daemons
)

// Balancers are compared, as the LB's file has them.
func Balancers() (names []string) {
	for _, b := range topo.Balances() {
		names = append(names, b.String())
	}
	return names
}

// cell is a run.
type cell struct {
	figure, balancer string
	share            int // of the packets, the elephant's, in %
}

func (c cell) String() string {
	if c.figure == "4" {
		return fmt.Sprintf("figure 4, %s, elephant of %d %%", c.balancer, c.share)
	}
	return fmt.Sprintf("figure %s, %s", c.figure, c.balancer)
}

// spare: the second node joins when the LB wants it.
func (c cell) spare() bool { return c.figure == "5" }

// Check returns an error for settings that cannot be run.
func (e Experiment) Check() error {
	for _, name := range e.Figures {
		if !slices.Contains(figureNames, name) {
			return fmt.Errorf("--figures: unknown figure %q: want %s", name, farmrun.OrList(figureNames))
		}
	}
	for _, name := range e.Balancers {
		if !slices.Contains(Balancers(), name) {
			return fmt.Errorf("--balancers: unknown balancer %q: want %s", name, farmrun.OrList(Balancers()))
		}
	}
	for _, share := range e.Shares {
		if share < 1 || share > 60 {
			return fmt.Errorf("--shares: %d: want 1 to 60", share)
		}
	}
	switch {
	case e.Cost < 2*time.Microsecond || e.Cost > time.Millisecond:
		return fmt.Errorf("--cost %v: want 2µs to 1ms", e.Cost)
	case !(e.Noise >= 0 && e.Noise <= 1):
		return fmt.Errorf("--report-noise %v: want 0 to 1", e.Noise)
	case e.For < time.Second || e.For > 10*time.Minute:
		return fmt.Errorf("--for %v: want 1s to 10m", e.For)
	}
	return nil
}

var figureNames = []string{"3", "4", "5"}

// scale is how much dearer than the paper's a packet is.
func (e Experiment) scale() float64 { return float64(e.Cost) / float64(paperCost) }

func asked(all, only []string) (some []string) {
	for _, name := range all {
		if len(only) == 0 || slices.Contains(only, name) {
			some = append(some, name)
		}
	}
	return some
}

// cells are the runs.
func (e Experiment) cells() (all []cell) {
	shares := e.Shares
	switch {
	case len(shares) > 0:
	case e.Quick:
		shares = []int{7, 27, 47}
	default:
		shares = []int{7, 17, 27, 37, 47}
	}
	for _, figure := range asked(figureNames[1:], e.Figures) {
		for _, balancer := range asked(Balancers(), e.Balancers) {
			if figure == "5" {
				all = append(all, cell{figure: figure, balancer: balancer})
				continue
			}
			for _, share := range shares {
				all = append(all, cell{figure, balancer, share})
			}
		}
	}
	return all
}

// traffic is that of a cell. The generators of the paper begin flows at even intervals.
func (c cell) traffic(e Experiment) edgesim.Traffic {
	if c.figure == "5" {
		t := edgesim.DynamicTraffic(edgesim.Tail, e.Cost)
		if e.Quick {
			t.For = edgesim.Doubling + 8*time.Second
		}
		return t
	}
	t := edgesim.HeterogeneousTraffic(float64(c.share)/100, e.Cost)
	for i := range t.Classes {
		t.Classes[i].Even = true
	}
	t.WarmUp = warm
	t.For = warm + e.For
	return t
}

// file is the LB's, with the nodes' chain.
func (e Experiment) file(c cell) lbFile {
	f := lbFile{balancer: c.balancer, weights: []int{1, 1}, idle: 2 * time.Second, services: []serviceFile{{
		prefix: testbed.EdgeClients.String(), cost: e.Cost,
		chain: func(int) []string {
			return []string{fmt.Sprintf("{function: virtual, each: %v, queue: %d, noise: %v}", e.Cost, queue, e.Noise)}
		},
	}}}
	if c.spare() {
		f.weights[1] = 0
	}
	return f
}

// Run makes all runs that the figures need.
func (e Experiment) Run(ctx context.Context, show func(farmrun.Step)) (_ *Report, err error) {
	farmrun.Prefer()
	report := &Report{experiment: e}
	cells := e.cells()
	if p, some := e.prediction(); some {
		all, err := p.Run(ctx, func(s farmrun.Step) {
			s.Left += e.lasts(cells)
			show(s)
		})
		if err != nil {
			return nil, fmt.Errorf("figure 3: %w", err)
		}
		report.predicted, report.unclaimed = all.Rows, all.Unclaimed
	}
	if len(cells) == 0 {
		return report, nil
	}
	bed, err := testbed.EdgeUp(ctx, 2)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, bed.Close()) }()
	for i, c := range cells {
		show(farmrun.Step{Doing: c.String(), Done: i, Total: len(cells), Left: e.lasts(cells[i:])})
		if err := report.measure(ctx, bed, c); err != nil {
			return nil, fmt.Errorf("%s: %w", c, err)
		}
	}
	show(farmrun.Step{Doing: "done", Done: len(cells), Total: len(cells)})
	return report, nil
}

// prediction is figure 3, if it is asked for.
func (e Experiment) prediction() (p Prediction, some bool) {
	p = PaperPrediction()
	if e.Quick {
		p.Payloads = p.Payloads[:1]
	}
	return p, slices.Contains(asked(figureNames, e.Figures), "3")
}

// measure runs a cell, again if the generator could not keep its schedule.
func (r *Report) measure(ctx context.Context, bed *testbed.EdgeBed, c cell) (err error) {
	for range tries {
		var run *run
		if run, err = r.experiment.run(ctx, bed, c); err == nil {
			r.runs = append(r.runs, run)
			return nil
		}
		if errors.Is(err, errNothing) {
			break
		}
		if !errors.Is(err, traffic.ErrLate) {
			return err
		}
	}
	r.unclaimed = append(r.unclaimed, farmrun.Unclaimed{Policy: c.String(), Reason: err.Error()})
	return nil
}

// lasts estimates the time of runs.
func (e Experiment) lasts(cells []cell) (sum time.Duration) {
	for _, c := range cells {
		sum += c.traffic(e).For + aroundEdge
	}
	return sum
}
