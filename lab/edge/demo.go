package edge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"proffer/api"
	"proffer/lab/farmrun"
	"proffer/lab/testbed"
)

// Demo shows an edge at work: real programs on both sides, behind source NAT and a firewall, and
// flows that the world begins to addresses without NAT.
type Demo struct {
	Balancer string
	For      time.Duration
	Programs string // path of the proffer binary
}

const (
	demoCost  = 100 * time.Microsecond // of a packet at a virtual core
	demoEvery = 250 * time.Millisecond // between two samples
	demoPorts = 8192                   // of a node's NAT
)

// The halves of the client network, and their chains. The firewall lets the client begin these flows alone.
const (
	open4, natted4 = "10.1.0.0/17", "10.1.128.0/17"
	denied         = 25 // a port
)

// Check returns an error for settings that cannot be run.
func (e Demo) Check() error {
	if e.For < 4*time.Second || e.For > 50*time.Second {
		return fmt.Errorf("--for %v: want 4s to 50s", e.For)
	}
	return nil
}

// Core is a core in the live table, and in the result.
type Core struct {
	Node      string  `json:"node"`
	Predicted float64 `json:"predicted"` // load, as the LB predicts it: the mean of its ticks; 1: works all the time
	Measured  float64 `json:"measured"`  // … and at the node
	Weight    float64 `json:"weight"`    // for new flows, mean 1
	Flows     uint64  `json:"flows"`     // begun
	Packets   uint64  `json:"packets"`
}

// View is the cores at an instant.
type View struct {
	Seconds, Of float64
	Cores       []Core
}

// file is the LB's: half of the client network has an IDS, half a firewall and NAT.
func (e Demo) file() lbFile {
	core := fmt.Sprintf("{function: virtual, each: %v, queue: %d}", demoCost, queue)
	return lbFile{balancer: e.Balancer, weights: []int{1, 1}, idle: time.Minute, services: []serviceFile{
		{prefix: open4, cost: demoCost, chain: func(int) []string {
			return []string{core, "{function: ids, patterns: [{bytes: attack}]}"}
		}},
		{prefix: natted4, cost: demoCost, chain: func(node int) []string {
			return []string{core,
				fmt.Sprintf("{function: firewall, rules: [{action: deny, protocol: tcp, ports: %d}, {action: allow, source: %s}]}", denied, natted4),
				fmt.Sprintf("{function: nat, public4: %s, first_port: %d, ports: %d}", testbed.EdgePublic, 2048+node*demoPorts, demoPorts)}
		}},
	}}
}

// Run runs the traffic, and shows the cores now and then.
func (e Demo) Run(ctx context.Context, show func(View)) (_ *DemoReport, err error) {
	if err := farmrun.Installed(map[string]string{"curl": "curl", "iperf3": "iperf3"}); err != nil {
		return nil, err
	}
	bed, err := testbed.EdgeUp(ctx, 2)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, bed.Close()) }()
	farm, err := startFarm(ctx, bed, e.Programs, e.file())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, farm.stop()) }()
	t, err := newDemoTraffic(bed)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	r := &DemoReport{experiment: e}
	running, end := context.WithTimeout(ctx, e.For)
	defer end()
	group, running := errgroup.WithContext(running)
	start := farmrun.Monotonic{}.Now()
	group.Go(func() error { return r.watch(running, farm, start, show) })
	group.Go(func() error { return t.run(running, e.For) })
	if err := group.Wait(); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return r, r.sum(ctx, farm, t)
}

// watch takes samples until ctx ends.
func (r *DemoReport) watch(ctx context.Context, farm *farm, start time.Duration, show func(View)) error {
	ticks := time.NewTicker(demoEvery)
	defer ticks.Stop()
	for {
		s, lb, err := farm.sample(ctx, start)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		r.samples = append(r.samples, s)
		if n := len(r.samples); n > 1 {
			show(r.view(lb, r.samples[n-2], s))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
		}
	}
}

// view is the cores between two samples.
func (r *DemoReport) view(lb api.Status, before, s sample) View {
	v := View{Seconds: s.seconds, Of: r.experiment.For.Seconds()}
	loads, predicted := loadsBetween(before, s), predictedBetween(before, s, demoCost)
	for i, c := range lb.Edge.Cores {
		v.Cores = append(v.Cores, Core{Node: c.Node, Predicted: predicted[i], Measured: loads[i], Weight: *c.Weight, Flows: *c.Flows, Packets: c.Packets})
	}
	return v
}
