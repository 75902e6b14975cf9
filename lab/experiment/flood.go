package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"proffer/lab/testbed"
	"proffer/lab/traffic"
	"proffer/topo"
)

// Flood floods the service with SYNs of clients that do not exist, beside flows
// that are established and others that try to be (docs/failures.md: "SYN flood"). The
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
func (e Flood) settings() Settings {
	return Settings{
		Policy:   topo.Policy{Dispatch: topo.Hunt, Acceptance: topo.Static, Threshold: 4},
		Workers:  32,
		Cores:    2,
		Programs: e.Programs,
	}
}

// Run runs every rate on one farm. Complete rows are in the report even if it
// fails.
func (e Flood) Run(ctx context.Context, show func(Step)) (r *FloodReport, err error) {
	r = &FloodReport{experiment: e}
	p := &pace{began: time.Now(), total: 2 * len(e.Rates), guess: e.For + time.Second, show: show}
	p.begin("building a farm")
	tries := 2 * len(e.Rates) * e.tries()
	bed, err := testbed.Up(ctx, testbed.Config{Servers: e.Servers, Clients: 1 + clientsFor(tries)})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, bed.Close()) }()
	echoes, err := serveOn(bed, testbed.Port, newEcho)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, echoes.Close()) }()
	farm, err := Start(ctx, bed, e.settings())
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, farm.Stop()) }()
	return r, e.measure(ctx, farm, r, p)
}

func (e Flood) tries() int { return int(tryRate * e.For.Seconds()) }

// measure opens the flows and floods at each rate.
func (e Flood) measure(ctx context.Context, farm *Farm, r *FloodReport, p *pace) error {
	bed := farm.Bed
	f := &flooded{farm: farm, bed: bed, experiment: e, ends: randomEnds(e.Seed, bed.ClientAddrs[1:], 2*len(e.Rates)*e.tries())}
	var err error
	f.flows, err = traffic.OpenFlows(ctx, traffic.Dial{
		To: f.service(), From: fromPorts(bed.ClientAddrs[0], e.Flows), Rate: openRate, Enter: bed.Client.Enter,
	})
	if err != nil {
		return err
	}
	defer f.flows.Close()
	if err := allAlive(f.flows.Exchange(ctx, floodWithin)); err != nil {
		return errors.Join(err, ctx.Err())
	}
	for _, rate := range e.Rates {
		p.begin(fmt.Sprintf("flooding at %s SYNs a second", rateName(rate)))
		row, err := f.flood(ctx, rate)
		if err != nil {
			return err
		}
		p.end(fmt.Sprintf("burning %.0f %% of the CPUs instead", 100*row.CPU))
		if row.TriedSpin, row.OKSpin, err = f.spin(ctx, row.CPU); err != nil {
			return err
		}
		r.rows = append(r.rows, row)
		p.end(fmt.Sprintf("%s SYNs a second", rateName(rate)))
	}
	return nil
}

func rateName(rate int) string {
	if rate == 0 {
		return "as many as go"
	}
	return fmt.Sprint(rate)
}

// flooded is a farm under floods.
type flooded struct {
	farm       *Farm
	bed        *testbed.Bed
	experiment Flood
	flows      *traffic.Flows
	ends       []netip.AddrPort // of the tries to come
	floods     uint64
}

func (f *flooded) service() netip.AddrPort { return netip.AddrPortFrom(f.bed.VIP, testbed.Port) }

// flood floods once, lets the flows speak in the middle and afterwards, and tries
// new connections all the time.
func (f *flooded) flood(ctx context.Context, rate int) (row FloodRow, err error) {
	e := f.experiment
	offers, err := f.farm.Count(ctx, f.bed.LBs, "offer")
	if err != nil {
		return row, err
	}
	before, err := readCPU("/proc/stat")
	if err != nil {
		return row, err
	}
	f.floods++
	flood := traffic.Flood{
		Interface: "eth0", To: f.service(), Clients: testbed.ClientNet(), Rate: float64(rate), For: e.For,
		Seed: e.Seed + f.floods, Enter: f.bed.Client.Enter,
	}
	var sent traffic.Sent
	var during cpuTime
	var meanwhile []traffic.Answer
	group, running := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		if sent, err = flood.Run(running); err == nil {
			during, err = readCPU("/proc/stat")
		}
		return err
	})
	group.Go(func() error {
		if err := sleep(running, e.For/2); err != nil {
			return err
		}
		meanwhile = f.flows.Exchange(running, floodWithin)
		return running.Err()
	})
	group.Go(func() (err error) {
		row.Tried, row.OK, err = f.try(running)
		return err
	})
	if err := group.Wait(); err != nil {
		return row, err
	}
	row.Rate, row.SentPPS, row.CPU = rate, sent.Rate(), during.share(before)
	row.Established = e.Flows
	row.Lost, row.SilentDuring = lostOf(f.flows.Exchange(ctx, floodWithin), meanwhile)
	if err := ctx.Err(); err != nil {
		return row, err
	}
	after, err := f.farm.Count(ctx, f.bed.LBs, "offer")
	row.Offered = after - offers
	return row, err
}

// lostOf counts the flows that do not live after a flood, and those that gave no
// answer during it.
func lostOf(after, during []traffic.Answer) (lost, silent int) {
	for i := range after {
		if after[i].Outcome != traffic.OK {
			lost++
		}
		if during[i].Outcome == traffic.Silent {
			silent++
		}
	}
	return lost, silent
}

// try opens new connections one after the other, each of which speaks once. One
// that has not had its answer in time failed.
func (f *flooded) try(ctx context.Context) (tried, ok int, err error) {
	n := f.experiment.tries()
	flows, err := traffic.OpenFlows(ctx, traffic.Dial{
		To: f.service(), From: f.ends[:n], Rate: tryRate, Timeout: floodWithin, Enter: f.bed.Client.Enter,
	})
	if err != nil {
		return 0, 0, err
	}
	defer flows.Close()
	f.ends = f.ends[n:]
	for _, a := range flows.Exchange(ctx, floodWithin) {
		if a.Outcome == traffic.OK {
			ok++
		}
	}
	return n, ok, ctx.Err()
}

// spin keeps every CPU as busy as the flood did and tries new connections.
func (f *flooded) spin(ctx context.Context, share float64) (tried, ok int, err error) {
	burning, stop := context.WithCancel(ctx)
	var burners sync.WaitGroup
	for range runtime.NumCPU() {
		burners.Go(func() { traffic.Spin(burning, share) })
	}
	tried, ok, err = f.try(ctx)
	stop()
	burners.Wait()
	return tried, ok, err
}
