package storms

import (
	"context"
	"errors"
	"fmt"
	"time"

	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/lab/traffic"
	"proffer/topo"
)

// Flood floods the service with SYNs of clients that do not exist, beside flows
// that are established and others that try to be (docs/failures.md: "SYN flood"). A
// displaced flow lives on, because its server is asked for it: so the counters of that
// must stand still while the established flows speak. The
// machine that sends the flood is the one that serves, so the same is done with
// as much CPU burnt instead: the difference is the flood's effect on the tables.
type Flood struct {
	Rates    []int // SYNs a second; 0: as many as go
	For      time.Duration
	Flows    int // established
	Servers  int
	Seed     uint64
	Programs string // path of the proffer binary
}

const (
	// tryRate is how often a new connection is tried, a second.
	tryRate = 50
	// floodWithin is how long an established flow may take to answer beside a
	// flood that has every queue full.
	floodWithin = 10 * time.Second
)

// Check returns an error for settings that cannot be run.
func (e Flood) Check() error {
	if len(e.Rates) == 0 {
		return errors.New("--rates: name at least one")
	}
	for _, r := range e.Rates {
		if r < 0 || r > 10_000_000 {
			return fmt.Errorf("--rates %d: want 0 to 10000000", r)
		}
	}
	switch {
	case e.For < time.Second || e.For > time.Minute:
		return fmt.Errorf("--for %v: want 1s to 1m", e.For)
	case e.Flows < 1 || e.Flows > MaxFlows:
		return fmt.Errorf("--flows %d: want 1 to %d", e.Flows, MaxFlows)
	case e.Servers < 1 || e.Servers > testbed.MaxServers:
		return fmt.Errorf("--servers %d: want 1 to %d", e.Servers, testbed.MaxServers)
	}
	return nil
}

// settings flood the service of the established flows and of the new ones alike.
func (e Flood) settings() farmrun.Settings {
	return farmrun.Settings{
		Policy:   topo.Policy{Dispatch: topo.Hunt, Acceptance: topo.Static, Threshold: 4},
		Workers:  32,
		Cores:    2,
		Programs: e.Programs,
		LB:       func(lb *topo.LB) { lb.Flows.Entries = e.entries() },
		Agent:    func(_ *testbed.Node, a *topo.Agent) { a.Flows.Entries, a.Flows.Embryonic = e.entries(), e.entries() },
	}
}

// entries is the size of the tables: room for the flows, and soon full of embryonic ones.
func (e Flood) entries() int { return max(4096, 4*e.Flows) }

// Run runs every rate on one farm. Complete rows are in the report even if it
// fails.
func (e Flood) Run(ctx context.Context, show func(farmrun.Step)) (r *FloodReport, err error) {
	r = &FloodReport{experiment: e}
	p := &farmrun.Pace{Began: time.Now(), Total: 2 * len(e.Rates), Guess: e.For + time.Second, Show: show}
	p.Begin("building a farm")
	tries := 2 * len(e.Rates) * e.tries()
	bed, err := testbed.Up(ctx, testbed.Config{Servers: e.Servers, Clients: 1 + farmrun.ClientsFor(tries)})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, bed.Close()) }()
	echoes, err := farmrun.FarSidesOn(bed, testbed.Port, farmrun.NewEcho)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, echoes.Close()) }()
	farm, err := farmrun.Start(ctx, bed, e.settings())
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, farm.Stop()) }()
	return r, e.measure(ctx, farm, r, p)
}

func (e Flood) tries() int { return int(tryRate * e.For.Seconds()) }

// measure opens the flows and floods at each rate.
func (e Flood) measure(ctx context.Context, farm *farmrun.Farm, r *FloodReport, p *farmrun.Pace) error {
	bed := farm.Bed
	f := &flooded{farm: farm, bed: bed, experiment: e, ends: farmrun.RandomEnds(e.Seed, bed.ClientAddrs[1:], 2*len(e.Rates)*e.tries())}
	var err error
	f.flows, err = traffic.OpenFlows(ctx, traffic.Dial{
		To: f.service(), From: farmrun.FromPorts(bed.ClientAddrs[0], e.Flows), Rate: openRate, Enter: bed.Client.Enter,
	})
	if err != nil {
		return err
	}
	defer f.flows.Close()
	if err := allAlive(f.flows.Exchange(ctx, floodWithin)); err != nil {
		return errors.Join(err, ctx.Err())
	}
	for _, rate := range e.Rates {
		p.Begin(fmt.Sprintf("flooding at %s SYNs a second", rateName(rate)))
		row, err := f.flood(ctx, rate)
		if err != nil {
			return err
		}
		p.End(fmt.Sprintf("burning %.0f %% of the CPUs instead", 100*row.CPU))
		spun, err := f.spin(ctx, row.CPU)
		if err != nil {
			return err
		}
		row.TriedSpin, row.OKSpin, row.P90Spin = spun.n, len(spun.took), spun.p90()
		r.rows = append(r.rows, row)
		p.End(fmt.Sprintf("%s SYNs a second", rateName(rate)))
	}
	return nil
}

func rateName(rate int) string {
	if rate == 0 {
		return "as many as go"
	}
	return fmt.Sprint(rate)
}
