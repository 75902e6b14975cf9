package peers

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/topo"
)

// Latency is the experiment of 6LB §VI-B.6 (Figure 11c): from SYN to SYN-ACK as
// the client sees it, on an idle farm. The three ways are services of one farm
// and take turns, so that whatever else the machine does meets them alike.
type Latency struct {
	Connections int // each way
	Servers     int
	Seed        uint64
	Programs    string // path of the proffer binary
}

// way is how a connection comes to its server.
type way struct {
	name   string
	port   uint16
	policy topo.Policy
}

// ways: a threshold of 0 passes every offer on.
func ways() []way {
	return []way{
		{"single", 80, topo.Policy{Dispatch: topo.Single}},
		{"hunt-first", 81, topo.Policy{Dispatch: topo.Hunt, Acceptance: topo.Always}},
		{"hunt-second", 82, topo.Policy{Dispatch: topo.Hunt, Acceptance: topo.Static, Threshold: 0}},
	}
}

// pauseBetween lets a connection's end go by before the next one begins.
const pauseBetween = 300 * time.Microsecond

// Check returns an error for settings that cannot be run.
func (e Latency) Check() error {
	switch {
	case e.Connections < 1 || e.Connections > 100_000:
		return fmt.Errorf("--connections %d: want 1 to 100000", e.Connections)
	case e.Servers < 2 || e.Servers > testbed.MaxServers:
		return fmt.Errorf("--servers %d: want 2 to %d: an offer goes from one to another", e.Servers, testbed.MaxServers)
	}
	return nil
}

func (e Latency) settings() farmrun.Settings {
	return farmrun.Settings{
		Policy:   ways()[1].policy,
		Workers:  32,
		Cores:    2,
		Programs: e.Programs,
		LB: func(lb *topo.LB) {
			hunt := lb.Services[0]
			lb.Services = nil
			for _, w := range ways() {
				s := hunt
				s.Name, s.VIP.Port, s.Dispatch = w.name, w.port, w.policy.Dispatch
				if !s.Dispatch.Offers() {
					s.Choices = 0
				}
				lb.Services = append(lb.Services, s)
			}
		},
		Agent: func(_ *testbed.Node, a *topo.Agent) {
			first := a.Services[0]
			a.Services = nil
			for _, w := range ways() {
				o := first
				o.Name, o.VIP.Port = w.name, w.port
				o.Acceptance, o.Threshold = w.policy.Acceptance, w.policy.Threshold
				a.Services = append(a.Services, o)
			}
		},
	}
}

// Run runs it once.
func (e Latency) Run(ctx context.Context, show func(farmrun.Step)) (_ *LatencyReport, err error) {
	farmrun.Prefer()
	total := e.Connections * len(ways())
	show(farmrun.Step{Doing: "building a farm", Total: total, Left: time.Duration(total) * time.Millisecond})
	bed, err := testbed.Up(ctx, testbed.Config{Servers: e.Servers, Clients: farmrun.ClientsFor(total)})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, bed.Close()) }()
	for _, w := range ways() {
		servers, err := farmrun.FarSidesOn(bed, w.port, farmrun.NewEcho)
		if err != nil {
			return nil, err
		}
		defer servers.Close() // it never fails
	}
	farm, err := farmrun.Start(ctx, bed, e.settings())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, farm.Stop()) }()
	r := &LatencyReport{experiment: e, took: make([][]time.Duration, len(ways()))}
	p := &farmrun.Pace{Began: time.Now(), Total: total, Guess: time.Millisecond, Show: show}
	if err := bed.Client.Do(func() error { return e.measure(ctx, bed, r, p) }); err != nil {
		return nil, err
	}
	return r, r.count(ctx, farm)
}

// measure opens one connection after the other, a way after the other.
func (e Latency) measure(ctx context.Context, bed *testbed.Bed, r *LatencyReport, p *farmrun.Pace) error {
	for i, from := range farmrun.RandomEnds(e.Seed, bed.ClientAddrs, e.Connections*len(ways())) {
		if err := ctx.Err(); err != nil {
			return err
		}
		w := i % len(ways())
		took, err := timeConnect(from, netip.AddrPortFrom(bed.VIP, ways()[w].port))
		if err != nil {
			return fmt.Errorf("%s: %w", ways()[w].name, err)
		}
		r.took[w] = append(r.took[w], took)
		p.End("connecting")
		time.Sleep(pauseBetween)
	}
	return nil
}
