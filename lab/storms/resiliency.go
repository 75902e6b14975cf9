package storms

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/table"
	"proffer/topo"
)

// Method is how an LB finds the server of a flow that it does not know.
type Method string

const (
	WithHistory    Method = "hunt"            // asks the candidates of today's and of earlier pools
	WithoutHistory Method = "hunt-no-history" // asks today's candidates: 6LB
	Presuming      Method = "single"          // asks no server: presumes that of the oldest pool
	ByHash         Method = "stateless"       // asks no server: consistent hashing
)

// Methods are all of them.
func Methods() []Method { return []Method{WithHistory, WithoutHistory, Presuming, ByHash} }

// hunts reports whether the LBs ask the servers, and keeps whether they have the history.
func (m Method) hunts() bool { return m == WithHistory || m == WithoutHistory }
func (m Method) keeps() bool { return m == WithHistory || m == Presuming }

// Resiliency is the experiment of 6LB §VI-B.5 (Figure 11d), made harder: the
// servers are replaced in turn under flows that live on, and with
// each change the router turns to an LB that has never seen the flows. The paper
// changes pool and LB once.
type Resiliency struct {
	Methods  []Method
	Flows    int
	Changes  int
	Servers  int // in the pool
	Buckets  int
	Seed     uint64
	Programs string // path of the proffer binary
}

// Bounds of a Resiliency: an LB a change and one to begin with, a place in the
// configuration for each earlier pool, and ports enough for the flows.
const (
	MaxChanges = testbed.MaxLBs - 1
	MaxFlows   = 8000
)

// exchangeWithin is how long a flow may take to answer: TCP sends a lost packet
// again after 200 ms, and then after twice as long.
const exchangeWithin = 5 * time.Second

// Run runs every method on a farm of its own. Complete rows are in the report
// even if it fails.
func (e Resiliency) Run(ctx context.Context, show func(farmrun.Step)) (*ResiliencyReport, error) {
	report := &ResiliencyReport{}
	p := &farmrun.Pace{Began: time.Now(), Total: len(e.Methods) * (e.Changes + 1), Guess: time.Second, Show: show}
	for _, m := range e.Methods {
		result, err := e.run(ctx, m, p)
		if err != nil {
			return report, fmt.Errorf("%s: %w", m, err)
		}
		report.results = append(report.results, result)
	}
	return report, nil
}

// settings make the flows spread over both candidates: with as many open
// connections as half its share a server is full, so that each flow finds its
// first candidate full with probability ½. Idle flows are no load to `busy`.
func (e Resiliency) settings(m Method, servers *pool) farmrun.Settings {
	s := farmrun.Settings{
		Policy:   topo.Policy{Dispatch: topo.Hunt, Acceptance: topo.Static, Threshold: max(1, e.Flows/e.Servers/2)},
		Workers:  e.Flows,
		Cores:    2,
		Measure:  topo.Sockets,
		Programs: e.Programs,
	}
	switch m {
	case Presuming:
		s.Policy = topo.Policy{Dispatch: topo.Single}
	case ByHash:
		s.Policy = topo.Policy{Dispatch: topo.Stateless}
	}
	s.LB = func(lb *topo.LB) {
		lb.Services[0].Buckets = e.Buckets
		servers.configure(lb)
	}
	return s
}

// known reports whether there is such a method.
func known(m Method) bool { return slices.Contains(Methods(), m) }

// Check returns an error for settings that cannot be run.
func (e Resiliency) Check() error {
	seen := map[Method]bool{}
	for _, m := range e.Methods {
		if !known(m) {
			return fmt.Errorf("--methods: unknown method %q: want hunt, hunt-no-history, single or stateless", m)
		}
		if seen[m] {
			return fmt.Errorf("--methods: %s stands there twice", m)
		}
		seen[m] = true
	}
	switch {
	case len(e.Methods) == 0:
		return errors.New("--methods: name at least one")
	case e.Flows < 1 || e.Flows > MaxFlows:
		return fmt.Errorf("--flows %d: want 1 to %d", e.Flows, MaxFlows)
	case e.Changes < 1 || e.Changes > MaxChanges:
		return fmt.Errorf("--changes %d: want 1 to %d", e.Changes, MaxChanges)
	case e.Servers < 2 || e.Servers+e.Changes > testbed.MaxServers:
		return fmt.Errorf("--servers %d: want 2 to %d, fresh ones for %d changes included", e.Servers, testbed.MaxServers-e.Changes, e.Changes)
	case e.Buckets < e.Servers || e.Buckets > table.MaxBuckets:
		return fmt.Errorf("--buckets %d: want %d to %d", e.Buckets, e.Servers, table.MaxBuckets)
	}
	return nil
}

// run measures one method.
func (e Resiliency) run(ctx context.Context, m Method, p *farmrun.Pace) (_ *resilience, err error) {
	p.Begin(fmt.Sprintf("%s: building a farm", m))
	bed, err := testbed.Up(ctx, testbed.Config{Servers: e.Servers + e.Changes, LBs: e.Changes + 1})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, bed.Close()) }()
	servers := newPool(bed.Servers, e.Servers, m.keeps(), e.Seed)
	echoes, err := farmrun.FarSidesOn(bed, testbed.Port, farmrun.NewEcho)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, echoes.Close()) }()
	farm, err := farmrun.Start(ctx, bed, e.settings(m, servers))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, farm.Stop()) }()

	r := &rolling{farm: farm, bed: bed, pool: servers, method: m}
	if err := r.open(ctx, farmrun.RandomEnds(e.Seed, bed.ClientAddrs, e.Flows)); err != nil {
		return nil, err
	}
	defer r.flows.Close()
	result := &resilience{method: m, experiment: e, firstTakes: r.firstTakes}
	p.End(fmt.Sprintf("%s: %d flows", m, e.Flows))
	for i := range e.Changes {
		c, err := r.change(ctx, i+1)
		if err != nil {
			return nil, fmt.Errorf("change %d: %w", i+1, err)
		}
		result.changes = append(result.changes, c)
		p.End(fmt.Sprintf("%s: change %d of %d", m, i+1, e.Changes))
	}
	return result, nil
}
