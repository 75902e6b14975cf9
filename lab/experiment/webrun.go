package experiment

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"proffer/lab/testbed"
	"proffer/lab/traffic"
	"proffer/topo"
)

// webRun is requests of one policy to a farm on virtual cores, with daemons and servers of
// its own.
type webRun struct {
	kinds    Kinds
	policy   Compared
	weights  []int // configured ones of the servers; nil: they are alike
	programs string
	requests []traffic.Request
	// quit is the number of requests after which a run is given up that can no longer keep its
	// schedule.
	quit     int
	progress func(done, total int)
	// watch begins with the requests, and its stop comes after the last of them; nil: none.
	watch func(context.Context, *Farm, *Servers) (stop func() error)
}

// settings are those of the farm.
func (w webRun) settings(bed *testbed.Bed) Settings {
	return Settings{
		Policy: w.policy.Policy, Workers: w.kinds.Workers, Cores: w.kinds.Cores, Programs: w.programs,
		Weights: w.weights,
		Agent: func(n *testbed.Node, agent *topo.Agent) {
			agent.Services[0].Cores = w.kinds.machine(slices.Index(bed.Servers, n)).Cores
		},
	}
}

// run makes the run. The result tells if the generator was late.
func (w webRun) run(ctx context.Context, bed *testbed.Bed) (_ *Result, err error) {
	servers, err := Serve(bed, w.kinds.machines()...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, servers.Close()) }()
	farm, err := Start(ctx, bed, w.settings(bed))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, farm.Stop()) }()
	before, err := drops(bed)
	if err != nil {
		return nil, err
	}
	stop := func() error { return nil }
	if w.watch != nil {
		stop = w.watch(ctx, farm, servers)
	}
	sampler := sample(servers.busy)
	client := traffic.Client{To: netip.AddrPortFrom(bed.VIP, testbed.Port), Enter: bed.Client.Enter, Quit: w.quit, Progress: w.progress}
	run, err := client.Run(ctx, w.requests)
	loads := sampler.stop()
	if err = errors.Join(err, stop()); err != nil {
		return nil, err
	}
	after, err := drops(bed)
	if err != nil {
		return nil, err
	}
	r := &Result{Policy: w.policy, Rows: run.Rows, Loads: loads, Late: run.Schedule.Kept(), drops: after.since(before), kinds: w.kinds}
	return conclude(r, farm, servers.books())
}
